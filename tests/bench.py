"""Time and memory of the artifact on this machine: ``make bench``.

Each figure is of a whole process, interpreter start included. The limits are the artifact's own
promises; a figure above its limit is marked, and the command then exits with status 1.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
PARTS = ("Snakefile", "workflow", "profiles", "conf", "data", "environment.yml")
FIGURE = "figures/fig04_latency_vs_burst.pdf"


def main() -> None:
    """Run every measurement and print a table."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [*workflow_rows(Path(folder)), *simulator_rows()]
    print(f"{'':44}{'measured':>12}{'limit':>12}")
    missed = False
    for name, value, limit, unit, at_least in rows:
        wrong = value < limit if at_least else value > limit
        missed |= wrong
        sign = ">=" if at_least else "<="
        mark = "  missed" if wrong else ""
        print(f"{name:44}{value:>10,.1f} {unit:3}{sign:>4} {limit:>9,.0f} {unit}{mark}")
    sys.exit(missed)


def workflow_rows(checkout: Path):
    """The whole paper in a checkout of its own, first on one core, then on two."""
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy2
        copy(ROOT / part, checkout / part)
    env = os.environ | {"PPAS_ROOT": str(checkout), "NUMBA_CACHE_DIR": str(checkout / ".numba")}

    def timed(*targets: str, cores: int = 1) -> float:
        start = time.perf_counter()
        command = ["snakemake", *targets, "--cores", str(cores), "--quiet", "all"]
        done = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return time.perf_counter() - start

    yield "whole paper, one core, nothing cached", timed(), 150, "s", False
    profile(checkout)
    yield "again, nothing to do", timed(), 8, "s", False
    for path in checkout.glob(FIGURE.replace(".pdf", ".*")):
        path.unlink()
    yield "one figure from cached results", timed(FIGURE), 8, "s", False
    for folder in ("results", "figures", "tables", ".snakemake", ".numba"):
        shutil.rmtree(checkout / folder)
    yield "whole paper, two cores, nothing cached", timed(cores=2), 90, "s", False
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    yield "peak memory of any process", peak, 1000, "MB", False


def profile(checkout: Path) -> None:
    """Print where the time of a workflow went, by kind of job, and what starting Python took."""
    spans: dict[str, tuple[float, float]] = {}
    for path in (checkout / ".snakemake/metadata").rglob("*"):
        if path.is_file():
            job = json.loads(path.read_text())
            if job.get("starttime"):
                spans[job["rule"]] = (job["starttime"], job["endtime"])
    kinds: dict[str, list[float]] = {}
    for rule, (start, end) in spans.items():
        kinds.setdefault(rule.partition("_")[0], []).append(end - start)
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import ppas.results, ppas.paper.study"], check=True)
    start_up = time.perf_counter() - start
    print(f"where the time goes (start-up and imports of a job: {start_up:.1f} s)")
    for kind, seconds in sorted(kinds.items(), key=lambda item: -sum(item[1])):
        print(
            f"  {kind:10} {len(seconds):3} jobs {sum(seconds):7.1f} s, longest {max(seconds):.1f} s"
        )


WARM_START = """
import time
times = [time.perf_counter()]
from ppas.config import load
from ppas.runs import enumerate_runs
from ppas.simulator.runner import simulate_run
config = load(["experiment=rtx5090_primary", "scheduler=ppas", "seed=0", "burst_rate=0.4"])
run = enumerate_runs(config)[0]
times.append(time.perf_counter())
simulate_run(config, run)
times.append(time.perf_counter())
print(times[1] - times[0], times[2] - times[1])
"""


def simulator_rows():
    """Steps per second at MBT 512, and how soon a process with a warm cache has simulated."""
    from ppas.policies import make_policy
    from ppas.simulator.cost_model import CostModel
    from ppas.simulator.engine import REQUEST, EngineOptions, simulate
    from ppas.workload import make_trace, parse_phases

    trace = make_trace(parse_phases("10:0.2,10:1.4,10:0.2,10:1.4,10:0.2"), 0, [25000], [32])
    fresh = np.zeros(len(trace), REQUEST)
    fresh["arrival"], fresh["prompt"], fresh["output"] = trace.arrivals_s, 25000, 32
    fresh["first_token"] = fresh["completed"] = -1
    options = EngineOptions(512, 256, 40_000, 16, 0, True, 2)
    policy = make_policy("static", budget_limit=512)
    cost = CostModel(0.006, 4e-8, 0.014, 3e-5, 1.5e-9, 1e-7, 9e-8, 2e-7, 0.02, 0.03)
    rates = []
    for _ in range(5):
        steps, start = 0, time.perf_counter()
        while time.perf_counter() - start < 0.4:
            steps += simulate(fresh.copy(), policy, options, cost, False, False)[0]
        rates.append(steps / (time.perf_counter() - start) / 1e6)
    yield "simulator, million steps/s at MBT 512", float(np.median(rates)), 1, "M", True

    command = [sys.executable, "-c", WARM_START]
    for _ in range(2):  # the first fills the compiler's cache
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    imports, first = map(float, done.stdout.split())
    yield "warm process: imports and configuration", imports, 2, "s", False
    yield "warm process: first simulation after that", first, 1, "s", False


if __name__ == "__main__":
    main()
