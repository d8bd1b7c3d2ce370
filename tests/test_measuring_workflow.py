"""The workflow with a server: what is measured becomes an input, and kills cost no finished run."""

import json
import os
import signal

import pandas as pd
import pytest

from tests.serving.fake_vllm import fake_python, starts

from .test_workflow import Checkout, wait_for

MEASURED = "results/measured/cpu/tiny"
TINY = """\
# @package _global_
defaults:
  - /scheduler@schedulers.mbt_256: mbt_256
  - /scheduler@schedulers.ppas_cpu: ppas_cpu
  - override /model: qwen2_tiny
  - override /hardware: cpu
  - override /workload: cpu_bursts
  - override /cost_model: qwen2_tiny_cpu
  - _self_

workload:
  phases: ["0.3:burst"]
  burst_rates: [20, 30]
seeds: [0, 1, 2]
engine: {max_num_seqs: 64, block_size: 128, async_scheduling: false, gpu_memory_utilization: 0.5}
"""


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "checkout").mkdir()
    made = Checkout(tmp_path / "checkout")
    for path in (made.path / "conf/experiment").glob("*.yaml"):
        path.unlink()
    made.experiment("tiny").write_text(TINY)
    made.fake = tmp_path / "fake"
    made.env |= {"TMPDIR": str(tmp_path)}  # where devices are locked
    made.vllm = ("--config", f"vllm_python={fake_python(made.fake)}", "backend=vllm")
    return made


def test_measured_results_are_inputs_from_then_on(checkout):
    output = checkout.run(*checkout.vllm)
    assert "ppas: to be measured on cpu: tiny" in output
    assert "ppas: session tiny ppas_cpu: 6 runs" in output
    assert len(starts(checkout.fake)) == 2  # one server for each scheduler
    files = sorted(path.name for path in (checkout.path / MEASURED).iterdir())
    assert files == ["mbt_256.json", "mbt_256.parquet", "ppas_cpu.json", "ppas_cpu.parquet"]
    for again in (checkout.vllm, ("--config", "backend=auto")):
        output = checkout.run(*again)
        assert "measured before on cpu: tiny" in output
        assert "Nothing to be done" in output
    assert len(starts(checkout.fake)) == 2

    checkout.run("--config", "backend=simulator")  # beside them, never mixed
    assert (checkout.path / "results/simulated/tiny/manifest.json").exists()


def test_the_workflow_survives_kills_of_all_its_processes(checkout):
    journal = checkout.path / "results/journal"
    for kept in (2, 5, 8):
        process = checkout.start(*checkout.vllm)
        wait_for(
            lambda n=kept, p=process: kept_runs(checkout, journal) >= n or p.poll() is not None
        )
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert kept_runs(checkout, journal) >= kept
    checkout.run(*checkout.vllm)
    for slug in ("mbt_256", "ppas_cpu"):
        frame = pd.read_parquet(checkout.path / MEASURED / f"{slug}.parquet")
        assert frame["run_id"].nunique() == 6
        assert not frame.duplicated(["run_id", "request_id"]).any()


def kept_runs(checkout, journal) -> int:
    published = 0
    for path in (checkout.path / MEASURED).glob("*.json"):
        published += len(json.loads(path.read_text())["runs"])
    return published + len(list(journal.glob("*/*/*/runs/*.json")))


def test_a_session_that_snakemake_left_behind_is_waited_for(checkout):
    """Only Snakemake is killed: its session goes on, and the next command finds all done."""
    process = checkout.start(*checkout.vllm)
    wait_for(lambda: starts(checkout.fake))
    os.kill(process.pid, signal.SIGKILL)
    checkout.run(*checkout.vllm)
    frame = pd.read_parquet(checkout.path / MEASURED / "ppas_cpu.parquet")
    assert frame["run_id"].nunique() == 6
    assert len(starts(checkout.fake)) == 2
    process.communicate()


def test_what_cannot_be_measured_is_refused_in_one_line(checkout):
    experiment = checkout.experiment("tiny")
    experiment.write_text(TINY.replace("/hardware: cpu", "/hardware: h200"))
    arguments = ("--config", "backend=vllm", "overrides=[cost_model=zero_shot]")
    output = checkout.run(*arguments, status=2)
    (line,) = [line for line in output.splitlines() if line.startswith("ppas: ")]
    assert line == (
        "ppas: workflow/config.yaml: backend: left out: this host cannot measure on h200"
    )


def test_a_session_that_fails_fails_the_workflow_and_keeps_its_runs(checkout):
    fake_python(checkout.fake, {"die": [20, 40]})
    output = checkout.run(*checkout.vllm, status=1)
    assert "ended during" in output and "restarting it once" in output
    assert 0 < kept_runs(checkout, checkout.path / "results/journal") < 12
    assert not list((checkout.path / MEASURED).glob("mbt_256.*"))
    fake_python(checkout.fake)
    checkout.run(*checkout.vllm)
