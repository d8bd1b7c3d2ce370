"""Calibration error: every published cell of the primary study against ours.

Cells that the cost model was fitted to are told apart from held-out ones, which calibration never
saw; only the latter say how well the simulator predicts.
"""

import pandas as pd
import yaml

from ppas.paper.study import Study
from ppas.paper.tables.render import LABELS, Layout, digits, markdown_grid
from ppas.paper.tidy import PUBLISHED, SOURCES, beside

EXPERIMENTS = ("rtx5090_primary", "rtx5090_primary_high_load")
COST_MODEL = "cost_model/qwen2_5_3b_rtx5090.yaml"
INPUTS = ("conf/cost_model/qwen2_5_3b_rtx5090.yaml",)
FORMATS = ("csv", "md")
TITLE = "Calibration: error of every published cell of the primary study"
FITTED, HELD_OUT = "fitted", "held out"
COLUMNS = [
    "row", "group", "table", "model", "hardware", "prompt_tokens", "output_tokens", "burst",
    "scheduler", "metric", "published", "value", "error_pct", "n", "source",
]  # fmt: skip


def build(study: Study) -> pd.DataFrame:
    """Signed relative errors in percent per cell, after their mean and worst absolute values.

    Rows ``mean`` and ``worst`` hold absolute errors over ``n`` cells of a group and metric; a
    held-out group is also given per scheduler. The row ``worst`` names its cell.
    """
    tables = [
        beside(study.published(number), study.cells(experiment))
        for number, experiment in zip((9, 10), EXPERIMENTS, strict=True)
    ]
    cells = pd.concat(tables, ignore_index=True).dropna(subset=["published", "value"])
    cells["error_pct"] = (cells["value"] / cells["published"] - 1) * 100
    cells["group"] = _groups(cells, study)
    summary = _summary(cells)
    return pd.concat([summary, cells.assign(row="cell")], ignore_index=True)[COLUMNS]


def to_markdown(table: pd.DataFrame, title: str, layout: Layout) -> str:
    """Summary first, then every cell."""
    del layout  # two grids of its own
    is_cell = table["row"] == "cell"
    note = f"Errors are (ours / {PUBLISHED} - 1) in percent; the summary's are absolute."
    sources = "; ".join(f"{name}: {SOURCES[name]}" for name in pd.unique(table["source"]))
    parts = [
        f"# {title}",
        note + f" Ours is {sources}. Cost model: `conf/{COST_MODEL}`.",
        "## Summary",
        markdown_grid(_summary_grid(table[~is_cell])),
        "## Cells",
        markdown_grid(_cell_grid(table[is_cell])),
    ]
    return "\n\n".join(parts) + "\n"


def _groups(cells: pd.DataFrame, study: Study) -> pd.Series:
    fit = yaml.safe_load((study.conf_dir / COST_MODEL).read_text(encoding="utf-8"))["fit"]
    used = {(str(part["table"]), name) for part in fit["cells"] for name in part["schedulers"]}
    keys = zip(cells["table"], cells["scheduler"], strict=True)
    return pd.Series([FITTED if key in used else HELD_OUT for key in keys], index=cells.index)


def _summary(cells: pd.DataFrame) -> pd.DataFrame:
    held_out = cells[cells["group"] == HELD_OUT]
    names = held_out["group"] + ": " + held_out["scheduler"]
    rows = pd.concat([cells, held_out.assign(group=names)], ignore_index=True)
    rows["error_pct"] = rows["error_pct"].abs()
    by = ["group", "metric", "source"]
    groups = rows.groupby(by, sort=False)["error_pct"]
    mean = groups.agg(error_pct="mean", n="count").reset_index().assign(row="mean")
    worst = rows.loc[groups.idxmax()].merge(mean[[*by, "n"]], on=by).assign(row="worst")
    ranks = {name: rank for rank, name in enumerate([FITTED, HELD_OUT, *sorted(names.unique())])}
    order = pd.concat([mean, worst], ignore_index=True)
    return order.sort_values("group", key=lambda group: group.map(ranks), kind="stable")


def _summary_grid(summary: pd.DataFrame) -> pd.DataFrame:
    by = ["group", "metric", "source"]
    mean = summary[summary["row"] == "mean"].set_index(by)
    worst = summary[summary["row"] == "worst"].set_index(by).loc[mean.index]
    return pd.DataFrame(
        {
            "Group": mean.index.get_level_values("group"),
            "Metric": mean.index.get_level_values("metric").map(LABELS),
            "Source": mean.index.get_level_values("source"),
            "Cells": mean["n"].astype(int).astype(str).to_numpy(),
            "Mean error [%]": mean["error_pct"].map("{:.1f}".format).to_numpy(),
            "Worst error [%]": worst["error_pct"].map("{:.1f}".format).to_numpy(),
            "Worst cell": (worst["scheduler"] + " at " + worst["burst"]).to_numpy(),
        }
    )


def _cell_grid(cells: pd.DataFrame) -> pd.DataFrame:
    decimals = cells["metric"].map(digits)
    shown = {
        name: [f"{v:.{d}f}" for v, d in zip(cells[key], decimals, strict=True)]
        for name, key in (("Published", "published"), ("Ours", "value"))
    }
    return pd.DataFrame(
        {
            "Table": cells["table"],
            "Burst": cells["burst"],
            "Scheduler": cells["scheduler"],
            "Metric": cells["metric"].map(LABELS),
            **shown,
            "Error [%]": cells["error_pct"].map("{:+.1f}".format),
            "Group": cells["group"],
            "Source": cells["source"],
        }
    )
