"""Calibration error: every published serving cell against ours, for every (model, GPU) pair.

Cells that a cost model was fitted to are told apart from held-out ones, which calibration never
saw; only the latter say how well the simulator predicts.
"""

from pathlib import Path

import pandas as pd
import yaml

from ppas.paper.study import Study
from ppas.paper.tables.render import Layout, digits, label, markdown_grid
from ppas.paper.tidy import SOURCES, beside

TABLES = {
    9: "rtx5090_primary",
    10: "rtx5090_primary_high_load",
    11: ("rtx5090_models_qwen2_5_0_5b", "rtx5090_models_smollm3_3b"),
    12: "h100_qwen2_5_3b",
    13: ("a100_qwen2_5_3b", "a100_smollm3_3b"),
    14: "rtx5090_homogeneous_qwen3_8_27b",
    15: "rtx5090_homogeneous_nemotron_30b",
}
EXPERIMENTS = (
    "rtx5090_primary",
    "rtx5090_primary_high_load",
    "rtx5090_models_qwen2_5_0_5b",
    "rtx5090_models_smollm3_3b",
    "h100_qwen2_5_3b",
    "a100_qwen2_5_3b",
    "a100_smollm3_3b",
    "rtx5090_homogeneous_qwen3_8_27b",
    "rtx5090_homogeneous_nemotron_30b",
)
INPUTS = (
    "conf/cost_model/nemotron_30b_rtx5090.yaml",
    "conf/cost_model/qwen2_5_0_5b_rtx5090.yaml",
    "conf/cost_model/qwen2_5_3b_a100.yaml",
    "conf/cost_model/qwen2_5_3b_h100.yaml",
    "conf/cost_model/qwen2_5_3b_rtx5090.yaml",
    "conf/cost_model/qwen3_8_27b_rtx5090.yaml",
    "conf/cost_model/smollm3_3b_a100.yaml",
    "conf/cost_model/smollm3_3b_rtx5090.yaml",
)
FORMATS = ("csv", "md")
TITLE = "Calibration: error of every published serving cell"
NOTE = "Errors are (ours / published - 1) in percent; these are absolute, over each group's cells."
FITTED, HELD_OUT = "fitted", "held out"
# Two overall rows: section 5's studies and section 10.4's, over all their pairs.
ALL_PAIRS = {
    "all pairs of Tables 9 to 13": (9, 10, 11, 12, 13),
    "all pairs of Tables 14 and 15": (14, 15),
}
COLUMNS = [
    "row", "group", "table", "model", "hardware", "prompt_tokens", "output_tokens", "burst",
    "scheduler", "metric", "published", "value", "error_pct", "n", "source",
]  # fmt: skip
PAIR = ["model", "hardware"]


def build(study: Study) -> pd.DataFrame:
    """Signed relative errors in percent per cell, after their mean and worst absolute values.

    Rows ``mean`` and ``worst`` hold absolute errors over ``n`` cells of a pair, group and metric;
    a held-out group is also given per scheduler. The row ``worst`` names its cell.
    """
    tables = [
        _beside_known(study, number, [names] if isinstance(names, str) else list(names))
        for number, names in TABLES.items()
    ]
    cells = pd.concat(tables, ignore_index=True).dropna(subset=["published", "value"])
    cells["error_pct"] = (cells["value"] / cells["published"] - 1) * 100
    cells["group"] = _groups(cells, study)
    summary = pd.concat([_summary(_overall(cells)), _summary(cells)], ignore_index=True)
    return pd.concat([summary, cells.assign(row="cell")], ignore_index=True)[COLUMNS]


def _beside_known(study: Study, number: int, names: list[str]) -> pd.DataFrame:
    """A table's cells of the models that its experiments run; Table 11 repeats some of Table 9."""
    cells = pd.concat([study.cells(name) for name in names], ignore_index=True)
    published = study.published(number)
    return beside(published[published["model"].isin(cells["model"])], cells)


