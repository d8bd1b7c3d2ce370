"""Improvement rows under the names that Tables 1 to 4 and 8 have in ``data/published``."""

import re
from collections.abc import Callable

import pandas as pd

from ppas.metrics import improvement_pct
from ppas.paper.tidy import SETTING, select

METRICS = {
    "improvement_pct:e2e_mean": "e2e_mean_s",
    "improvement_pct:e2e_p95": "e2e_p95_s",
    "improvement_pct:ttft": "ttft_mean_s",
    "improvement_pct:tpot": "tpot_mean_s",
    "improvement_pct:makespan": "makespan_s",
}


def schedulers(pair: str) -> tuple[str, str]:
    """``P-PAS vs MBT2k`` -> policy ``P-PAS``, baseline ``MBT 2k``; a bare number is an MBT."""
    policy, _, baseline = pair.partition(" vs ")
    return policy, re.sub(r"^(MBT)?(?=\d)", "MBT ", baseline)


def burst_rates(label: str) -> list[float] | None:
    """Burst rates in requests/s that a row aggregates; None: every condition there is."""
    rates = [float(rate) for rate in re.findall(r"\d+\.\d+", label)]
    return rates or None


def improvement_rows(
    cells: pd.DataFrame, published: pd.DataFrame, improvement: Callable = improvement_pct
) -> pd.DataFrame:
    """Improvement in percent for every setting, scheduler pair and metric that is printed.

    The rows carry the published burst group, pair and metric names, so that the two sides join.

    Raises:
        ValueError: a printed row has no cells.
    """
    names = {METRICS[name]: name for name in pd.unique(published["metric"]) if name in METRICS}
    cells = cells[cells["metric"].isin(names)]
    made = []
    rows = published[published["metric"].isin(METRICS)]
    for keys in rows[[*SETTING, "burst", "scheduler"]].drop_duplicates().to_dict("records"):
        label, pair = keys.pop("burst"), keys.pop("scheduler")
        found = improvement(select(cells, **keys), *schedulers(pair), burst_rates(label))
        made.append(found.assign(burst=label, scheduler=pair, metric=found["metric"].map(names)))
    return pd.concat(made, ignore_index=True)
