"""Probes: what they cover, and that a fit to their step times finds what made them."""

import numpy as np
import pandas as pd
import pytest

from ppas import work
from ppas.policies import make_policy
from ppas.simulator.cost_model import CostModel, step_time
from ppas.simulator.engine import REQUEST, EngineOptions, simulate
from ppas.simulator.probes import (
    DECODE,
    MIXED,
    PREFILL,
    REPEATS,
    Limits,
    Probe,
    cost_model,
    fit_client,
    fit_steps,
    kinds,
    predicted,
    probes,
    split_log,
)
from ppas.workload import Trace

LIMITS = Limits(b_max=8192, b_cap=1024, max_model_len=32768, max_num_seqs=64, kv_tokens=300_000)
ONE = CostModel(4e-3, 4e-8, 6e-3, 3e-5, 1.5e-9, 8e-7, 9e-8, 2e-7, 0.1, 0.03)
OTHER = CostModel(1e-3, 9e-8, 2e-3, 8e-6, 4e-10, 2e-7, 3e-7, 1e-7, 0.1, 0.03)
STEP_COEFFICIENTS = CostModel._fields[:8]
NOISE = 0.03  # relative standard deviation of a measured step
STALLED = 0.01  # of the steps take four times as long, as when a collector runs


def simulated_log(cost: CostModel, replayed: list[Probe]) -> pd.DataFrame:
    """The step log of an engine with that cost model under the two budgets."""
    policy = make_policy("ppas", budget_limit=LIMITS.b_max, b_cap=LIMITS.b_cap)
    blocks = LIMITS.kv_tokens // 16
    options = EngineOptions(LIMITS.b_max, LIMITS.max_num_seqs, blocks, 16, 0, True, 2)
    logs = []
    for probe in replayed:
        requests = np.zeros(len(probe.trace), REQUEST)
        requests["arrival"] = probe.trace.arrivals_s
        requests["prompt"] = probe.trace.prompt_tokens
        requests["output"] = probe.trace.output_tokens
        requests["first_token"] = requests["completed"] = -1
        logs.append(simulate(requests, policy, options, cost, True, False)[1])
    return pd.DataFrame(np.concatenate(logs))


def noisy(steps: pd.DataFrame) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    factor = rng.lognormal(0, NOISE, len(steps))
    factor[rng.random(len(steps)) < STALLED] *= 4
    return steps.assign(duration_s=steps["duration_s"] * factor)


@pytest.fixture(scope="module")
def steps() -> dict[CostModel, pd.DataFrame]:
    plan = probes(LIMITS)
    return {cost: split_log(simulated_log(cost, plan), plan) for cost in (ONE, OTHER)}


def relative(found: dict[str, float], true: CostModel) -> np.ndarray:
    return np.array([found[name] / getattr(true, name) for name in STEP_COEFFICIENTS]) - 1


@pytest.mark.parametrize("true, wrong", [(ONE, OTHER), (OTHER, ONE)])
def test_fit_recovers_the_coefficients_behind_noisy_step_times(steps, true, wrong):
    fit = fit_steps(noisy(steps[true]))
    assert np.abs(relative(fit.coefficients, true)).max() < 0.1
    # The check can fail: it tells the two engines apart by every single coefficient.
    assert np.abs(relative(fit.coefficients, wrong)).min() > 0.3


def test_fit_is_exact_without_noise(steps):
    fit = fit_steps(steps[ONE])
    assert np.abs(relative(fit.coefficients, ONE)).max() < 1e-3


def test_errors_are_told_by_kind_for_steps_that_no_fit_saw(steps):
    fit = fit_steps(noisy(steps[ONE]))
    for group in ("fitted", "held_out"):
        assert set(fit.errors[group]) == {DECODE, PREFILL, MIXED}
    for error in fit.errors["held_out"].values():
        assert error["steps"] >= 3
        assert 0 < error["mean_abs_error_pct"] < 5
    data = steps[ONE]
    spoilt = data["duration_s"] * np.where(data["held_out"], 1.5, 1.0)
    other = fit_steps(data.assign(duration_s=spoilt))
    assert np.abs(relative(other.coefficients, ONE)).max() < 1e-3  # held-out steps are not fitted
    for error in other.errors["held_out"].values():
        assert error["mean_abs_error_pct"] == pytest.approx(100 / 3, abs=0.5)


