"""The `ppas` command: run one experiment by hand, and the steps that the workflow calls."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ppas.config import ConfigError, experiments, load

EXIT_BAD_INPUT = 2
OVERRIDES_HELP = "Hydra overrides, such as experiment=NAME scheduler=ppas seed=3"


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
    calibrate.add_argument(
        "--python", type=Path, default=Path(sys.executable), metavar="PATH",
        help="with --probes: the Python that has vLLM; default: this one",
    )  # fmt: skip
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
        output.set_defaults(run=build_output, kind=kind)
    claims = commands.add_parser("claims", help="give a verdict on every claim of the paper")
    claims.set_defaults(run=build_output, kind="claims", name="claims")
    report = commands.add_parser("report", help="write report.html from figures/ and tables/")
    report.set_defaults(run=build_output, kind="report", name="report")
    return parser


def run_by_hand(args: argparse.Namespace) -> None:
    """Simulate the runs that the overrides select and print one line per run."""
    import pandas as pd

    from ppas.metrics import run_metrics
    from ppas.results import records, write_frame
    from ppas.runs import enumerate_runs
    from ppas.simulator.runner import simulate_run

    config = load(args.overrides)
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
    if args.digest and args.digest != experiment_digest(config):
        raise ConfigError(
            f"conf/experiment/{config.experiment}.yaml: configuration changed since the workflow "
            "was planned; run the same command again"
        )
    new, kept = simulate(
        config,
        args.results or default_root(),
        lambda runs: tqdm(runs, desc=config.experiment, unit="run", disable=None),
    )
    print(f"{config.experiment}: {new} runs simulated, {kept} kept")


def calibrate_pair(args: argparse.Namespace) -> None:
    """Fit cost models to published rows, or one to measured probes; written to conf/cost_model."""
    if not args.probes:
        from ppas.simulator.calibration import calibrate

        for pair in args.given:
            print(calibrate(pair))
        return
    from tqdm import tqdm

    from ppas.config import CONF
    from ppas.serving.probing import calibrate_measured, pair_name

    config = load(args.given)
    out = args.out or CONF / "cost_model" / f"{pair_name(config)}.yaml"
    try:
        print(calibrate_measured(config, args.python, out, lambda probes: tqdm(probes, "probes")))
    except ValueError as error:
        raise ConfigError(f"calibrate --probes: {error}") from None


def build_output(args: argparse.Namespace) -> None:
    """Build one figure or table, the claims or the report from the results folder."""
    from ppas.config import ROOT
    from ppas.paper import outputs
    from ppas.paper.study import Study

    study = Study(ROOT / "results", ROOT / "data" / "published")
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
    """Run the command; bad input ends with one line and exit status 2."""
    args = build_parser().parse_args(argv)
    try:
        args.run(args)
    except ConfigError as error:
        print(f"ppas: {error}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)


if __name__ == "__main__":
    main()
