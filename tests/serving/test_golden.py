"""Without vLLM: the simulator still schedules what each tested version was seen to schedule."""

import pytest

from ppas.serving.options import TESTED_VLLM

from .cases import GOLDEN, golden_cases, read_golden
from .lockstep import simulated_steps


@pytest.mark.parametrize("version", TESTED_VLLM)
def test_simulator_equals_recorded_steps(version):
    recorded = read_golden(GOLDEN / f"steps_vllm_{version}.json")
    simulated = [simulated_steps(case) for case in golden_cases()]
    assert sum(map(len, recorded)) > 1000
    assert simulated == recorded


def test_recorded_cases_preempt_and_press():
    cases = golden_cases()
    assert {case.steps_in_flight for case in cases} == {1, 2}
    # Recomputing after preemption shows as more tokens than the requests need.
    needed = [sum(p + o - 1 for _, p, o in case.requests) for case in cases]
    done = [sum(sum(step.values()) for step in simulated_steps(case)) for case in cases]
    assert sum(d > n for d, n in zip(done, needed, strict=True)) >= 3
