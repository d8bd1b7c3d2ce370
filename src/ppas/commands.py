"""What each subcommand of `ppas` does; `ppas.cli` says how it is asked for.

Heavy packages are imported where they are needed, so that no command waits for another's.
"""

import argparse
import signal
import sys
from functools import partial
from pathlib import Path

from ppas.config import ConfigError, load
from ppas.measured import MeasuringFailed
from ppas.schema import Config

EXIT_PROBLEM, EXIT_SIGNAL = 1, 128
AUTHORS_GPU = "RTX5090"  # of most of the authors' logs


def run_by_hand(args: argparse.Namespace) -> None:
    """Simulate the runs that the overrides select and print one line per run."""
    import pandas as pd

    from ppas.metrics import run_metrics
    from ppas.results import records, write_frame
    from ppas.runs import enumerate_runs
    from ppas.simulator.runner import simulate_run

    config = load(args.overrides)
    _require_simulator(config)
    frames = []
    for run in enumerate_runs(config):
        outcome = simulate_run(config, run)
        frames.append(records(config, [(run, outcome.records)], config.cost_model.source))
        if args.save:
            write_frame(frames[-1], args.save / f"{run.run_id}.parquet")
    metrics = run_metrics(pd.concat(frames))
    columns = ["scheduler", "burst_rate", "seed", "n_requests", "e2e_mean_s", "e2e_p95_s",
               "ttft_mean_s", "tpot_mean_s", "makespan_s", "source"]  # fmt: skip
    print(metrics[columns].to_string(index=False, float_format=lambda value: f"{value:.4g}"))
    if args.save:
        print(f"records: {len(frames)} files in {args.save}")


def simulate_experiment(args: argparse.Namespace) -> None:
    """Simulate an experiment's missing runs into the results folder."""
    from tqdm import tqdm

    from ppas.results import default_root
    from ppas.results import simulate_experiment as simulate
    from ppas.runs import experiment_digest

    config = load(args.overrides)
    _require_simulator(config)
    _require_digest(config, args.digest, experiment_digest(config))
    new, kept = simulate(
        config,
        args.results or default_root(),
        lambda runs: tqdm(runs, desc=config.experiment, unit="run", disable=None),
    )
    print(f"{config.experiment}: {new} runs simulated, {kept} kept")


def _require_simulator(config: Config) -> None:
    if config.backend.name != "simulator":
        raise ConfigError(
            f"command line: backend: this command simulates; for backend={config.backend.name} "
            "use ppas measure"
        )


def _require_digest(config: Config, planned: str | None, digest: str) -> None:
    if planned and planned != digest:
        raise ConfigError(
            f"conf/experiment/{config.experiment}.yaml: configuration changed since the workflow "
            "was planned; run the same command again"
        )


def measure_experiment(args: argparse.Namespace) -> None:
    """Measure an experiment's missing runs, one server session per scheduler."""
    from ppas.measured import session_digest, stores
    from ppas.results import default_root
    from ppas.serving import host
    from ppas.serving.session import measure_store

    config = load([*args.overrides, "backend=vllm"])
    python = host.require_python(config.hardware, args.vllm_python)
    if config.log_steps:
        raise ConfigError(
            f"conf/experiment/{config.experiment}.yaml: log_steps: a server's steps are not "
            "published yet; see docs/plugin.md for its own step log, or add log_steps=false"
        )
    # Also where a shell started this in the background, with interrupts ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(EXIT_SIGNAL + number))
    wanted = stores(config, args.results or default_root())
    if args.scheduler and args.scheduler not in config.schedulers:
        raise ConfigError(f"--scheduler: no {args.scheduler}; {', '.join(config.schedulers)}")
    for store, runs in wanted.items():
        if args.scheduler in (None, store.slug):
            _require_digest(config, args.digest, session_digest(runs))
            measure_store(config, store, runs, python)


