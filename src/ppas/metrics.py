"""Latency metrics: request records -> runs -> cells -> improvements.

Definitions follow the paper's section 4.4. All times are in seconds; improvements in percent.
"""

import numpy as np
import pandas as pd

RUN_KEYS = [
    "experiment", "model", "hardware", "scheduler", "run_id", "seed", "burst_rate", "phases",
    "source",
]  # fmt: skip
CELL_KEYS = [
    "model", "hardware", "prompt_tokens", "output_tokens", "phases", "burst", "scheduler", "source",
]  # fmt: skip
METRICS = ["e2e_mean_s", "e2e_p95_s", "ttft_mean_s", "tpot_mean_s", "makespan_s"]
CELL_COLUMNS = [*CELL_KEYS[:-1], "metric", "value", "std", "n", "source"]
_SHAPE = ["prompt_tokens", "output_tokens"]
MATCH_KEYS = [
    "experiment", "model", "hardware", "source", "phases", "burst_rate", "seed", *_SHAPE,
    "request_id",
]  # fmt: skip
CONFIDENCE = 0.95


def require_complete(records: pd.DataFrame) -> None:
    """Refuse records that hold a failed or an unfinished request, so that no mean hides one.

    Raises:
        ValueError: one line naming the run, the request and the error.
    """
    failed = records["error"].notna()
    unfinished = records["completed_s"].isna() | records["e2e_s"].isna()
    twice = records.duplicated(["source", "run_id", "request_id"])
    bad = records[failed | unfinished | twice]
    if bad.empty:
        return
    first = bad.iloc[0]
    reason = "recorded twice" if twice[first.name] else "not completed"
    if failed[first.name]:
        reason = first["error"]
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    where = f"{first['scheduler']}, burst rate {first['burst_rate']}, seed {first['seed']}"
    raise ValueError(
        f"run {first['run_id']} ({where}), request {first['request_id']}: {reason}{more}"
    )


def require_paired(records: pd.DataFrame) -> None:
    """Refuse runs that lack a request, and conditions in which a scheduler lacks a seed.

    Schedulers are compared on the same traces (section 4.4), so within one condition each of them
    must hold the same requests for the same seeds.

    Raises:
        ValueError: one line naming what is missing.
    """
    condition = [k for k in RUN_KEYS if k not in ("run_id", "scheduler", "seed")] + _SHAPE
    runs = with_run_shapes(records).groupby([*condition, "scheduler", "seed"], dropna=False)
    requests = runs["request_id"].nunique().rename("have").reset_index()
    _refuse_fewer(requests, [*condition, "seed"], "requests")
    seeds = requests.groupby([*condition, "scheduler"], dropna=False)["seed"].nunique()
    _refuse_fewer(seeds.rename("have").reset_index(), condition, "seeds")


def _refuse_fewer(counts: pd.DataFrame, condition: list[str], what: str) -> None:
    want = counts.groupby(condition, dropna=False)["have"].transform("max")
    for row in counts[counts["have"] < want].head(1).itertuples():
        seed = f", seed {row.seed}" if "seed" in condition else ""
        raise ValueError(
            f"{row.source} {row.experiment}: {row.scheduler} at burst rate {row.burst_rate}{seed} "
            f"has {row.have} of {want[row.Index]} {what}"
        )


def run_metrics(records: pd.DataFrame) -> pd.DataFrame:
    """One row per run: means, P95 and makespan in seconds over its requests (section 4.4).

    P95 is numpy's linear percentile over the run's requests. TPOT averages the requests that have
    one (two or more output tokens); ``n_tpot`` counts them. Makespan runs from the first arrival
    to the last completion.

    Raises:
        ValueError: a request failed or did not complete.
    """
    require_complete(records)
    runs = with_run_shapes(records).groupby([*RUN_KEYS, *_SHAPE], dropna=False)
    made = runs.agg(
        n_requests=("e2e_s", "size"),
        n_tpot=("tpot_s", "count"),
        e2e_mean_s=("e2e_s", "mean"),
        ttft_mean_s=("ttft_s", "mean"),
        tpot_mean_s=("tpot_s", "mean"),
        first_s=("arrival_s", "min"),
        last_s=("completed_s", "max"),
    )
    made["e2e_p95_s"] = runs["e2e_s"].quantile(0.95, interpolation="linear")
    made["makespan_s"] = made["last_s"] - made["first_s"]
    return made.reset_index()[[*RUN_KEYS, *_SHAPE, "n_requests", "n_tpot", *METRICS]]


