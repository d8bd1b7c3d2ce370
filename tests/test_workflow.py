"""The workflow: nothing is done twice, nothing half done counts, bad input starts no job.

Each test drives the real Snakemake in a checkout of its own that holds two small experiments.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
PARTS = ("Snakefile", "workflow", "profiles", "conf", "data", "environment.yml")
RESULTS = "results/simulated"
SMALL = """\
# @package _global_
defaults:
  - /scheduler@schedulers.mbt_16k: mbt_16k
  - /scheduler@schedulers.ppas: ppas
  - override /model: qwen2_5_3b
  - override /hardware: rtx5090
  - override /workload: bursty
  - override /cost_model: qwen2_5_3b_rtx5090
  - _self_

workload:
  burst_rates: {rates}
seeds: [0, 1]
"""


class Checkout:
    """A copy of the repository in which a test may do as it likes."""

    def __init__(self, path: Path):
        self.path = path
        for part in PARTS:
            self.copy(part)
        for experiment in (path / "conf/experiment").glob("*.yaml"):
            experiment.unlink()
        for name, rates in (("first", "[0.4, 1.0]"), ("second", "[0.6]")):
            self.experiment(name).write_text(SMALL.format(rates=rates))
        self.env = os.environ | {"PPAS_ROOT": str(path)}

    def copy(self, part: str) -> None:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy2
        copy(ROOT / part, self.path / part)

    def with_code(self) -> "Checkout":
        """Give the checkout the package too, so that a test may edit it."""
        self.copy("src")
        del self.env["PPAS_ROOT"]
        return self

    def experiment(self, name: str) -> Path:
        return self.path / "conf/experiment" / f"{name}.yaml"

    def results(self, name: str) -> Path:
        return self.path / RESULTS / name

    def start(self, *arguments: str) -> subprocess.Popen:
        return subprocess.Popen(
            ["snakemake", "--cores", "1", *arguments],
            cwd=self.path,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, status: int = 0) -> str:
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=180)
        assert process.returncode == status, output
        return output

    def planned(self) -> set[str]:
        """Rules that a dry run would execute."""
        lines = self.run("--dry-run").splitlines()
        return {
            line.split()[1].rstrip(":")
            for line in lines
            if line.startswith(("rule ", "localrule "))
        }


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def test_nothing_changed_nothing_runs_and_edits_run_what_they_touch(checkout):
    checkout.with_code().run()
    assert "Nothing to be done" in checkout.run()

    # Touched files and edited comments simulate nothing.
    for path in [*checkout.path.glob("conf/**/*.yaml"), *checkout.path.glob("src/**/*.py")]:
        path.touch()
    engine = checkout.path / "src/ppas/simulator/engine.py"
    engine.write_text(engine.read_text() + "\n# A remark.\n")
    first = checkout.experiment("first")
    first.write_text(first.read_text() + "# Another remark.\n")
    assert not simulated(checkout.planned())

    # Neither do shuffled keys.
    lines = (checkout.path / "conf/model/qwen2_5_3b.yaml").read_text().splitlines()
    (checkout.path / "conf/model/qwen2_5_3b.yaml").write_text("\n".join(reversed(lines)) + "\n")
    assert not simulated(checkout.planned())

    # A burst rate adds its own runs to its own experiment.
    first.write_text(first.read_text().replace("[0.4, 1.0]", "[1.4, 0.4, 1.0]"))
    assert simulated(checkout.planned()) == {"simulate_first"}
    assert "first: 4 runs simulated, 8 kept" in checkout.run()

    # A changed value simulates that experiment's runs again, a change of code all runs.
    first.write_text(first.read_text() + "engine:\n  async_scheduling: false\n")
    assert simulated(checkout.planned()) == {"simulate_first"}
    assert "first: 12 runs simulated, 0 kept" in checkout.run()
    engine.write_text(engine.read_text() + "\nLATER = 1\n")
    assert simulated(checkout.planned()) == {"simulate_first", "simulate_second"}


def simulated(rules: set[str]) -> set[str]:
    return {rule for rule in rules if rule.startswith("simulate_")}


def test_killed_workflow_is_finished_by_the_same_command(checkout):
    process = checkout.start()
    wait_for(lambda: list(checkout.results("first").glob("*")) or process.poll() is not None)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    checkout.run()
    assert "Nothing to be done" in checkout.run()
    for name in ("first", "second"):
        # A temporary file may be left; it never carries a result's name.
        files = {path.name for path in checkout.results(name).glob("[!.]*")}
        assert files == {"mbt_16k.parquet", "ppas.parquet", "manifest.json"}
    expected = json.loads((checkout.results("first") / "manifest.json").read_text())["runs"]
    frames = [pd.read_parquet(path) for path in checkout.results("first").glob("*.parquet")]
    assert {run for frame in frames for run in frame["run_id"]} == set(expected)


def wait_for(condition, timeout: float = 120) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def test_half_written_result_is_not_taken_as_complete(checkout):
    checkout.run("simulate_first")
    whole = checkout.results("first") / "ppas.parquet"
    # What a kill between two files leaves: temporary files, and no manifest.
    whole.with_name(".ppas.parquet.abc").write_bytes(whole.read_bytes()[:1000])
    (checkout.results("first") / "manifest.json").unlink()
    assert simulated(checkout.planned()) >= {"simulate_first"}
    assert "first: 0 runs simulated, 8 kept" in checkout.run("simulate_first")


def test_two_workflows_at_once_do_not_collide(checkout):
    both = [checkout.start(), checkout.start()]
    outputs = [process.communicate(timeout=180)[0] for process in both]
    statuses = sorted(process.returncode for process in both)
    assert statuses in ([0, 0], [0, 2]), outputs
    if statuses == [0, 2]:
        assert any("another snakemake is at work here" in output for output in outputs)
    assert "Nothing to be done" in checkout.run()


def test_two_hand_runs_in_the_same_second_do_not_collide(checkout):
    command = ["ppas", "run", "experiment=second", "--save", "mine"]
    both = [
        subprocess.Popen(command, cwd=checkout.path, env=checkout.env, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=180)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0] == outputs[1]
    saved = list((checkout.path / "mine").iterdir())
    assert len(saved) == 4
    assert all(len(pd.read_parquet(path)) for path in saved)


@pytest.mark.parametrize(
    "arguments, problem",
    [
        (["--config", "backend=tpu"], "ppas: workflow/config.yaml: backend: 'tpu' is not one of"),
        (["--config", "burst_rates=[1]"], "'burst_rates' was unexpected"),
        (["--config", "experiments=['third']"], "no file third.yaml; available: first, second"),
        (["--config", "overrides=['hardware=tpu']"], "conf/hardware: hardware: no file tpu.yaml"),
        (["--config", "overrides=['seeds=[]']"], "command line: seeds: []; give at least one"),
    ],
)
def test_bad_input_ends_before_any_job_with_status_2(checkout, arguments, problem):
    output = checkout.run(*arguments, status=2)
    assert problem in output
    assert len([line for line in output.splitlines() if line.startswith("ppas: ")]) == 1
    assert "Traceback" not in output
    assert not checkout.results("first").exists()


def test_phases_pass_unharmed_from_snakemake_to_hydra(checkout):
    phases = "10:0.2,10:0.6,10:0.2"
    override = f'workload.phases=["{phases}"]'
    checkout.run("simulate_second", "--config", f"overrides={json.dumps([override])}")
    frame = pd.read_parquet(checkout.results("second") / "ppas.parquet")
    assert set(frame["phases"]) == {phases}
    assert set(frame["burst_rate"]) == {0.6}


def test_configuration_changed_after_planning_is_refused(checkout):
    command = ["ppas", "simulate", "--digest", "0" * 16, "experiment=first"]
    result = subprocess.run(
        command, cwd=checkout.path, env=checkout.env, capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert "configuration changed since the workflow was planned" in result.stderr
