"""Measured calibration from end to end, on a server whose engine is the simulator."""

import json
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from ppas import cli, config
from ppas.config import scheduler_policy
from ppas.policies import Decision, Snapshot
from ppas.serving import probing
from ppas.serving.step_log import StepLog
from ppas.simulator.cost_model import CostModel
from ppas.simulator.engine import REQUEST, EngineOptions, simulate
from ppas.work import COLUMNS, NO_WORK, Work

TRUE = CostModel(2e-3, 2e-8, 3e-3, 1.1e-5, 6e-10, 2e-7, 5e-8, 1e-7, 0.02, 0.004)
EXPERIMENT = ("experiment=rtx5090_primary", "hardware=h200", "cost_model=zero_shot")


class Engine:
    """Serves replays in virtual time and writes the plugin's step log."""

    url = "http://127.0.0.1:1"

    def __init__(self, scheduler, folder, in_flight=1, error=None):
        self.policy = scheduler_policy(scheduler)
        self.options = EngineOptions(
            scheduler.max_num_batched_tokens, 256, 10**5, 16, 0, True, in_flight
        )
        self.in_flight = in_flight
        self.log, self.clock, self.error = StepLog(folder / "steps.csv"), 0.0, error

    def get(self, path):
        assert path == "/version"
        return 200, json.dumps({"version": "0.33.0"})

    def replay(self, url, model, calls, timeout_s, first_token="tokens"):
        requests = np.zeros(len(calls), REQUEST)
        for row, call in zip(requests, calls, strict=True):
            row["arrival"] = call.arrival_s + TRUE.client_submit
            row["prompt"], row["output"] = len(call.prompt), call.output_tokens
        requests["first_token"] = requests["completed"] = -1
        steps = simulate(requests, self.policy, self.options, TRUE, True, False)[1]
        self.write(steps)
        return [
            SimpleNamespace(
                submitted_s=call.arrival_s,
                first_token_s=row["first_token"],
                last_token_s=row["completed"],
                completed_s=row["completed"] + TRUE.client_complete,
                error=self.error,
            )
            for call, row in zip(calls, requests, strict=True)
        ]

    def write(self, steps):
        """A row per step, and empty ones wherever the engine goes idle.

        With two steps in flight, a step is decided when the one before it starts.
        """
        starts, ends = steps["time_s"], steps["time_s"] + steps["duration_s"]
        previous = -1.0
        for k, step in enumerate(steps):
            follows = k > 0 and starts[k] < ends[k - 1] + 1e-9
            decided = previous if follows and self.in_flight == 2 else starts[k]
            self.add(decided, Work(*(step[name] for name in COLUMNS)))
            if k + 1 == len(steps) or starts[k + 1] > ends[k] + 1e-9:
                for now in (starts[k], ends[k])[-self.in_flight :]:
                    self.add(now, NO_WORK)
            previous = starts[k]
        self.clock += ends[-1] + 3.0
        self.log.flush()

    def add(self, now, work):
        self.log.add(Snapshot(self.clock + now, 0, 0, 0, 0, 0, 16384), Decision(16384, 1), work)


@pytest.fixture
def probe(monkeypatch, tmp_path):
    """Calibrates with the fake server; keyword arguments go to the engine."""
    monkeypatch.setattr(probing, "ROOT", tmp_path)

    def run(**options):
        @contextmanager
        def serve(config, scheduler, python, folder):
            engine = Engine(scheduler, folder, **options)
            monkeypatch.setattr(probing, "replay", engine.replay)
            yield engine

        out = tmp_path / "pair.yaml"
        loaded = config.load(EXPERIMENT)
        line = probing.calibrate_measured(loaded, sys.executable, out, serve=serve)
        return line, yaml.safe_load(out.read_text())

    return run


@pytest.mark.parametrize("in_flight", [1, 2])
def test_probes_of_a_server_give_its_cost_model(probe, in_flight):
    """Also where vLLM schedules otherwise than asked: the configuration is asynchronous."""
    line, file = probe(in_flight=in_flight)
    found = CostModel(**file["coefficients"])
    np.testing.assert_allclose(found, TRUE, rtol=0.02)
    assert (file["model"], file["hardware"]) == ("Qwen2.5-3B", "H200")
    assert file["source"] == "simulated-probes"
    fit = file["fit"]
    assert fit["source"] == "measured probes"
    assert fit["vllm"] == "0.33.0"
    assert fit["steps_in_flight"] == in_flight
    assert fit["budgets"] == [16384, 1024]
    assert set(fit["errors"]) == {"fitted", "held_out", "client"}
    assert fit["errors"]["held_out"]["mixed"]["mean_abs_error_pct"] < 1
    assert line.startswith("pair: mean error of held-out steps: decode ")


def test_a_failed_request_is_named(probe):
    with pytest.raises(ValueError, match=r"^prefill \d+: a request failed: no such model$"):
        probe(error="no such model")


def test_a_second_calibration_reads_its_own_log(probe):
    first, second = probe(), probe()
    assert first == second


def test_command_line_names_the_pairs_file(monkeypatch, capsys):
    asked = {}

    def measured(config, python, out, progress):
        asked.update(python=python, out=out)
        return "done"

    monkeypatch.setattr(probing, "calibrate_measured", measured)
    cli.main(["calibrate", "--probes", *EXPERIMENT, "--vllm-python", "/opt/vllm/bin/python"])
    assert capsys.readouterr().out == "done\n"
    assert asked["out"] == config.CONF / "cost_model" / "qwen2_5_3b_h200.yaml"
    assert str(asked["python"]) == "/opt/vllm/bin/python"


def test_errors_end_in_one_line(monkeypatch, capsys):
    def failing(*arguments):
        raise ValueError("prefill 128: a request failed: no such model")

    monkeypatch.setattr(probing, "calibrate_measured", failing)
    with pytest.raises(SystemExit) as error:
        cli.main(["calibrate", "--probes", *EXPERIMENT, "--vllm-python", "python"])
    assert error.value.code == 1
    assert capsys.readouterr().err == (
        "ppas: calibrate --probes: prefill 128: a request failed: no such model\n"
    )
