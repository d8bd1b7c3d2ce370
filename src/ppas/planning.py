"""What the workflow will make: planned from ``workflow/config.yaml`` and ``conf/``.

The Snakefile asks this module once, before it builds its DAG. Bad input therefore ends in one
line and exit status 2, with no job started.
"""

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from ppas.config import (
    CONF,
    ROOT,
    ZERO_SHOT,
    ConfigError,
    cost_model_of,
    experiments,
    fitted_pairs,
    hardware_slug,
    load,
    pair_name,
    schedulers,
)
from ppas.digest import code_digest, content_digest
from ppas.measured import MEASURED, session_digest
from ppas.paper import outputs
from ppas.results import SIMULATED
from ppas.runs import VLLM, Run, enumerate_runs, experiment_digest
from ppas.sources import (
    SIMULATOR,
    Candidate,
    Experiment,
    Session,
    announce,
    choose,
    on_host,
    simulated,
)
from ppas.workload import parse_phases

EXIT_BAD_INPUT = 2
SCHEMA = "workflow/config.schema.yaml"
PACKAGE = Path(__file__).parent
RESULTS = ROOT / "results"


@dataclass(frozen=True)
class Output:
    """A figure, a table or the claims: the files of one rule and what they are made from."""

    verb: str
    name: str
    experiments: tuple[str, ...]
    files: tuple[str, ...]
    inputs: tuple[str, ...]
    command: str
    code: str  # hash of the code that makes it


@dataclass
class Plan:
    """Everything the Snakefile needs to know."""

    experiments: list[Experiment]  # each with the source of its numbers
    sessions: list[Session]  # that are still to be run on a server
    outputs: list[Output]
    targets: Sequence[str]
    cost_models: list[str] = field(default_factory=list)  # to refit to published rows
    probed: dict[str, Session] = field(default_factory=dict)  # to refit to a server's steps
    choices: list[str] = field(default_factory=list)  # what comes from where, in lines
    measuring_options: str = ""  # of `ppas measure`

    @property
    def simulated(self) -> list[Experiment]:
        """The experiments that the simulator runs."""
        return [e for e in self.experiments if e.source == SIMULATED]

    @property
    def results(self) -> dict[str, tuple[str, ...]]:
        """Result files by experiment."""
        return {experiment.name: experiment.results for experiment in self.experiments}

    @property
    def files(self) -> list[str]:
        """All files of the selected targets, and the results of every selected experiment."""
        wanted = [o for o in self.outputs if TARGET_OF[o.verb] in self.targets]
        return [file for o in wanted for file in o.files] + [
            file for experiment in self.experiments for file in experiment.results
        ]


TARGET_OF = {"draw": "figures", "tabulate": "tables", "judge": "claims", "write": "report"}


def plan_or_exit(settings: Mapping[str, Any]) -> Plan:
    """``make_plan``; bad input is printed as one line and ends the process with status 2."""
    try:
        return make_plan(settings)
    except ConfigError as error:
        print(f"ppas: {error}", file=sys.stderr, flush=True)
        # Snakemake would turn any exception into its own report and status 1.
        os._exit(EXIT_BAD_INPUT)


def make_plan(settings: Mapping[str, Any]) -> Plan:
    """Check the workflow's settings and every selected experiment.

    Raises:
        ConfigError: one line naming file, key and what is allowed.
    """
    check_settings(settings)
    names = experiments() if settings["experiments"] == "all" else list(settings["experiments"])
    backend = settings["backend"]
    overrides, hardware = tuple(settings.get("overrides", ())), settings.get("hardware")
    candidates = remembered(
        [names, backend, overrides, hardware],
        lambda: [candidate(n, backend, (*on_hardware(n, hardware), *overrides)) for n in names],
    )
    python = settings.get("vllm_python")
    can_measure = on_host(python, settings.get("measured_elsewhere", ()))
    choices = [(c.name, choose(backend, c, RESULTS, can_measure)) for c in candidates]
    chosen = [choice.experiment for _, choice in choices if choice.experiment]
    if not chosen:
        raise ConfigError(f"workflow/config.yaml: backend: {choices[0][1].reason}")
    return Plan(
        experiments=chosen,
        sessions=[session for _, choice in choices for session in choice.sessions],
        outputs=paper_outputs({e.name: e for e in chosen}),
        targets=settings["targets"],
        cost_models=fitted_pairs(),
        probed={s.pair: s for c in candidates for s in c.sessions[:1] if can_measure(s)},
        choices=announce(choices, RESULTS),
        measuring_options=f"--vllm-python {shlex.quote(python)}" if python else "",
    )


