"""The simulated engine: vLLM's rules on schedules small enough to follow by hand."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppas.policies import make_policy
from ppas.simulator.cost_model import CostModel
from ppas.simulator.engine import REQUEST, EngineOptions, simulate

# One second per step, whatever it holds.
UNIT = CostModel(1, 0, 1, 0, 0, 0, 0, 0, 0, 0)
PLENTY = 10_000
ROOT = Path(__file__).parents[2]


class Served(NamedTuple):
    requests: np.ndarray
    steps: np.ndarray
    chunks: list[dict[int, int]]  # per step: request -> tokens


def serve(shapes, *, policy=None, mbt=100, seqs=256, blocks=PLENTY, flying=1, watermark=0,
          reserve=True, cost=UNIT):  # fmt: skip
    """Serve (arrival, prompt, output) requests; ``flying`` is 2 under async scheduling."""
    requests = np.zeros(len(shapes), REQUEST)
    for k, shape in enumerate(shapes):
        requests[k]["arrival"], requests[k]["prompt"], requests[k]["output"] = shape
    requests["first_token"] = requests["completed"] = -1
    options = EngineOptions(mbt, seqs, blocks, 16, watermark, reserve, flying)
    policy = policy or make_policy("static", budget_limit=mbt)
    count, steps, chunks = simulate(requests, policy, options, cost, True, True)
    per_step = [{} for _ in range(count)]
    for chunk in chunks:
        per_step[chunk["step"]][int(chunk["request"])] = int(chunk["tokens"])
    return Served(requests, steps, per_step)


def test_prefill_is_chunked_and_shares_the_budget_with_decodes():
    served = serve([(0, 250, 3), (0, 40, 2)])
    assert served.chunks == [
        {0: 100},
        {0: 100},
        {0: 50, 1: 40},  # the last chunk leaves room for the next request
        {0: 1, 1: 1},
        {0: 1},
    ]
    assert served.requests["first_token"].tolist() == [3, 3]
    assert served.requests["completed"].tolist() == [5, 4]


def test_async_scheduling_admits_arrivals_one_step_later():
    shapes = [(0, 300, 2), (0.5, 10, 1)]
    sync, lagged = serve(shapes, flying=1), serve(shapes, flying=2)
    # While step 1 runs (0 s to 1 s) step 2 is already planned, before the second request.
    assert sync.chunks == [{0: 100}, {0: 100}, {0: 100}, {0: 1, 1: 10}]
    assert lagged.chunks == sync.chunks
    assert lagged.requests["completed"].tolist() == sync.requests["completed"].tolist()
    shapes = [(0, 5, 4), (0.5, 10, 1)]
    assert serve(shapes, flying=1).chunks == [{0: 5}, {0: 1, 1: 10}, {0: 1}, {0: 1}]
    assert serve(shapes, flying=2).chunks == [{0: 5}, {0: 1}, {0: 1, 1: 10}, {0: 1}]


def test_max_num_seqs_limits_admission():
    served = serve([(0, 10, 3)] * 3, seqs=2)
    assert served.chunks[:3] == [{0: 10, 1: 10}, {0: 1, 1: 1}, {0: 1, 1: 1}]
    assert served.chunks[3] == {2: 10}


@pytest.mark.parametrize("reserve, together", [(True, False), (False, True)])
def test_full_prompt_reservation(reserve, together):
    # 20 blocks: the first request takes 10, the second needs 12 in all but 6 for a first chunk.
    served = serve([(0, 150, 4), (0, 190, 1)], mbt=250, blocks=20, reserve=reserve)
    assert (1 in served.chunks[0]) is together


def test_watermark_holds_back_admission_beside_others():
    shapes = [(0, 16, 8), (0, 16, 1)]
    assert 1 in serve(shapes, blocks=4).chunks[0]
    assert 1 not in serve(shapes, blocks=4, watermark=3).chunks[0]
    assert 0 in serve(shapes, blocks=4, watermark=4).chunks[0]  # alone, it is not applied


def test_newest_is_preempted_and_recomputed():
    # Both fit at first (2 + 2 of 4 blocks); when the first grows into a third, the second goes.
    served = serve([(0, 31, 4), (0, 31, 4)], blocks=4)
    assert served.requests["preemptions"].tolist() == [0, 1]
    # Step 0 prefills; steps 1 and 2 decode; the 33rd token needs a third block.
    assert served.chunks[:3] == [{0: 31, 1: 31}, {0: 1, 1: 1}, {0: 1}]
    resumed = next(k for k, step in enumerate(served.chunks) if k > 2 and 1 in step)
    assert served.chunks[resumed][1] == 31 + 2  # prompt and the two tokens it had
    assert served.steps["recomputed_tokens"].sum() == 32
    # While it waits it counts as a prefill.
    assert served.steps["prefills_waiting"][3] == 1
    assert (served.requests["completed"] > 0).all()


def test_lone_request_gets_the_whole_budget():
    policy = make_policy("ppas", budget_limit=16384, b_cap=2048)
    served = serve([(0, 25000, 32)], policy=policy, mbt=16384, flying=2)
    assert set(served.steps["budget"]) == {16384}
    assert served.chunks[0] == {0: 16384}


def test_cap_is_observed_under_pressure():
    policy = make_policy("ppas", budget_limit=400, b_cap=50, cap_scope="prefill")
    served = serve([(0, 100, 30), (2, 900, 4), (2, 900, 4)], policy=policy, mbt=400, flying=2)
    pressed = served.steps["budget"] < 400
    assert pressed.any()
    assert served.steps["prefill_tokens"][pressed].max() == 50


def test_request_that_can_never_fit_is_left_unserved():
    served = serve([(0, 200, 2), (0, 10, 2)], blocks=5)
    assert served.requests["completed"][0] == -1


def test_no_requests_no_steps():
    assert len(serve([]).steps) == 0


WARM = """
from tests.simulator.test_engine import serve
from ppas.simulator.engine import simulate
serve([(0, 5, 2)])
print(sum(simulate.stats.cache_hits.values()), sum(simulate.stats.cache_misses.values()))
"""


def test_warm_process_compiles_nothing():
    serve([(0, 5, 2)])
    command = [sys.executable, "-c", WARM]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["1", "0"]


workloads = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 300), st.integers(1, 12)), min_size=1, max_size=12
).map(sorted)


@settings(max_examples=300)
@given(
    shapes=workloads,
    mbt=st.integers(1, 200),
    seqs=st.integers(1, 8),
    blocks=st.integers(20, 40),
    flying=st.integers(1, 2),
    reserve=st.booleans(),
)
def test_every_request_is_served_within_the_limits(shapes, mbt, seqs, blocks, flying, reserve):
    served = serve(shapes, mbt=mbt, seqs=seqs, blocks=blocks, flying=flying, reserve=reserve)
    assert (served.requests["completed"] > served.requests["arrival"]).all()
    assert (served.requests["first_token"] <= served.requests["completed"]).all()
    assert (served.requests["generated"] == served.requests["output"]).all()
    assert served.steps["scheduled_tokens"].max() <= mbt
    assert max(map(len, served.chunks)) <= seqs
    # Every token that was not computed twice is a prompt token or a fed-back output token.
    needed = sum(prompt + output - 1 for _, prompt, output in shapes)
    done = served.steps["scheduled_tokens"].sum() - served.steps["recomputed_tokens"].sum()
    assert done == needed
