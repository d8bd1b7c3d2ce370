"""The report: one HTML page that carries every figure, table and verdict, and needs no network.

It is made from the files of the other outputs and from nothing else, so it cannot disagree with
them, and equal files give equal bytes.
"""

import ast
import base64
import re
from importlib import import_module
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ppas.paper import outputs
from ppas.paper.claims import ORDER
from ppas.paper.tables import render
from ppas.paper.tidy import COLUMNS, SOURCES

HERE = Path(__file__).parent
TEMPLATE = HERE / "report.html.j2"
# How the paper names an output; claims say where they stand in these words.
NAMED = {"fig": "Figure", "table": "Table"}


def render_report(figures: Path, tables: Path) -> str:
    """The whole page, from ``figures/*.png`` and ``tables/*.csv``."""
    claims = pd.read_csv(tables / "claims.csv", keep_default_na=False, dtype=str)
    names, drawn = (
        sorted(of, key=lambda name: not paper_name(name))  # the paper's first
        for of in (outputs.tables(), outputs.figures())
    )
    frames = {name: _read(tables / f"{name}.csv") for name in names}
    counts = claims["verdict"].value_counts()
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template(TEMPLATE.name).render(
        verdicts=[(name, int(counts.get(name, 0))) for name in ORDER],
        sources=_sources(frames),
        claims=claims.to_dict("records"),
        figures=[_figure(name, figures, claims) for name in drawn],
        tables=[_table(name, frames[name], claims) for name in names],
    )


def _read(path: Path) -> pd.DataFrame:
    types = {"burst": str, "table": str, "prompt_tokens": "Int64", "output_tokens": "Int64"}
    return pd.read_csv(path, dtype=types)


def _sources(frames: dict[str, pd.DataFrame]) -> list[tuple[str, str, int]]:
    """Each source with its meaning and how many numbers of the tables come from it."""
    tidy = pd.concat([frame for frame in frames.values() if list(frame.columns) == COLUMNS])
    ours = tidy.loc[tidy["value"].notna(), "source"].value_counts()
    counts = ours.to_dict() | {"published": int(tidy["published"].notna().sum())}
    return [(name, text, counts.get(name, 0)) for name, text in SOURCES.items()]


def _figure(name: str, folder: Path, claims: pd.DataFrame) -> dict:
    image = base64.b64encode((folder / f"{name}.png").read_bytes()).decode("ascii")
    text = ast.get_docstring(ast.parse((outputs.HERE / "figures" / f"{name}.py").read_text()))
    title, _, rest = " ".join(text.replace("``", "").split()).partition(": ")
    return {
        "name": name,
        "title": title,
        "caption": rest[:1].upper() + rest[1:],
        "image": Markup(f"data:image/png;base64,{image}"),
        "claims": _claims_at(name, claims),
        "command": f"snakemake --cores 1 figures/{name}.pdf",
    }


def _table(name: str, table: pd.DataFrame, claims: pd.DataFrame) -> dict:
    module = import_module(f"ppas.paper.tables.{name}")
    if hasattr(module, "grid"):  # a layout of its own, in texts
        wide = module.grid(table).style.hide(axis="index")
        note = module.summary(table) if hasattr(module, "summary") else module.NOTE
    else:
        layout = getattr(module, "LAYOUT", render.Layout())
        wide = render.spread(table, layout, bold="<b>{}</b>".format).style
        note = f"{render.setting(table)} {render.notes(table, layout)}"
    return {
        "name": name,
        "title": module.TITLE,
        "note": note,
        "text": hasattr(module, "grid"),
        "html": Markup(wide.to_html(exclude_styles=True, sparse_index=True)),
        "claims": _claims_at(name, claims),
        "command": f"snakemake --cores 1 tables/{name}.md",
    }


def paper_name(name: str) -> str:
    """``fig01b_mbt_crossover`` -> ``Figure 1(b)``, ``table09_primary`` -> ``Table 9``."""
    number, _, _ = name.partition("_")
    for prefix, word in NAMED.items():
        rest = number.removeprefix(prefix)
        if rest != number and rest[:2].isdecimal():
            part = f"({rest[2:]})" if rest[2:] else ""
            return f"{word} {int(rest[:2])}{part}"
    return ""


def _claims_at(name: str, claims: pd.DataFrame) -> list[dict]:
    """Claims that stand in this figure or table: ``Figure 7(a)`` stands in ``Figure 7``."""
    wanted = paper_name(name)
    if not wanted:
        return []
    here = claims["where"].str.contains(rf"{re.escape(wanted)}(?!\d)", regex=True)
    if wanted.startswith(NAMED["table"]):
        number = wanted.split()[-1]
        here |= claims["where"].str.contains(rf"Tables(?: \d+ and)? {number}(?!\d)", regex=True)
    return claims[here].to_dict("records")