def remembered(
    question: Any, answer: Callable[[], list[Candidate]], path: Path | None = None
) -> list[Candidate]:
    """``answer()``, or what it was when asked the same of the same files.

    Composing every experiment takes Hydra seconds. The key is the content of all of ``conf/`` and
    of the package, so that any edit composes again; mistakes raise and are never remembered.
    """
    path = path or ROOT / ".snakemake" / "ppas_plan.json"
    files = sorted([*CONF.rglob("*.yaml"), *PACKAGE.rglob("*.py")])
    content = [(str(f), hashlib.sha256(f.read_bytes()).hexdigest()) for f in files]
    key = content_digest([question, content])
    try:
        known = json.loads(path.read_text())
        if known["key"] == key:
            return [_candidate(fields) for fields in known["candidates"]]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # nothing usable is remembered
    planned = answer()
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps({"key": key, "candidates": [*map(asdict, planned)]}))
    temporary.replace(path)
    return planned


def _candidate(fields: Mapping[str, Any]) -> Candidate:
    experiment = fields["simulated"]
    return Candidate(
        fields["name"],
        Experiment(**_tuples(experiment)) if experiment else None,
        tuple(Session(**_tuples(session)) for session in fields["sessions"]),
    )


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    """JSON keeps tuples as lists."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}


def check_settings(settings: Mapping[str, Any]) -> None:
    """Hold the workflow's settings against their closed schema."""
    schema = yaml.safe_load((ROOT / SCHEMA).read_text())
    error = best_match(Draft202012Validator(schema).iter_errors(dict(settings)))
    if error is None:
        return
    key = ".".join(map(str, error.absolute_path)) or "settings"
    allowed = ", ".join(schema["properties"])
    problem = error.message.replace("\n", " ")
    raise ConfigError(f"workflow/config.yaml: {key}: {problem} (keys: {allowed})")


def on_hardware(name: str, hardware: str | None) -> tuple[str, ...]:
    """Overrides that move an experiment to other hardware, with that pair's cost model."""
    if hardware is None:
        return ()
    config = load([f"experiment={name}", f"hardware={hardware}", f"cost_model={ZERO_SHOT}"])
    chosen = cost_model_of(config.model.name, config.hardware.name)
    return (f"hardware={hardware}", f"cost_model={chosen}")


def candidate(name: str, backend: str, overrides: Sequence[str]) -> Candidate:
    """Load and check one experiment as far as the backend asks."""
    given = (f"experiment={name}", *overrides)
    return Candidate(
        name,
        None if backend == VLLM else _simulated(name, given),
        () if backend == SIMULATOR else _sessions(name, (*given, "backend=vllm")),
    )


def _simulated(name: str, overrides: tuple[str, ...]) -> Experiment:
    config = load(overrides)
    files = [f"{slug}.parquet" for slug in schedulers(config)]
    if config.log_steps:
        files.append("steps.parquet")
    return simulated(name, experiment_digest(config), overrides, [*files, "manifest.json"])


def _sessions(name: str, overrides: tuple[str, ...]) -> tuple[Session, ...]:
    config = load(overrides)
    if config.log_steps:
        return ()  # a server's step log is drawn with `ppas timeline`, not yet published
    by_slug: dict[str, list[Run]] = {}
    for run in enumerate_runs(config):
        by_slug.setdefault(run.slug, []).append(run)
    return tuple(
        Session(
            experiment=name,
            slug=slug,
            digest=session_digest(runs),
            overrides=overrides,
            hardware=hardware_slug(config),
            device=config.hardware.device,
            pair=pair_name(config),
            runs=tuple(run.run_id for run in runs),
            run_s=tuple(sum(s for s, _ in parse_phases(run.phases)) for run in runs),
        )
        for slug, runs in by_slug.items()
    )