def _overall(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells once more, as if the pairs of each part of the paper were one."""
    parts = {str(number): name for name, numbers in ALL_PAIRS.items() for number in numbers}
    return cells.assign(model=cells["table"].map(parts), hardware="")


def _groups(cells: pd.DataFrame, study: Study) -> pd.Series:
    used = set()
    for name in INPUTS:
        fit = _fit(study, name)
        pair = study.cells(fit["experiment"])[PAIR].iloc[0]
        for part in fit["cells"]:
            used |= {(*pair, str(part["table"]), scheduler) for scheduler in part["schedulers"]}
    keys = cells[[*PAIR, "table", "scheduler"]].itertuples(index=False, name=None)
    return pd.Series([FITTED if key in used else HELD_OUT for key in keys], index=cells.index)


def _fit(study: Study, name: str) -> dict:
    path = study.conf_dir / Path(name).relative_to("conf")
    return yaml.safe_load(path.read_text(encoding="utf-8"))["fit"]


def _summary(cells: pd.DataFrame) -> pd.DataFrame:
    held_out = cells[cells["group"] == HELD_OUT]
    names = held_out["group"] + ": " + held_out["scheduler"]
    rows = pd.concat([cells, held_out.assign(group=names)], ignore_index=True)
    rows["error_pct"] = rows["error_pct"].abs()
    by = [*PAIR, "group", "metric", "source"]
    groups = rows.groupby(by, sort=False)["error_pct"]
    mean = groups.agg(error_pct="mean", n="count").reset_index().assign(row="mean")
    worst = rows.loc[groups.idxmax()].merge(mean[[*by, "n"]], on=by).assign(row="worst")
    ranks = {name: rank for rank, name in enumerate([FITTED, HELD_OUT, *sorted(names.unique())])}
    order = pd.concat([mean, worst], ignore_index=True)
    order["rank"] = order["group"].map(ranks)
    order["place"] = order[PAIR].apply(tuple, axis=1).map(_places(cells))
    return order.sort_values(["place", "rank"], kind="stable")


def _places(cells: pd.DataFrame) -> dict[tuple[str, str], int]:
    """Pairs in the order in which the paper's tables bring them."""
    pairs = cells[PAIR].drop_duplicates().itertuples(index=False, name=None)
    return {pair: place for place, pair in enumerate(pairs)}


def to_markdown(table: pd.DataFrame, title: str, layout: Layout) -> str:
    """Summary first, then every cell."""
    del layout  # two grids of its own
    is_cell = table["row"] == "cell"
    sources = "; ".join(f"{name}: {SOURCES[name]}" for name in pd.unique(table["source"]))
    parts = [
        f"# {title}",
        f"Ours is {sources}. Cost models: `conf/cost_model/`.",
        "## Summary",
        NOTE,
        markdown_grid(grid(table)),
        "## Cells",
        markdown_grid(_cell_grid(table[is_cell])),
    ]
    return "\n\n".join(parts) + "\n"


def grid(table: pd.DataFrame) -> pd.DataFrame:
    """The summary as texts, one row per pair, group and metric."""
    by = [*PAIR, "group", "metric", "source"]
    mean = table[table["row"] == "mean"].set_index(by)
    worst = table[table["row"] == "worst"].set_index(by).loc[mean.index]
    keys = mean.index.to_frame(index=False)
    return pd.DataFrame(
        {
            "Pair": (keys["model"] + " " + keys["hardware"]).str.strip(),
            "Group": keys["group"],
            "Metric": keys["metric"].map(label),
            "Source": keys["source"],
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
            "Model": cells["model"],
            "Hardware": cells["hardware"],
            "Burst": cells["burst"],
            "Scheduler": cells["scheduler"],
            "Metric": cells["metric"].map(label),
            **shown,
            "Error [%]": cells["error_pct"].map("{:+.1f}".format),
            "Group": cells["group"],
            "Source": cells["source"],
        }
    )
