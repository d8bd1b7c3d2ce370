"""The simulator allocates tokens exactly as vLLM's own scheduler does, for every policy."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from ppas.serving.scheduler import PPASScheduler, PPASSyncScheduler

from .conftest import compared
from .harness import make_request, make_scheduler
from .lockstep import BLOCK_SIZE, Case, Steps, simulated_steps
from .replay import drive

EXAMPLES = 1_000
WANTED_STEPS = 200_000


def real_steps(case: Case, scheduler_class: type, additional_config: dict) -> Steps:
    """What vLLM schedules; empty steps left out."""
    scheduler = make_scheduler(
        scheduler_class,
        max_num_batched_tokens=case.max_num_batched_tokens,
        max_num_seqs=case.max_num_seqs,
        num_blocks=case.kv_blocks + 1,
        async_scheduling=case.steps_in_flight == 2,
        scheduler_reserve_full_isl=case.reserve_full_prompt,
        additional_config=additional_config,
    )
    requests = [
        make_request(str(k), prompt, output, arrival)
        for k, (arrival, prompt, output) in enumerate(case.requests)
    ]
    replay = drive(
        scheduler, requests, in_flight=case.steps_in_flight, step_time=lambda tokens: 1.0
    )
    return [step.tokens for step in replay.steps if step.tokens]


def plugin_steps(case: Case) -> Steps:
    plugin = PPASScheduler if case.steps_in_flight == 2 else PPASSyncScheduler
    return real_steps(case, plugin, {"ppas": case.policy})


def stock_steps(case: Case) -> Steps:
    stock = AsyncScheduler if case.steps_in_flight == 2 else Scheduler
    return real_steps(case, stock, {})


@st.composite
def policies(draw, limit: int):
    kind = draw(st.sampled_from(["static", "ppas", "ppas_plus"]))
    b_max = draw(st.integers(1, limit))
    if kind == "static":
        return {"policy": kind, "b_max": b_max}
    options = {
        "policy": kind,
        "b_max": b_max,
        "b_cap": draw(st.integers(1, b_max)),
        "n_th": draw(st.integers(1, 3)),
        "cap_scope": draw(st.sampled_from(["prefill", "global"])),
    }
    if kind == "ppas_plus":
        options |= {"n_d_large": draw(st.integers(1, 3)), "t_large": draw(st.integers(1, 600))}
    return options


@st.composite
def cases(draw):
    request = st.tuples(
        st.integers(0, 240).map(lambda quarter: quarter / 4),
        st.integers(1, 600),
        st.integers(1, 48),
    )
    requests = tuple(sorted(draw(st.lists(request, min_size=1, max_size=16)), key=lambda r: r[0]))
    seqs = draw(st.integers(1, 8))
    limit = draw(st.integers(seqs, 256))
    # From just enough for the largest request, where preemption is common, to plenty.
    least = max(-(-(prompt + output) // BLOCK_SIZE) for _, prompt, output in requests)
    blocks = least + draw(st.integers(0, 60))
    flying, reserve = draw(st.integers(1, 2)), draw(st.booleans())
    return Case(requests, limit, seqs, blocks, flying, reserve, draw(policies(limit)))


def check_equal(ours: Steps, theirs: Steps) -> None:
    compared["steps"] += len(theirs)
    if ours != theirs:
        first = next((k for k, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
                     min(len(ours), len(theirs)))  # fmt: skip
        compared["different"] += 1
        pytest.fail(f"differ from step {first}\nsimulator: {ours}\nvLLM:      {theirs}")


@settings(max_examples=EXAMPLES)
@given(cases())
def test_simulator_equals_vllm(case):
    check_equal(simulated_steps(case), plugin_steps(case))


def test_enough_steps_were_compared():
    """Long random workloads until the promised number of steps is reached."""
    import random

    rng = random.Random(0)
    kinds = ({"policy": "static"}, {"policy": "ppas", "b_cap": 24, "cap_scope": "prefill"},
             {"policy": "ppas", "b_cap": 40, "n_th": 1},
             {"policy": "ppas_plus", "b_cap": 32, "t_large": 700})  # fmt: skip
    while compared["steps"] < WANTED_STEPS:
        arrival, requests = 0.0, []
        for _ in range(200):
            arrival += rng.choice((0, 0.5, 3, 12, 30))
            requests.append((arrival, rng.randint(1, 1500), rng.randint(1, 80)))
        case = Case(
            tuple(requests), rng.choice((64, 128, 200)), rng.choice((4, 16)),
            rng.choice((110, 160, 400)), rng.choice((1, 2)), rng.random() < 0.5, rng.choice(kinds),
        )  # fmt: skip
        check_equal(simulated_steps(case), plugin_steps(case))
    assert compared["different"] == 0


@settings(max_examples=200)
@given(cases(), st.integers(1, 256))
def test_static_plugin_is_stock_vllm_with_that_budget(case, budget):
    budget = max(budget, case.max_num_seqs)
    case = case._replace(max_num_batched_tokens=budget, policy={"policy": "static"})
    assert plugin_steps(case) == stock_steps(case)


@settings(max_examples=200)
@given(cases())
def test_ppas_plus_whose_condition_never_fires_is_ppas(case):
    options = {"b_cap": min(32, case.max_num_batched_tokens)}
    plain = case._replace(policy={"policy": "ppas", **options})
    plus = case._replace(policy={"policy": "ppas_plus", "t_large": 10**9, **options})
    assert plugin_steps(plus) == plugin_steps(plain)
