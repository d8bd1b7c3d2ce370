"""The transcribed tables: complete, and consistent with one another and with the metrics."""

import pandas as pd
import pytest

from ppas.metrics import improvement_pct
from ppas.paper.improvement import METRICS, burst_rates, improvement_rows, schedulers

COUNTS = {1: 10, 2: 6, 3: 24, 4: 20, 5: 9, 6: 18, 7: 6, 8: 14, 9: 180, 10: 6, 11: 90, 12: 20,
          13: 60, 14: 45, 15: 48, 16: 42}  # fmt: skip
COLUMNS = "table,model,hardware,prompt_tokens,output_tokens,burst,scheduler,metric,value,std"
KEYS = ["model", "hardware", "burst", "scheduler"]


def rounding(metric: str) -> float:
    """Points that printed digits can cost; TPOT is printed with only two or three."""
    return 0.16 if metric.endswith("tpot") else 0.06


@pytest.mark.parametrize(("table", "count"), COUNTS.items())
def test_cells_of_each_table(study, table, count):
    rows = study.published(table)
    assert ",".join(rows.columns) == COLUMNS
    assert len(rows) == count
    assert rows["value"].notna().all()
    assert (rows["table"] == str(table)).all()
    assert not rows.duplicated(["model", "hardware", "burst", "scheduler", "metric"]).any()


def test_every_cell_is_there():
    assert sum(COUNTS.values()) == 550 + 6 + 42  # measurements, and the definitions of 7 and 16


@pytest.mark.parametrize("name", ["text", "fig05"])
def test_numbers_outside_tables_have_the_same_form(study, name):
    rows = study.published(name)
    assert ",".join(rows.columns) == COLUMNS
    assert rows["value"].notna().all()


@pytest.mark.parametrize("table", [9, 11, 12, 13])
def test_e2e_is_ttft_plus_31_tpot(study, table):
    rows = study.published(table).pivot(index=KEYS, columns="metric", values="value")
    gap = rows["ttft_mean_s"] + 31 * rows["tpot_mean_s"] - rows["e2e_mean_s"]
    assert gap.abs().max() <= 0.00215


def test_table_11_repeats_table_9(study):
    keys = [*KEYS, "metric"]
    both = study.published(11).merge(study.published(9), on=keys, suffixes=("", "_9"))
    assert len(both) == 2 * 3 * 5
    assert (both["value"] == both["value_9"]).all()


@pytest.mark.parametrize(
    ("table", "cells", "group", "rates"),
    [
        (1, 9, "0.4,0.6,0.8,1.0,1.2,1.4", [0.4, 0.6, 0.8, 1.0, 1.2, 1.4]),
        (2, 11, "1.0,4.0", [1.0, 4.0]),
        (2, 11, "0.4,1.0", [0.4, 1.0]),
        (3, 9, "prompt25k @0.8,1.2", [0.8, 1.2]),
        (3, 9, "output32 @0.8,1.2", [0.8, 1.2]),
        (4, 13, "A100 @0.4,1.0", [0.4, 1.0]),
    ],
)
def test_printed_improvements_follow_from_printed_cells(study, table, cells, group, rates):
    printed = study.published(table)
    printed = printed[printed["burst"] == group]
    assert burst_rates(group) == rates
    source = study.published(cells).astype({"burst": float})
    keys = ["model", "scheduler", "metric"]
    both = printed.merge(improvement_rows(source, printed), on=keys, suffixes=("", "_again"))
    assert len(both) == len(printed) > 0
    gap = (both["value"] - both["value_again"]).abs()
    assert (gap <= both["metric"].map(rounding)).all(), both[gap > both["metric"].map(rounding)]


def test_pair_and_metric_names(study):
    assert schedulers("P-PAS vs MBT16k") == ("P-PAS", "MBT 16k")
    assert schedulers("P-PAS+ vs 512") == ("P-PAS+", "MBT 512")
    assert schedulers("P-PAS+ vs P-PAS") == ("P-PAS+", "P-PAS")
    assert burst_rates("6 conditions") is None
    printed = pd.concat([study.published(table) for table in (1, 2, 3, 4)])
    assert set(printed["metric"]) <= set(METRICS)


def test_improvement_pct_reproduces_c8(study):
    cells = study.published(9).astype({"burst": float})
    made = improvement_pct(cells, "P-PAS", "MBT 2k").set_index("metric")["value"]
    assert made["e2e_mean_s"] == pytest.approx(8.50, abs=0.02)