def calibrate_pair(args: argparse.Namespace) -> None:
    """Fit cost models to published rows, or one to measured probes; written to conf/cost_model."""
    if not args.probes:
        from ppas.simulator.calibration import calibrate

        for pair in args.given:
            print(calibrate(pair))
        return
    from tqdm import tqdm

    from ppas.config import CONF, pair_name
    from ppas.serving import host
    from ppas.serving.probing import calibrate_measured
    from ppas.serving.server import ServerDied

    config = load(args.given)
    python = host.require_python(config.hardware, args.vllm_python)
    out = args.out or CONF / "cost_model" / f"{pair_name(config)}.yaml"
    progress = partial(tqdm, desc="probes", disable=None)
    try:
        print(calibrate_measured(config, python, out, progress))
    except (ValueError, ServerDied) as error:
        raise MeasuringFailed(f"calibrate --probes: {error}") from None


def build_output(args: argparse.Namespace) -> None:
    """Build one figure or table, the claims or the report from the results folder."""
    from ppas.config import ROOT
    from ppas.paper import outputs
    from ppas.paper.study import Study

    measured = {Path(folder).name: folder for folder in getattr(args, "measured", ())}
    study = Study(ROOT / "results", ROOT / "data" / "published", measured=measured)
    if args.kind == "figure":
        outputs.build_figure(args.name, study, ROOT / "figures")
    elif args.kind == "table":
        outputs.build_table(args.name, study, ROOT / "tables")
    elif args.kind == "report":
        outputs.build_report(ROOT / "figures", ROOT / "tables", ROOT / "report.html")
    else:
        outputs.build_claims(study, ROOT / "tables")


def check_before_serving(args: argparse.Namespace) -> None:
    """Print one line per check; exit status 1 if one found a problem."""
    from ppas.serving import doctor
    from ppas.serving.doctor.finding import PROBLEM

    try:
        findings = doctor.examine(args.command, args.gpu_memory_gib)
    except doctor.UsageError as error:
        raise ConfigError(str(error)) from None
    print(*findings, sep="\n")
    if any(finding.level == PROBLEM for finding in findings):
        sys.exit(EXIT_PROBLEM)


def import_authors_logs(args: argparse.Namespace) -> None:
    """Print what the logs reproduce of the paper; with ``--out`` also write it."""
    from ppas.authors_logs import import_logs, write_results
    from ppas.authors_logs.recomputed import LoggedStudy, doubts, report, tables
    from ppas.config import ROOT
    from ppas.paper.tables.render import to_csv

    imported = import_logs(args.files, args.hardware or AUTHORS_GPU, args.name)
    problems = imported.problems
    if problems and (not args.partial or imported.runs.empty):
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        hint = "nothing is left" if args.partial else "or leave out such runs with --partial"
        raise ConfigError(f"{problems[0]}{more}; {hint}")
    study = LoggedStudy(imported, ROOT / "data" / "published")
    doubted = doubts(study)
    if doubted and args.hardware is None:
        raise ConfigError(doubted[0])
    made, lacking = tables(study)
    print(report(study, made, lacking))
    for line in [*(f"left out: {problem}" for problem in problems), *doubted]:
        print(f"ppas: {line}", file=sys.stderr)
    if args.out:
        try:
            write_results(imported, args.out)
            for name, rows in made.items():
                path = args.out / f"{name}.csv"
                path.write_text(to_csv(rows), encoding="utf-8", newline="\n")
        except OSError as error:
            raise ConfigError(f"--out {args.out}: {error.strerror}; pass a folder") from None
        print(f"\n{len(made)} tables, and the runs behind them: {args.out}")


def draw_timeline(args: argparse.Namespace) -> None:
    """Draw a plugin's step log and name the file."""
    from ppas.paper.figures import style, timeline

    out = args.out or args.log.with_suffix(".png")
    try:
        with style.theme():
            timeline.measured(args.log).savefig(out, bbox_inches="tight")
    except (OSError, ValueError) as error:
        raise ConfigError(str(error)) from None
    print(out)
