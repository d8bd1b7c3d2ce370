"""Our cells beside the paper's, one row per cell and source: the form of every table."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

SETTING = ["model", "hardware", "prompt_tokens", "output_tokens"]
KEYS = [*SETTING, "burst", "scheduler", "metric"]
SD = ":sd"  # ends the metric of a row that holds a standard deviation over seeds
COLUMNS = ["table", *KEYS, "published", "value", "std", "source"]
PUBLISHED = "published"
SOURCES = {
    "measured": "real vLLM on the named hardware",
    "simulated": "our discrete-event simulator, calibrated on published static rows only",
    "simulated-probes": "our discrete-event simulator, calibrated on steps measured there",
    "uncalibrated": "our discrete-event simulator on the datasheet and other pairs' efficiencies",
    "configured": "set in conf/, which decides what is run",
    PUBLISHED: "printed in the paper",
}


def beside(published: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Join the paper's table with our cells, in the paper's order.

    ``value`` and ``std`` are ours, ``published`` is the paper's number; units are the metric's.
    Rows that only one side has are kept, so that a new scheduler or burst rate shows up; only
    the metrics that the paper's table prints are.
    """
    ours = cells[cells["metric"].isin(published["metric"])]
    ours = ours.assign(burst=ours["burst"].map(burst_label))
    theirs = published[[*KEYS, "value"]].rename(columns={"value": "published"})
    columns = [*KEYS, "value", "std", "source"]
    both = ours.reindex(columns=columns).merge(theirs, on=KEYS, how="outer", validate="m:1")
    both = both.assign(table=published["table"].iloc[0])
    both["source"] = both["source"].fillna(PUBLISHED)
    return in_paper_order(both, published)[COLUMNS].reset_index(drop=True)


def unpublished(cells: pd.DataFrame) -> pd.DataFrame:
    """Our cells alone, in the form of a table that the paper does not have."""
    rows = cells.assign(table="", published=float("nan"), burst=cells["burst"].map(burst_label))
    return rows[COLUMNS].reset_index(drop=True)


def with_sd(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows, and one more for each that has a standard deviation: metric ``NAME:sd``."""
    spread = rows.dropna(subset=["std"])
    spread = spread.assign(metric=spread["metric"] + SD, value=spread["std"], std=None)
    return pd.concat([rows, spread.astype({"std": float})], ignore_index=True)


def rows_of(
    config: dict[str, Any], source: str, values: Iterable[tuple[str | None, str | None, str, float]]
) -> pd.DataFrame:
    """Tidy rows about the model and GPU of ``config`` from (burst, scheduler, metric, value)."""
    rows = pd.DataFrame(values, columns=["burst", "scheduler", "metric", "value"])
    setting = {"model": config["model"]["name"], "hardware": config["hardware"]["name"]}
    rows = rows.assign(**setting, prompt_tokens=pd.NA, output_tokens=pd.NA, source=source)
    return rows.astype({"value": float, "prompt_tokens": "Int64", "output_tokens": "Int64"})


def select(rows: pd.DataFrame, **wanted) -> pd.DataFrame:
    """Rows whose columns have the wanted values; a missing value equals a missing one."""
    for key, value in wanted.items():
        rows = rows[rows[key].isna() if pd.isna(value) else rows[key].eq(value).fillna(False)]
    return rows


def burst_label(burst: float | str | None) -> str | None:
    """The paper's spelling of a burst rate: ``1.0``, not ``1``; rows without one keep none."""
    if isinstance(burst, str) or pd.isna(burst):
        return burst
    return str(float(burst))


def in_paper_order(rows: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Sort as the paper's table is, rows it lacks last; burst rates by size."""
    ranks = {}
    for key in KEYS:
        known = list(pd.unique(published[key].dropna()))
        extra = sorted(set(rows[key].dropna()) - set(known))
        ranks[key] = rows[key].map({value: rank for rank, value in enumerate(known + extra)})
    rates = pd.to_numeric(rows["burst"], errors="coerce")
    if rates.notna().all():
        ranks["burst"] = rates
    ranks["source"] = rows["source"].map({source: rank for rank, source in enumerate(SOURCES)})
    return rows.loc[pd.DataFrame(ranks).sort_values(list(ranks), kind="stable").index]
