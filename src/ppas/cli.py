"""The `ppas` command line; what each subcommand does is in `ppas.commands`."""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ppas import commands
from ppas.config import ConfigError, experiments
from ppas.measured import MeasuringFailed
from ppas.profiling.command import add_parser as add_profile_parser

EXIT_FAILED, EXIT_BAD_INPUT = 1, 2
OVERRIDES_HELP = "Hydra overrides, such as experiment=NAME scheduler=ppas seed=3"


def build_parser() -> argparse.ArgumentParser:
    """All subcommands; each sets ``run`` to the function that does it."""
    parser = argparse.ArgumentParser(
        prog="ppas",
        description="P-PAS: prefill-pressure adaptive scheduling for long-context LLM serving.",
    )
    parsers = parser.add_subparsers(title="commands", required=True)

    for add in (
        _add_run,
        _add_simulate,
        _add_measure,
        _add_calibrate,
        add_profile_parser,
        _add_doctor,
        _add_timeline,
        _add_outputs,
        _add_import_logs,
    ):
        add(parsers)
    return parser


def _add_run(parsers: Any) -> None:
    run = parsers.add_parser(
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
    run.set_defaults(run=commands.run_by_hand)


def _add_simulate(parsers: Any) -> None:
    simulate = parsers.add_parser("simulate", help="simulate an experiment into results/")
    simulate.add_argument("overrides", nargs="+", metavar="OVERRIDE", help=OVERRIDES_HELP)
    simulate.add_argument("--results", type=Path, metavar="DIR", help="default: results/")
    simulate.add_argument("--digest", help="fail unless the configuration still has this hash")
    simulate.set_defaults(run=commands.simulate_experiment)


def _add_measure(parsers: Any) -> None:
    measure = parsers.add_parser(
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
    measure.set_defaults(run=commands.measure_experiment)


def _add_calibrate(parsers: Any) -> None:
    calibrate = parsers.add_parser(
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
    calibrate.set_defaults(run=commands.calibrate_pair)


def _add_doctor(parsers: Any) -> None:
    doctor = parsers.add_parser(
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
    doctor.set_defaults(run=commands.check_before_serving)


def _add_import_logs(parsers: Any) -> None:
    logs = parsers.add_parser(
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
        help=f"their GPU, as in conf/hardware; default: {commands.AUTHORS_GPU}, and an error if "
        "the values are far from its published ones and near another's",
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
    logs.set_defaults(run=commands.import_authors_logs)


def _add_timeline(parsers: Any) -> None:
    timeline = parsers.add_parser("timeline", help="draw a step log of the vLLM plugin")
    timeline.add_argument("log", type=Path, metavar="LOG.csv")
    timeline.add_argument("--out", type=Path, metavar="FILE", help="default: LOG.png")
    timeline.set_defaults(run=commands.draw_timeline)


def _add_outputs(parsers: Any) -> None:
    for kind, text in (("figure", "draw a figure"), ("table", "build a table")):
        output = parsers.add_parser(kind, help=f"{text} from results/")
        output.add_argument(
            "name",
            help=f"such as {'fig04_latency_vs_burst' if kind == 'figure' else 'table09_primary'}",
        )
        _add_measured(output)
        output.set_defaults(run=commands.build_output, kind=kind)
    claims = parsers.add_parser("claims", help="give a verdict on every claim of the paper")
    _add_measured(claims)
    claims.set_defaults(run=commands.build_output, kind="claims", name="claims")
    report = parsers.add_parser("report", help="write report.html from figures/ and tables/")
    report.set_defaults(run=commands.build_output, kind="report", name="report")


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
        sys.exit(commands.EXIT_SIGNAL + signal.SIGINT)


if __name__ == "__main__":
    main()