def test_times_that_the_model_does_not_explain_show_as_errors(steps):
    times = steps[ONE]["duration_s"] * (1 + steps[ONE].index % 3)  # one, two or three times as long
    errors = fit_steps(steps[ONE].assign(duration_s=times)).errors["held_out"]
    assert min(error["mean_abs_error_pct"] for error in errors.values()) > 20


def test_coefficients_are_never_negative(steps):
    data = steps[ONE]
    shrinking = data["duration_s"] - 3.9e-8 * data["decode_context"]
    fit = fit_steps(data.assign(duration_s=shrinking.clip(lower=1e-4)))
    assert min(fit.coefficients.values()) >= 0


def test_predictions_are_the_cost_models(steps):
    sample = steps[ONE].sample(200, random_state=0)
    expected = [step_time(ONE, work.Work(*row)) for row in sample[list(work.COLUMNS)].to_numpy()]
    np.testing.assert_allclose(predicted(sample, ONE._asdict()), expected)


def test_probes_cover_both_budgets_and_stay_within_the_limits(steps):
    plan = probes(LIMITS)
    assert len(plan) == REPEATS * len({probe.name for probe in plan})
    for probe in plan:
        assert sum(probe.trace.prompt_tokens) <= LIMITS.kv_tokens
        assert len(probe.trace) <= LIMITS.max_num_seqs
        shapes = zip(probe.trace.prompt_tokens, probe.trace.output_tokens, strict=True)
        assert max(map(sum, shapes)) <= LIMITS.max_model_len
    data = steps[ONE].assign(kind=kinds(steps[ONE]))
    assert {DECODE, PREFILL, MIXED} == set(data["kind"])
    mixed = data[data["kind"] == MIXED]
    assert mixed["scheduled_tokens"].isin([LIMITS.b_cap, LIMITS.b_max]).mean() > 0.5
    assert set(mixed["scheduled_tokens"]) >= {LIMITS.b_cap, LIMITS.b_max}
    assert data["reloaded"].max() > LIMITS.b_max
    seconds = data["duration_s"].sum()
    assert seconds < 180


def test_a_log_is_split_by_counting_tokens():
    short, long = (Probe(name, Trace((0.0,), (prompt,), (2,)), held) for name, prompt, held in
                   (("short", 100, False), ("long", 300, True)))  # fmt: skip
    log = pd.DataFrame({"scheduled_tokens": [100, 1, 0, 0, 200, 100, 1, 0]})
    rows = split_log(log, [short, long])
    assert rows["probe"].tolist() == [0, 0, 1, 1, 1]
    assert rows["held_out"].tolist() == [False] * 2 + [True] * 3
    for missing in (0, 4, 6):
        with pytest.raises(ValueError, match=r"(short|long): its steps do not add up to its"):
            split_log(log.drop(index=missing), [short, long])


def test_a_missing_kind_of_step_is_named(steps):
    data = steps[ONE]
    with pytest.raises(ValueError, match="no mixed steps to fit"):
        fit_steps(data[kinds(data) != MIXED])


def test_client_overheads_are_medians_of_lone_requests():
    lone = pd.DataFrame(
        {
            "ttft_s": [0.52, 0.53, 1.54, 9.0],
            "engine_s": [0.5, 0.5, 1.5, 1.5],
            "last_token_s": [1.0, 1.0, 2.0, 2.0],
            "completed_s": [1.001, 1.002, 2.003, 2.004],
        }
    )
    fit = fit_client(lone)
    assert fit.coefficients == {"client_submit": 0.035, "client_complete": 0.0025}
    assert fit.errors["client_submit"]["worst_error_ms"] == pytest.approx(7465)
    assert fit.errors["requests"] == 4
    steps_only = {name: 1.0 for name in STEP_COEFFICIENTS}
    made = cost_model(fit._replace(coefficients=steps_only), fit)
    assert made == CostModel(*[1.0] * 8, 0.035, 0.0025)
