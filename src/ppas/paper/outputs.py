"""The catalogue of figures and tables, read from their files without importing them.

A module in ``figures/`` or ``tables/`` that assigns ``EXPERIMENTS`` is an output, named by its
file. Adding a figure or a table is therefore adding one file. The workflow asks this module when
it builds its DAG, so nothing heavy is imported here.
"""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent
CLAIMS = Path("data/published/claims.yaml")


def figures() -> dict[str, tuple[str, ...]]:
    """Figure name -> the experiments whose results it reads."""
    return _constants(HERE / "figures", "EXPERIMENTS", ())


def tables() -> dict[str, tuple[str, ...]]:
    """Table name -> the experiments whose results it reads."""
    return _constants(HERE / "tables", "EXPERIMENTS", ())


def table_formats() -> dict[str, tuple[str, ...]]:
    """Table name -> the file suffixes that ``build_table`` writes (``FORMATS``, or all three)."""
    return _constants(HERE / "tables", "FORMATS", ("csv", "md", "tex"))


def table_inputs() -> dict[str, tuple[str, ...]]:
    """Table name -> files it reads besides results and published data (``INPUTS``)."""
    return _constants(HERE / "tables", "INPUTS", ())


def profiled() -> dict[str, tuple[str, ...]]:
    """Output name -> the kinds of profiles that it shows, where there are any (``PROFILED``)."""
    kinds = [_constants(HERE / package, "PROFILED", ()) for package in ("figures", "tables")]
    return kinds[0] | kinds[1]


def claims_experiments(claims: Path = CLAIMS) -> tuple[str, ...]:
    """Every experiment that a claim reads, sorted."""
    import yaml

    entries = yaml.safe_load(claims.read_text(encoding="utf-8"))
    return tuple(sorted({name for entry in entries for name in entry["experiments"]}))


def table_module(number: int) -> str:
    """Name of the module that makes a table of the paper."""
    (name,) = [name for name in tables() if name.startswith(f"table{number:02d}_")]
    return name


@cache
def table_rows(number: int, study):
    """A table of the paper as its module builds it: tidy rows."""
    return import_module(f"ppas.paper.tables.{table_module(number)}").build(study)


def printed(number: int, study):
    """What the paper prints for a table; a module may add numbers that the text prints."""
    module = import_module(f"ppas.paper.tables.{table_module(number)}")
    return module.printed(study) if hasattr(module, "printed") else study.published(number)


def build_table(name: str, study, out_dir: Path) -> list[Path]:
    """Write one table to ``out_dir`` as its module's ``FORMATS`` say; return the paths."""
    from ppas.paper.tables import render

    module = import_module(f"ppas.paper.tables.{name}")
    table = module.build(study)
    layout = getattr(module, "LAYOUT", render.Layout())
    writers = {
        "csv": lambda: render.to_csv(table),
        "md": lambda: getattr(module, "to_markdown", render.to_markdown)(
            table, module.TITLE, layout
        ),
        "tex": lambda: render.to_latex(table, module.TITLE, layout),
    }
    return [
        _write(Path(out_dir) / f"{name}.{suffix}", writers[suffix]())
        for suffix in table_formats()[name]
    ]


def build_figure(name: str, study, out_dir: Path) -> list[Path]:
    """Write one figure to ``out_dir`` as PDF and PNG; return the paths."""
    from ppas.paper.figures import style

    with style.theme():
        figure = import_module(f"ppas.paper.figures.{name}").plot(study)
        return style.save(figure, Path(out_dir) / name)


def build_claims(study, out_dir: Path) -> list[Path]:
    """Write ``claims.csv`` and ``claims.md`` to ``out_dir``; return the paths."""
    from ppas.paper import claims

    verdicts = claims.evaluate(study)
    return [
        _write(Path(out_dir) / "claims.csv", claims.to_csv(verdicts)),
        _write(Path(out_dir) / "claims.md", claims.to_markdown(verdicts)),
    ]


def build_report(figures_dir: Path, tables_dir: Path, path: Path) -> Path:
    """Write the report from the files of every other output."""
    from ppas.paper.report import render_report

    return _write(path, render_report(Path(figures_dir), Path(tables_dir)))


@cache
def _constants(package: Path, constant: str, default: tuple[str, ...]) -> dict:
    """Module name -> its literal ``constant``, for every output module of ``package``."""
    found = {}
    for path in sorted(package.glob("*.py")):
        values = {
            target.id: node.value
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        if "EXPERIMENTS" in values:
            value = values.get(constant)
            found[path.stem] = default if value is None else tuple(ast.literal_eval(value))
    return found


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
    return path
