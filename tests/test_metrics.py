"""Metric definitions on hand-made records."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ppas import metrics

KEYS = {
    "experiment": "toy",
    "model": "M",
    "hardware": "H",
    "burst_rate": 1.0,
    "phases": "10:1.0",
    "source": "simulated",
}


def run(e2e, *, scheduler="MBT 2k", seed=0, prompt=100, output=11, ttft=0.5, **keys):
    """Records of one run: request i arrives at second i and takes ``e2e[i]`` seconds."""
    e2e = np.asarray(e2e, dtype=float)
    arrival = np.arange(len(e2e), dtype=float)
    outputs = np.broadcast_to(output, e2e.shape)
    tpot = np.where(outputs > 1, (e2e - ttft) / np.maximum(outputs - 1, 1), np.nan)
    rows = {**KEYS, **keys, "scheduler": scheduler, "seed": seed}
    return pd.DataFrame(
        {
            **rows,
            "run_id": f"{scheduler}-{rows['burst_rate']}-{seed}",
            "request_id": np.arange(len(e2e)),
            "arrival_s": arrival,
            "prompt_tokens": prompt,
            "output_tokens": outputs,
            "first_token_s": arrival + ttft,
            "completed_s": arrival + e2e,
            "ttft_s": ttft,
            "tpot_s": tpot,
            "e2e_s": e2e,
            "error": pd.Series([None] * len(e2e), dtype="string"),
        }
    )


def test_run_metrics_of_one_run():
    made = metrics.run_metrics(run([1, 2, 3, 4])).iloc[0]
    assert made["n_requests"] == made["n_tpot"] == 4
    assert made["e2e_mean_s"] == pytest.approx(2.5)
    assert made["ttft_mean_s"] == pytest.approx(0.5)
    assert made["tpot_mean_s"] == pytest.approx(0.2)
    assert made["makespan_s"] == pytest.approx(7.0)  # arrives at 3 s, takes 4 s; first at 0 s
    assert (made["prompt_tokens"], made["output_tokens"]) == (100, 11)


def test_p95_is_numpys_linear_percentile_per_run_and_then_the_mean_over_seeds():
    values = np.random.default_rng(0).exponential(size=(3, 13))
    records = pd.concat([run(row, seed=seed) for seed, row in enumerate(values)])
    made = metrics.run_metrics(records)
    expected = np.percentile(values, 95, axis=1)
    np.testing.assert_allclose(made["e2e_p95_s"], expected, rtol=1e-12)
    cells = metrics.cells(made).set_index("metric")
    assert cells.loc["e2e_p95_s", "value"] == pytest.approx(expected.mean())
    pooled = metrics.pooled_p95(records)
    assert pooled["value"].item() == pytest.approx(np.percentile(values, 95))
    assert pooled["n"].item() == values.size


def test_tpot_is_undefined_for_outputs_of_0_or_1_tokens():
    made = metrics.run_metrics(run([1, 1, 2.5], output=[0, 1, 11])).iloc[0]
    assert (made["n_requests"], made["n_tpot"]) == (3, 1)
    assert made["tpot_mean_s"] == pytest.approx(0.2)
    none = metrics.run_metrics(run([1, 1], output=1)).iloc[0]
    assert np.isnan(none["tpot_mean_s"])
    assert none["n_tpot"] == 0


def test_mixed_lengths_are_na_even_in_a_run_of_one_length():
    mixed = run([1, 1], prompt=[100, 200])
    short = run([1], prompt=[100], seed=1)
    made = metrics.run_metrics(pd.concat([mixed, short]))
    assert made["prompt_tokens"].isna().all()
    assert made["prompt_tokens"].dtype == made["output_tokens"].dtype == "Int64"
    assert len(metrics.cells(made)) == len(metrics.METRICS)


def test_cells_are_unweighted_means_with_sample_sd():
    records = pd.concat([run([1] * 10), run([3], seed=1), run([5], seed=2)])
    cell = metrics.cells(metrics.run_metrics(records)).set_index("metric").loc["e2e_mean_s"]
    assert cell["value"] == pytest.approx(3.0)
    assert cell["std"] == pytest.approx(2.0)
    assert cell["n"] == 3


def test_cells_keep_sources_apart():
    records = pd.concat([run([1]), run([2], source="measured")])
    cells = metrics.cells(metrics.run_metrics(records))
    assert list(cells.columns) == metrics.CELL_COLUMNS
    values = cells[cells["metric"] == "e2e_mean_s"].set_index("source")["value"]
    assert values.to_dict() == {"simulated": 1.0, "measured": 2.0}


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [("error", "timeout", "timeout"), ("completed_s", np.nan, "not completed")],
)
def test_a_failed_request_is_named_and_stops_everything(column, value, text):
    records = run([1, 2, 3])
    records.loc[1, column] = value
    for make in (metrics.run_metrics, metrics.pooled_p95):
        with pytest.raises(
            ValueError, match=rf"run MBT 2k-1\.0-0 \(MBT 2k, .*\), request 1: {text}"
        ):
            make(records)


def test_a_request_recorded_twice_is_refused():
    with pytest.raises(ValueError, match="request 2: recorded twice"):
        metrics.require_complete(pd.concat([run([1, 2, 3]), run([1, 2, 3]).tail(1)]).reset_index())


def test_schedulers_must_hold_the_same_requests_and_seeds():
    fast = pd.concat([run([1, 1], scheduler="P-PAS", seed=seed) for seed in (0, 1)])
    slow = pd.concat([run([2, 2], seed=seed) for seed in (0, 1)])
    metrics.require_paired(pd.concat([fast, slow]))
    with pytest.raises(ValueError, match=r"MBT 2k at burst rate 1\.0, seed 1 has 1 of 2 requests"):
        metrics.require_paired(pd.concat([fast, slow.iloc[:3]]))
    with pytest.raises(ValueError, match=r"MBT 2k at burst rate 1\.0 has 1 of 2 seeds"):
        metrics.require_paired(pd.concat([fast, slow.iloc[:2]]))


def test_matched_requests_need_strictly_lower_latency():
    ours, theirs = run([1, 2, 3], scheduler="P-PAS+"), run([2, 2, 2])
    matched = metrics.matched_requests(pd.concat([ours, theirs]), "P-PAS+", "MBT 2k")
    assert matched["wins"].tolist() == [True, False, False]  # the tie is a loss
    with pytest.raises(ValueError, match="1 requests have no match"):
        metrics.matched_requests(pd.concat([ours, theirs.head(2)]), "P-PAS+", "MBT 2k")
    with pytest.raises(ValueError, match="6 requests have no match"):
        metrics.matched_requests(pd.concat([ours, theirs.assign(prompt_tokens=99)]), "P-PAS+",
                                 "MBT 2k")  # fmt: skip


def test_paired_interval_is_students_t_over_seeds():
    ours, theirs = [1.0, 2.0, 4.0], [2.0, 4.0, 3.0]
    records = [run([value], scheduler="P-PAS", seed=seed) for seed, value in enumerate(ours)]
    records += [run([value], seed=seed) for seed, value in enumerate(theirs)]
    runs = metrics.run_metrics(pd.concat(records))
    made = metrics.paired_differences_pct(runs, [("P-PAS", "MBT 2k")]).iloc[0]
    test = stats.ttest_rel(ours, theirs).confidence_interval(metrics.CONFIDENCE)
    assert made["value"] == pytest.approx(np.mean(np.subtract(ours, theirs)) / 3 * 100)
    assert (made["low"], made["high"]) == pytest.approx((test.low / 3 * 100, test.high / 3 * 100))
    assert (made["scheduler"], made["than"], made["n"]) == ("P-PAS", "MBT 2k", 3)


def test_only_common_seeds_are_compared():
    records = [run([1.0], scheduler="P-PAS", seed=seed) for seed in (0, 1)]
    records += [run([2.0], seed=seed) for seed in (1, 2)]
    runs = metrics.run_metrics(pd.concat(records))
    made = metrics.paired_differences_pct(runs, [("P-PAS", "MBT 2k")]).iloc[0]
    assert (made["n"], made["value"]) == (1, pytest.approx(-50.0))


def two_rates():
    """P-PAS takes 1/2 of the baseline's time at one rate and 9/8 at the other."""
    times = {("P-PAS", 1.0): 1, ("MBT 2k", 1.0): 2, ("P-PAS", 2.0): 9, ("MBT 2k", 2.0): 8}
    records = [
        run([time], scheduler=name, burst_rate=rate, phases=f"10:{rate}", ttft=time / 4)
        for (name, rate), time in times.items()
    ]
    return metrics.cells(metrics.run_metrics(pd.concat(records)))


def test_geometric_and_arithmetic_improvements_differ():
    geometric = metrics.improvement_pct(two_rates(), "P-PAS", "MBT 2k")
    arithmetic = metrics.mean_ratio_improvement_pct(two_rates(), "P-PAS", "MBT 2k")
    assert geometric.set_index("metric")["value"]["e2e_mean_s"] == pytest.approx(25.0)
    assert arithmetic.set_index("metric")["value"]["e2e_mean_s"] == pytest.approx(18.75)


def test_improvement_over_chosen_rates():
    made = metrics.improvement_pct(two_rates(), "P-PAS", "MBT 2k", [1.0])
    assert made.set_index("metric")["value"]["e2e_mean_s"] == pytest.approx(50.0)


@pytest.mark.parametrize(("policy", "bursts"), [("P-PAS", [1.0, 3.0]), ("P-PAS+", None)])
def test_improvement_refuses_a_missing_pair(policy, bursts):
    with pytest.raises(ValueError, match="no pair"):
        metrics.improvement_pct(two_rates(), policy, "MBT 2k", bursts)
