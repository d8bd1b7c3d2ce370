"""Table 16: the phases of the heterogeneous workloads (section 10.5)."""

import pandas as pd

from ppas.paper.study import Study
from ppas.paper.tables.render import Layout
from ppas.paper.tidy import beside, rows_of
from ppas.workload import parse_phases

EXPERIMENTS = ("rtx5090_heterogeneous_qwen3_8_27b", "rtx5090_heterogeneous_nemotron_30b")
TITLE = "Table 16: dynamic heterogeneous workload schedules"
LAYOUT = Layout(rows=("burst",), bold_lowest=False, burst="Burst duration")


def build(study: Study) -> pd.DataFrame:
    """Durations in seconds and rates in requests/s, as they were run."""
    made = [_configured(study.config(name)) for name in EXPERIMENTS]
    return beside(study.published(16), pd.concat(made, ignore_index=True))


def _configured(config: dict) -> pd.DataFrame:
    workload = config["workload"]
    low, high = min(workload["burst_rates"]), max(workload["burst_rates"])
    rows = []
    for text in workload["phases"]:
        before, burst, after = parse_phases(text, burst_rate=high)
        values = {
            "before_s": before[0],
            "before_rate": before[1],
            "burst_s": burst[0],
            "after_s": after[0],
            "after_rate": after[1],
            "burst_rate_low": low,
            "burst_rate_high": high,
        }
        rows += [(f"{burst[0]:g} s", None, metric, value) for metric, value in values.items()]
    return rows_of(config, "configured", rows)
