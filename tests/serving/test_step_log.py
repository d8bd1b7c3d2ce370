"""The plugin's step log on vLLM's real scheduler: the simulator's own numbers, and step times."""

import csv
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings

from ppas import work
from ppas.policies import make_policy
from ppas.serving import budget
from ppas.serving.scheduler import PPASScheduler, PPASSyncScheduler
from ppas.simulator.cost_model import CostModel
from ppas.simulator.engine import REQUEST, EngineOptions, simulate
from ppas.simulator.step_times import step_durations

from .harness import make_request, make_scheduler
from .lockstep import BLOCK_SIZE, UNIT
from .replay import drive
from .test_lockstep import cases

# Of the virtual engine, so that no two kinds of step take equally long.
STEP_S, TOKEN_S = 1.0, 0.01
BY_TOKENS = CostModel(STEP_S, 0, STEP_S, TOKEN_S, 0, 0, 0, 0, 0, 0)


def simulated_work(case) -> np.ndarray:
    """work.COLUMNS of every step that the simulator takes; the time of a step is one second."""
    requests = np.zeros(len(case.requests), REQUEST)
    for row, shape in zip(requests, case.requests, strict=True):
        row["arrival"], row["prompt"], row["output"] = shape
    requests["first_token"] = requests["completed"] = -1
    options = EngineOptions(
        case.max_num_batched_tokens, case.max_num_seqs, case.kv_blocks, BLOCK_SIZE, 0,
        case.reserve_full_prompt, case.steps_in_flight,
    )  # fmt: skip
    given = dict(case.policy)
    policy = make_policy(given.pop("policy"), budget_limit=case.max_num_batched_tokens, **given)
    _, steps, _ = simulate(requests, policy, options, UNIT, True, False)
    return np.array([steps[name] for name in work.COLUMNS], float).T


def plugin_log(case, step_time) -> list[dict[str, str]]:
    """The rows that the plugin writes while vLLM's scheduler serves a case in virtual time."""
    with tempfile.TemporaryDirectory() as folder:
        plugin = make_scheduler(
            PPASScheduler if case.steps_in_flight == 2 else PPASSyncScheduler,
            max_num_batched_tokens=case.max_num_batched_tokens,
            max_num_seqs=case.max_num_seqs,
            num_blocks=case.kv_blocks + 1,
            async_scheduling=case.steps_in_flight == 2,
            scheduler_reserve_full_isl=case.reserve_full_prompt,
            additional_config={"ppas": case.policy | {"step_log": f"{folder}/steps.csv"}},
        )
        requests = [
            make_request(str(k), prompt, output, arrival)
            for k, (arrival, prompt, output) in enumerate(case.requests)
        ]
        clock = SimpleNamespace(now=0.0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(budget, "time", SimpleNamespace(monotonic=lambda: clock.now))
            plugin._ppas_started = 0.0
            drive(
                plugin, requests, in_flight=case.steps_in_flight, step_time=step_time,
                clock=lambda now: setattr(clock, "now", now),
            )  # fmt: skip
        plugin.shutdown()
        (path,) = Path(folder).glob("*.csv")
        with path.open() as file:
            return list(csv.DictReader(file))


@settings(max_examples=200)
@given(cases())
def test_logged_work_is_the_simulators(case):
    log = plugin_log(case, step_time=lambda tokens: 1.0)
    theirs = [[float(row[name]) for name in work.COLUMNS] for row in log]
    busy = np.array([row for row in theirs if row[0] > 0])
    np.testing.assert_array_equal(busy, simulated_work(case))


@settings(max_examples=200)
@given(cases())
def test_step_times_are_found_again_from_the_log(case):
    log = plugin_log(case, lambda tokens: STEP_S + TOKEN_S * sum(tokens.values()))
    tokens = np.array([float(row["scheduled_tokens"]) for row in log])
    times = np.array([float(row["time_s"]) for row in log])
    found = step_durations(times, tokens > 0, case.steps_in_flight)
    expected = np.where(tokens > 0, STEP_S + TOKEN_S * tokens, np.nan)
    np.testing.assert_allclose(found, expected, atol=5e-6)
