"""The same workload through vLLM's real scheduler and through the simulator, step by step."""

from typing import Any, NamedTuple

import numpy as np

from ppas.policies import make_policy
from ppas.simulator.cost_model import CostModel
from ppas.simulator.engine import REQUEST, EngineOptions, simulate

BLOCK_SIZE = 16
# One second per step, whatever it holds.
UNIT = CostModel(1, 0, 1, 0, 0, 0, 0, 0, 0, 0)
Steps = list[dict[int, int]]  # per step: request -> tokens


class Case(NamedTuple):
    """A workload and an engine; lengths in tokens, arrivals in seconds (= steps)."""

    requests: tuple[tuple[float, int, int], ...]  # (arrival, prompt, output), by arrival
    max_num_batched_tokens: int
    max_num_seqs: int
    kv_blocks: int  # that requests can hold; vLLM keeps one more
    steps_in_flight: int  # 2 asynchronous, 1 synchronous
    reserve_full_prompt: bool
    policy: dict[str, Any]  # options of the plugin


def simulated_steps(case: Case) -> Steps:
    """What the simulator schedules."""
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
    count, _, chunks = simulate(requests, policy, options, UNIT, False, True)
    steps: Steps = [{} for _ in range(count)]
    for chunk in chunks:
        steps[chunk["step"]][int(chunk["request"])] = int(chunk["tokens"])
    return steps
