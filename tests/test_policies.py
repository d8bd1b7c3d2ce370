"""Policies: the paper's rules, the same compiled and interpreted, never above the limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

import ppas.simulator.engine  # noqa: F401  (registers the policies with numba)
from ppas import policies
from ppas.policies import CAP_SCOPES, KINDS, REASONS, Decision, Policy, Snapshot, make_policy

counts = st.integers(0, 300)
tokens = st.integers(1, 200_000)
snapshots = st.builds(
    Snapshot,
    now=st.floats(0, 1e6),
    prefills_running=counts,
    prefills_waiting=counts,
    decodes_running=counts,
    decode_tokens=counts,
    residual_prefill=st.integers(0, 10**7),
    budget_limit=tokens,
)
any_policy = st.builds(
    Policy,
    kind=st.sampled_from(sorted(KINDS.values())),
    b_max=tokens,
    b_cap=tokens,
    n_th=st.integers(1, 5),
    n_d_large=st.integers(1, 5),
    t_large=tokens,
    cap_scope=st.sampled_from(sorted(CAP_SCOPES.values())),
)


@njit
def compiled_decide(snapshot, policy):
    return policies.decide(snapshot, policy)


def pressed(prefills=(1, 1), decodes=1, residual=0, limit=16384):
    return Snapshot(0.0, *prefills, decodes, decodes, residual, limit)


@given(snapshots, any_policy)
def test_compiled_equals_interpreted(snapshot, policy):
    assert tuple(compiled_decide(snapshot, policy)) == policies.decide(snapshot, policy)


@given(snapshots, any_policy)
def test_budget_stays_within_the_limit(snapshot, policy):
    decision = policies.decide(snapshot, policy)
    assert 1 <= decision.total_budget <= snapshot.budget_limit
    assert 0 <= decision.reason < len(REASONS)


@given(snapshots, any_policy)
def test_every_kind_reaches_its_function(snapshot, policy):
    name = next(name for name, kind in KINDS.items() if kind == policy.kind)
    assert policies.decide(snapshot, policy) == getattr(policies, name)(snapshot, policy)


def test_static_is_vllm_with_that_budget():
    policy = make_policy("static", budget_limit=2048)
    assert policies.decide(pressed(limit=2048), policy) == Decision(2048, policies.FIXED)


def test_ppas_needs_prefills_and_decodes():
    policy = make_policy("ppas", budget_limit=16384, b_cap=2048)
    assert policies.decide(pressed(), policy) == Decision(2048, policies.COUNT)
    assert policies.decide(pressed(decodes=0), policy) == Decision(16384, policies.LOW)
    assert policies.decide(pressed(prefills=(1, 0)), policy) == Decision(16384, policies.LOW)
    assert policies.decide(pressed(prefills=(0, 2)), policy) == Decision(2048, policies.COUNT)


def test_prefill_scope_leaves_decodes_uncounted():
    policy = make_policy("ppas", budget_limit=16384, b_cap=2048, cap_scope="prefill")
    assert policies.decide(pressed(decodes=7), policy).total_budget == 2048 + 7


def test_n_th_1_caps_a_single_prefill():
    policy = make_policy("ppas", budget_limit=16384, b_cap=2048, n_th=1)
    assert policies.decide(pressed(prefills=(1, 0)), policy).reason == policies.COUNT


@pytest.mark.parametrize(
    "prefills, decodes, residual, reason",
    [
        ((1, 0), 2, 65536, policies.LARGE),
        ((1, 0), 1, 65536, policies.LOW),
        ((1, 0), 2, 65535, policies.LOW),
        ((0, 1), 2, 65536, policies.LOW),
        ((1, 1), 1, 65536, policies.COUNT),
    ],
)
def test_ppas_plus_adds_one_large_prefill(prefills, decodes, residual, reason):
    policy = make_policy("ppas_plus", budget_limit=16384, b_cap=1280, t_large=65536)
    assert policies.decide(pressed(prefills, decodes, residual), policy).reason == reason


@given(snapshots)
def test_ppas_plus_reduces_to_ppas_when_nothing_is_large(snapshot):
    options = {"budget_limit": 16384, "b_cap": 1280}
    plus = make_policy("ppas_plus", **options, t_large=10**9)
    assert policies.decide(snapshot, plus) == policies.decide(
        snapshot, make_policy("ppas", **options)
    )


@pytest.mark.parametrize(
    "kind, options, problem",
    [
        ("sarathi", {}, "kind: unknown policy 'sarathi'; choose from static, ppas, ppas_plus"),
        ("ppas", {}, "b_cap: policy 'ppas' needs it"),
        ("ppas", {"b_cap": 0}, "b_cap: 0 is not a positive whole number"),
        ("ppas", {"b_cap": -1}, "b_cap: -1 is not"),
        ("ppas", {"b_cap": 2.5}, "b_cap: 2.5 is not"),
        ("ppas", {"b_cap": True}, "b_cap: True is not"),
        ("ppas", {"b_cap": 20000}, "b_cap: 20000 is above b_max"),
        (
            "ppas",
            {"b_cap": 1, "cap_scope": "all"},
            "cap_scope: 'all' is not one of prefill, global",
        ),
        ("ppas", {"b_cap": 1, "t_large": 5}, "t_large: not an option of policy 'ppas'"),
        ("ppas_plus", {"b_cap": 1}, "t_large: policy 'ppas_plus' needs it"),
    ],
)
def test_wrong_options_are_named(kind, options, problem):
    with pytest.raises(ValueError, match=problem):
        make_policy(kind, budget_limit=16384, **options)
