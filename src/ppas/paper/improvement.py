"""Improvement rows under the names that the paper's Tables 1 to 4 have in ``data/published``."""

import pandas as pd

from ppas.metrics import improvement_pct

METRICS = {
    "improvement_pct:e2e_mean": "e2e_mean_s",
    "improvement_pct:e2e_p95": "e2e_p95_s",
    "improvement_pct:ttft": "ttft_mean_s",
    "improvement_pct:tpot": "tpot_mean_s",
    "improvement_pct:makespan": "makespan_s",
}


def schedulers(pair: str) -> tuple[str, str]:
    """``P-PAS vs MBT2k`` -> policy ``P-PAS``, baseline ``MBT 2k``."""
    policy, _, baseline = pair.partition(" vs ")
    return policy, baseline.replace("MBT", "MBT ")


def improvement_rows(
    cells: pd.DataFrame, published: pd.DataFrame, bursts: list[float]
) -> pd.DataFrame:
    """Geometric-mean improvements in percent for every scheduler pair that ``published`` names.

    The rows carry the published burst group, pair and metric names, so that the two sides join.
    """
    names = {METRICS[name]: name for name in pd.unique(published["metric"])}
    cells = cells[cells["metric"].isin(names)]
    made = []
    for pair in pd.unique(published["scheduler"]):
        rows = improvement_pct(cells, *schedulers(pair), bursts)
        made.append(rows.assign(scheduler=pair, metric=rows["metric"].map(names)))
    return pd.concat(made, ignore_index=True).assign(burst=published["burst"].iloc[0])