def pooled_p95(records: pd.DataFrame) -> pd.DataFrame:
    """P95 of E2E in seconds over the requests of all seeds together, one row per cell.

    A run of 11 to 18 requests has a P95 close to its maximum; pooling the seeds shows how much
    that matters. Columns: the keys of a cell, ``value`` and ``n`` (requests).
    """
    require_complete(records)
    shaped = with_run_shapes(records).rename(columns={"burst_rate": "burst"})
    pools = shaped.groupby(CELL_KEYS, dropna=False)["e2e_s"]
    return pools.agg(value=lambda s: s.quantile(0.95), n="size").reset_index()


def cells(runs: pd.DataFrame) -> pd.DataFrame:
    """Tidy cells: unweighted mean of run-level metrics over seeds, in seconds.

    ``std`` is the sample standard deviation (ddof=1) and ``n`` the number of seeds, as in
    Tables 9 to 15.
    """
    long = runs.rename(columns={"burst_rate": "burst"}).melt(
        id_vars=CELL_KEYS, value_vars=METRICS, var_name="metric"
    )
    groups = long.groupby([*CELL_KEYS, "metric"], dropna=False)["value"]
    made = groups.agg(value="mean", std="std", n="count").reset_index()
    return made[CELL_COLUMNS]


def improvement_pct(
    cells: pd.DataFrame, policy: str, baseline: str, bursts: list[float] | None = None
) -> pd.DataFrame:
    """Improvement in percent: (1 - geometric mean over burst rates of the cell ratios) * 100.

    This is Tables 1 to 4 (section 5.1). ``bursts`` names the burst rates; all by default.
    Positive values favour ``policy``.

    Raises:
        ValueError: a burst rate lacks the policy or the baseline.
    """
    return _improvement(_ratios(cells, policy, baseline, bursts), _geometric_mean)


def mean_ratio_improvement_pct(
    cells: pd.DataFrame, policy: str, baseline: str, bursts: list[float] | None = None
) -> pd.DataFrame:
    """Improvement in percent: (1 - arithmetic mean over conditions of the cell ratios) * 100.

    This is Table 8 (section 10.5), over conditions that differ in burst rate and phases.

    Raises:
        ValueError: a condition lacks the policy or the baseline.
    """
    return _improvement(_ratios(cells, policy, baseline, bursts), "mean")


def matched_requests(records: pd.DataFrame, first: str, second: str) -> pd.DataFrame:
    """Each request under two schedulers: ``e2e_s`` of both in seconds, and ``wins``.

    Requests are paired by experiment, phases, burst rate, seed, shape and request id, as in
    Figure 7 (section 10.5); ``first`` wins where it is strictly lower, so a tie is a loss.

    Raises:
        ValueError: one scheduler has a request that the other lacks.
    """
    keys = [*MATCH_KEYS, "arrival_s"]
    ours, theirs = (
        records.loc[records["scheduler"] == name, [*keys, "e2e_s"]] for name in (first, second)
    )
    pairs = ours.merge(theirs, on=keys, how="outer", suffixes=("", "_baseline"), indicator=True)
    alone = pairs["_merge"] != "both"
    if alone.any() or pairs.empty:
        raise ValueError(f"{first!r} and {second!r}: {int(alone.sum())} requests have no match")
    return pairs.drop(columns="_merge").assign(wins=pairs["e2e_s"] < pairs["e2e_s_baseline"])