def paper_outputs(chosen: Mapping[str, Experiment]) -> list[Output]:
    """Every figure and table, the claims and the report, as far as their experiments are there."""
    published = tuple(
        str(path.relative_to(ROOT)) for path in sorted((ROOT / "data/published").glob("*"))
    )
    found = [
        Output("draw", name, needs, (f"figures/{name}.pdf", f"figures/{name}.png"),
               published + profiles(name), f"figure {name}{_measured(needs, chosen)}",
               output_code("figures", name))
        for name, needs in outputs.figures().items() if set(needs) <= set(chosen)
    ] + [
        Output("tabulate", name, needs,
               tuple(f"tables/{name}.{suffix}" for suffix in outputs.table_formats()[name]),
               published + outputs.table_inputs()[name] + profiles(name),
               f"table {name}{_measured(needs, chosen)}",
               output_code("tables", name))
        for name, needs in outputs.tables().items() if set(needs) <= set(chosen)
    ]  # fmt: skip
    needs = outputs.claims_experiments(ROOT / outputs.CLAIMS)
    if not set(needs) <= set(chosen):
        return found
    files = ("tables/claims.csv", "tables/claims.md")
    judged = Output("judge", "claims", needs, files, published,
                    f"claims{_measured(needs, chosen)}",
                    output_code("tables", "render"))  # fmt: skip
    if set(outputs.figures()) | set(outputs.tables()) <= {output.name for output in found}:
        return [*found, judged, _report([*found, judged])]
    return [*found, judged]


def profiles(name: str) -> tuple[str, ...]:
    """The profiles that there are, for the outputs that show them."""
    kinds = outputs.profiled().get(name, ())
    found = [f for kind in kinds for f in RESULTS.glob(f"{MEASURED}/*/profiles/*_{kind}.csv")]
    return tuple(str(file.relative_to(ROOT)) for file in sorted(found))


def _measured(needs: Sequence[str], chosen: Mapping[str, Experiment]) -> str:
    """The option that tells an output which of its experiments were measured, and where."""
    folders = [
        str(Path(chosen[name].results[0]).parent.relative_to(f"results/{MEASURED}"))
        for name in needs
        if chosen[name].source == MEASURED
    ]
    return f" --measured {' '.join(folders)}" if folders else ""


def _report(parts: list[Output]) -> Output:
    """The report is made of the pictures and numbers of everything else."""
    files = [file for part in parts for file in part.files if file.endswith((".png", ".csv"))]
    needs = tuple(sorted({name for part in parts for name in part.experiments}))
    page = PACKAGE / "paper" / "report" / "report.html.j2"
    code = content_digest([output_code("report", "__init__"), page.read_text(encoding="utf-8")])
    return Output("write", "report", needs, ("report.html",), tuple(files), "report", code)


def output_code(package: str, name: str) -> str:
    """Hash of the code behind an output: its own module and what all outputs share."""
    files = {PACKAGE / "paper" / package / f"{name}.py", *_shared_code(package)}
    return content_digest([_file_code(path) for path in sorted(files)])


@cache
def _shared_code(package: str) -> tuple[Path, ...]:
    """Files that decide every output of a package."""
    catalogue = outputs.figures() | outputs.tables()
    shared = [p for p in (PACKAGE / "paper" / package).glob("*.py") if p.stem not in catalogue]
    common = (PACKAGE / "metrics.py", PACKAGE / "workload.py")
    return (*shared, *(PACKAGE / "paper").glob("*.py"), *common)


@cache
def _file_code(path: Path) -> str:
    return code_digest([path])


def announce_choices(plan: Plan, workflow: Any) -> None:
    """Say where the numbers will come from, before anything starts."""
    if workflow.is_main_process:
        print(*(f"ppas: {line}" for line in plan.choices), sep="\n", file=sys.stderr, flush=True)


def guard_checkout(workflow: Any) -> None:
    """Let one workflow at a time work in this checkout, and clear what a killed one left.

    Snakemake's own locks outlive a killed process; the kernel's do not. Holding ours proves
    that any lock of Snakemake's still lying about is stale.
    """
    if not workflow.is_main_process or workflow.dryrun:
        return
    state = Path(".snakemake")
    state.mkdir(exist_ok=True)
    handle = (state / "ppas.lock").open("w")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(
            f"ppas: {Path.cwd()}: another snakemake is at work here; wait for it or stop it",
            file=sys.stderr,
            flush=True,
        )
        os._exit(EXIT_BAD_INPUT)
    shutil.rmtree(state / "locks", ignore_errors=True)
    workflow.globals["_ppas_lock"] = handle  # held until this process ends
