"""The `ppas` command: run one experiment by hand, and the steps that the workflow calls."""

import argparse
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ppas.config import ConfigError, experiments, load
from ppas.measured import MeasuringFailed
from ppas.profiling.command import add_parser as add_profile_parser

if TYPE_CHECKING:
    from ppas.schema import Config

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_SIGNAL = 1, 2, 128
OVERRIDES_HELP = "Hydra overrides, such as experiment=NAME scheduler=ppas seed=3"
AUTHORS_GPU = "RTX5090"  # of most of the authors' logs


def build_parser() -> argparse.ArgumentParser:
    """All subcommands; each sets ``run`` to the function that does it."""
    parser = argparse.ArgumentParser(
        prog="ppas",
        description="P-PAS: prefill-pressure adaptive scheduling for long-context LLM serving.",
    )
    commands = parser.add_subparsers(title="commands", required=True)

    run = commands.add_parser(
        "run",
        help="serve one experiment, or one run of it, and print its latencies",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n"
        "  ppas run experiment=rtx5090_primary scheduler=ppas seed=3\n"
        "  ppas run experiment=rtx5090_primary scheduler=mbt_2k seed=0 burst_rate=1.0\n"
        "  ppas run experiment=rtx5090_primary 'workload.phases=[\"10:0.2,30:0.9\"]'\n\n"
        f"experiments: {', '.join(experiments())}\n"
        "Every value under conf/ can be overridden by its path, as in engine.max_num_seqs=64.",
    )
    run.add_argument("overrides", nargs="+", metavar="OVERRIDE", help=OVERRIDES_HELP)
    run.add_argument("--save", type=Path, metavar="DIR", help="also keep each run's records")
    run.set_defaults(run=run_by_hand)

    simulate = commands.add_parser("simulate", help="simulate an experiment into results/")
    simulate.add_argument("overrides", nargs="+", metavar="OVERRIDE", help=OVERRIDES_HELP)
    simulate.add_argument("--results", type=Path, metavar="DIR", help="default: results/")
    simulate.add_argument("--digest", help="fail unless the configuration still has this hash")
    simulate.set_defaults(run=simulate_experiment)

    measure = commands.add_parser(
        "measure",
        help="measure an experiment on a vLLM server into results/",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="One server serves all runs of a scheduler. Each run is kept as soon as it is done; "
        "after\nany interruption the same command goes on with the runs that are left.\n\n"
        "examples:\n"
        "  ppas measure experiment=cpu_demo\n"
        "  ppas measure experiment=rtx5090_primary --scheduler ppas",
    )
    measure.add_argument("overrides", nargs="+", metavar="OVERRIDE", help=OVERRIDES_HELP)
    measure.add_argument("--scheduler", metavar="NAME", help="only this one; default: all")
    _add_vllm_python(measure)
    measure.add_argument("--results", type=Path, metavar="DIR", help="default: results/")
    measure.add_argument("--digest", help="fail unless the configuration still has this hash")
    measure.set_defaults(run=measure_experiment)

    calibrate = commands.add_parser(
        "calibrate",
        help="fit the cost model of a (model, GPU) pair",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n"
        "  ppas calibrate qwen2_5_3b_rtx5090         to published static rows\n"
        "  ppas calibrate zero_shot                  what pairs without a fit get, from the fits\n"
        "  ppas calibrate --probes experiment=rtx5090_primary hardware=h200 backend=vllm\n"
        "                                            to steps of a server on this machine's GPU",
    )
    calibrate.add_argument(
        "given", nargs="+", metavar="PAIR|OVERRIDE",
        help=f"a file of conf/cost_model; with --probes: {OVERRIDES_HELP}",
    )  # fmt: skip
    calibrate.add_argument("--probes", action="store_true", help="measure on a real vLLM server")
    _add_vllm_python(calibrate)
    calibrate.add_argument(
        "--out", type=Path, metavar="FILE", help="default: conf/cost_model/MODEL_HARDWARE.yaml"
    )
    calibrate.set_defaults(run=calibrate_pair)

    doctor = commands.add_parser(
        "doctor",
        help="check a host and a `vllm serve` command line before serving",
        usage="ppas doctor [--gpu-memory-gib X] -- vllm serve MODEL ...",
        epilog="One line per check: ok, warning, problem or skipped. Exit status 1 if there is a "
        "problem.",
    )
    doctor.add_argument(
        "--gpu-memory-gib", type=float, metavar="X", help="memory of one GPU; default: nvidia-smi"
    )
    doctor.add_argument("command", nargs=argparse.REMAINDER, help="what you are about to run")
    doctor.set_defaults(run=check_before_serving)

    logs = commands.add_parser(
        "import-logs",
        help="recompute the paper's tables from the authors' public logs",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Read the authors' text logs, print mean E2E per scheduler and burst rate\n"
        "beside the paper's, and say how many numbers of each table the logs reproduce.",
        epilog="examples:\n"
        "  ppas import-logs rtx5090/*.log --out recomputed\n"
        "  ppas import-logs h100/*.log --hardware H100-SXM --partial\n"
        "  ppas import-logs *.log --name adaptive_s256=ppas\n\n"
        "A log names no GPU: import the logs of one at a time. --out writes DIR/table*.csv (as in\n"
        "tables/, and the number of seeds) and DIR/published-raw/EXPERIMENT/: runs.parquet, and\n"
        "records.parquet where the log has request lines. Latencies count from submission, as the\n"
        "authors took them. Any line, name or run that cannot be used ends the import with its\n"
        "place and remedy, and nothing is written.",
    )
    logs.add_argument("files", nargs="+", type=Path, metavar="FILE", help="logs, as UTF-8 text")
    logs.add_argument(
        "--hardware",
        metavar="GPU",
        help=f"their GPU, as in conf/hardware; default: {AUTHORS_GPU}, and an error if the values "
        "are far from its published ones and near another's",
    )
    logs.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="LOGGED=CONF",
        help="what a name in the logs is: a file of conf/model or conf/scheduler",
    )
    logs.add_argument(
        "--partial", action="store_true", help="leave out what cannot be used, and name it"
    )
    logs.add_argument("--out", type=Path, metavar="DIR", help="write tables and results there")
    logs.set_defaults(run=import_authors_logs)
    add_profile_parser(commands)

    timeline = commands.add_parser("timeline", help="draw a step log of the vLLM plugin")
    timeline.add_argument("log", type=Path, metavar="LOG.csv")
    timeline.add_argument("--out", type=Path, metavar="FILE", help="default: LOG.png")
    timeline.set_defaults(run=draw_timeline)

    for kind, text in (("figure", "draw a figure"), ("table", "build a table")):
        output = commands.add_parser(kind, help=f"{text} from results/")
        output.add_argument(
            "name",
            help=f"such as {'fig04_latency_vs_burst' if kind == 'figure' else 'table09_primary'}",
        )
        _add_measured(output)
        output.set_defaults(run=build_output, kind=kind)
    claims = commands.add_parser("claims", help="give a verdict on every claim of the paper")
    _add_measured(claims)
    claims.set_defaults(run=build_output, kind="claims", name="claims")
    report = commands.add_parser("report", help="write report.html from figures/ and tables/")
    report.set_defaults(run=build_output, kind="report", name="report")
    return parser


def _add_vllm_python(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--vllm-python", metavar="FILE",
        help="the Python that has vLLM; default: this one, or an environment of the Makefile",
    )  # fmt: skip


def _add_measured(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--measured", nargs="+", default=(), metavar="HARDWARE/EXPERIMENT",
        help="experiments to take from results/measured; all others are simulated",
    )  # fmt: skip


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


def _require_simulator(config: "Config") -> None:
    if config.backend.name != "simulator":
        raise ConfigError(
            f"command line: backend: this command simulates; for backend={config.backend.name} "
            "use ppas measure"
        )


def _require_digest(config: "Config", planned: str | None, digest: str) -> None:
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
        sys.exit(1)


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


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; bad input ends with one line and exit status 2, a failure with 1."""
    args = build_parser().parse_args(argv)
    try:
        args.run(args)
    except ConfigError as error:
        print(f"ppas: {error}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)
    except MeasuringFailed as error:
        print(f"ppas: {error}", file=sys.stderr)
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        print("ppas: interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(EXIT_SIGNAL + signal.SIGINT)


if __name__ == "__main__":
    main()