def paired_differences_pct(
    runs: pd.DataFrame, pairs: list[tuple[str, str]], metric: str = "e2e_mean_s"
) -> pd.DataFrame:
    """Mean difference of two schedulers over the same traces, with its 95% interval.

    One difference per seed (``scheduler`` - ``than``, in seconds), Student's t over the seeds;
    ``value``, ``low`` and ``high`` are in percent of the second scheduler's mean, negative where
    the first is lower. One row per pair and cell, over the ``n`` seeds that both have.
    """
    keys = [key for key in CELL_KEYS if key != "scheduler"]
    table = runs.rename(columns={"burst_rate": "burst"})[[*keys, "scheduler", "seed", metric]]
    wanted = pd.DataFrame(pairs, columns=["scheduler", "than"]).rename_axis("pair").reset_index()
    both = wanted.merge(table, on="scheduler").merge(
        table.rename(columns={"scheduler": "than", metric: "baseline"}),
        on=[*keys, "than", "seed"],
    )
    both["difference"] = both[metric] - both["baseline"]
    groups = both.groupby(["pair", *keys], dropna=False)
    made = groups.agg(
        mean=("difference", "mean"), sd=("difference", "std"), n=("difference", "size"),
        baseline=("baseline", "mean"), scheduler=("scheduler", "first"), than=("than", "first"),
    ).reset_index()  # fmt: skip
    half = half_width(made["sd"], made["n"])
    for name, bound in (("value", 0), ("low", -half), ("high", half)):
        made[name] = (made["mean"] + bound) / made["baseline"] * 100
    return made[[*keys, "scheduler", "than", "value", "low", "high", "n"]]


def half_width(sd: pd.Series, n: pd.Series) -> pd.Series:
    """Half of the 95% interval of a mean of ``n`` values with sample standard deviation ``sd``."""
    from scipy.special import stdtrit

    return stdtrit(n - 1, 1 - (1 - CONFIDENCE) / 2) * sd / np.sqrt(n)


def with_run_shapes(records: pd.DataFrame) -> pd.DataFrame:
    """Replace token counts by those of the run: <NA> where the experiment mixes lengths."""
    runs = records.groupby(["source", "experiment", "run_id"])[_SHAPE]
    low, high = runs.transform("min"), runs.transform("max")
    # A short run of a mixed workload may hold one length by chance: ask the whole experiment.
    workload = [records[key] for key in ("source", "experiment", "model", "hardware")]
    mixed = (low != high).groupby(workload).transform("any")
    return records.assign(**low.astype("Int64").mask(mixed))


def _ratios(
    cells: pd.DataFrame, policy: str, baseline: str, bursts: list[float] | None
) -> pd.DataFrame:
    keys = [k for k in [*CELL_KEYS, "metric"] if k in cells and k != "scheduler"]
    chosen = cells if bursts is None else cells[cells["burst"].isin(bursts)]
    missing = set(bursts or []) - set(chosen["burst"])
    ours, theirs = (
        chosen.loc[chosen["scheduler"] == name, [*keys, "value"]] for name in (policy, baseline)
    )
    pairs = ours.merge(theirs, on=keys, how="outer", suffixes=("", "_baseline"), indicator=True)
    alone = pairs.loc[pairs["_merge"] != "both", "burst"]
    if missing or not alone.empty or pairs.empty:
        rates = sorted(missing | set(alone)) or "any burst rate"
        raise ValueError(f"no pair {policy!r} and {baseline!r} at burst {rates}")
    return pairs.assign(ratio=pairs["value"] / pairs["value_baseline"])


def _geometric_mean(ratios: pd.Series) -> float:
    return float(np.exp(np.log(ratios).mean()))


def _improvement(ratios: pd.DataFrame, mean) -> pd.DataFrame:
    keys = [k for k in ["model", "hardware", *_SHAPE, "metric", "source"] if k in ratios]
    means = ratios.groupby(keys, dropna=False)["ratio"].agg(mean)
    return ((1 - means) * 100).rename("value").reset_index()
