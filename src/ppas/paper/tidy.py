"""Our cells beside the paper's, one row per cell and source: the form of every table."""

import pandas as pd

KEYS = ["model", "hardware", "prompt_tokens", "output_tokens", "burst", "scheduler", "metric"]
COLUMNS = ["table", *KEYS, "published", "value", "std", "source"]
PUBLISHED = "published"
SOURCES = {
    "measured": "a real vLLM server on the named hardware",
    "simulated": "our discrete-event simulator, calibrated on published static rows only",
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


def burst_label(burst: float | str) -> str:
    """The paper's spelling of a burst rate: ``1.0``, not ``1``."""
    return burst if isinstance(burst, str) else str(float(burst))


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
