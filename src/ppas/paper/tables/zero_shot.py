"""Zero-shot cost models: how wrong they are on pairs that are calibrated, each left out in turn.

An uncalibrated (model, GPU) pair is simulated with its datasheet and the efficiencies of the
calibrated pairs. Here each calibrated pair is treated as if nobody had calibrated it: the factors
come from the other pairs, and what they predict is compared with the published static cells.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from ppas.paper.study import Study
from ppas.paper.tables.render import Layout, markdown_grid, short
from ppas.paper.tidy import SOURCES

# What the cost models were fitted to; listed so that a change to the simulator makes this again.
EXPERIMENTS = (
    "a100_qwen2_5_3b",
    "a100_smollm3_3b",
    "h100_qwen2_5_3b",
    "rtx5090_homogeneous_nemotron_30b",
    "rtx5090_homogeneous_qwen3_8_27b",
    "rtx5090_models_qwen2_5_0_5b",
    "rtx5090_models_smollm3_3b",
    "rtx5090_primary",
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
TITLE = "Zero-shot cost models: error on calibrated pairs, each left out in turn"
SOURCE = "uncalibrated"
NOTE = (
    "Mean absolute error in percent over the published static cells of a pair, whose own fit is "
    "left out; worst is of the Avg. E2E, and calibrated is that metric's error under the pair's "
    "own fit. Some fits started from another pair's: where the left-out pair is such an ancestor, "
    "a second row leaves its descendants out too, and that row is the fairer one."
)
OTHERS, UNRELATED = "all others", "others not fitted from it"
COLUMNS = [
    "model", "hardware", "factors", "pairs", "metric", "error_pct", "bias_pct", "worst_pct",
    "calibrated_pct", "n", "source",
]  # fmt: skip


def build(study: Study) -> pd.DataFrame:
    """Errors in percent per left-out pair, choice of other pairs and metric, over ``n`` cells.

    ``error_pct`` is the mean absolute error, ``bias_pct`` the signed mean, ``worst_pct`` the
    largest absolute one. The configuration is read from ``conf/``, not from results.
    """
    from ppas.simulator.zero_shot import calibrated_pairs

    del study  # the predictions are made here, from cost models alone
    pairs = calibrated_pairs()
    return pd.DataFrame([row for name in pairs for row in _rows(name, pairs)], columns=COLUMNS)


def _rows(name: str, pairs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    from ppas.simulator.calibration import METRICS, published_cells, relative_errors
    from ppas.simulator.zero_shot import independent_of, over_peak, times_peak

    config = pairs[name]
    cells = published_cells(config, config.cost_model.fit["cells"])
    own = config.cost_model.fit["errors"]["mean_abs_error_pct"]
    others = [other for other in pairs if other != name]
    unrelated = independent_of(name, pairs)
    for label, basis in {OTHERS: others, UNRELATED: unrelated}.items():
        if label == UNRELATED and basis == others:
            continue
        factors = over_peak(pairs[other] for other in basis)
        errors = 100 * relative_errors(cells, times_peak(config, factors))
        for k, metric in enumerate(METRICS):
            if np.isfinite(errors[:, k]).all():  # else the paper prints none
                yield {
                    "model": config.model.name,
                    "hardware": config.hardware.name,
                    "factors": label,
                    "pairs": len(basis),
                    "metric": metric,
                    "error_pct": np.abs(errors[:, k]).mean(),
                    "bias_pct": errors[:, k].mean(),
                    "worst_pct": np.abs(errors[:, k]).max(),
                    "calibrated_pct": own[metric],
                    "n": len(cells),
                    "source": SOURCE,
                }


def grid(table: pd.DataFrame) -> pd.DataFrame:
    """The table as texts, one row per left-out pair and choice of other pairs."""
    keys = ["model", "hardware", "factors", "pairs", "n", "source"]
    wide = table.pivot(index=keys, columns="metric", values="error_pct")
    wide = wide.reindex(pd.MultiIndex.from_frame(table[keys].drop_duplicates()))
    e2e = table[table["metric"] == "e2e_mean_s"].set_index(keys).loc[wide.index]
    names = wide.index.to_frame(index=False)
    shown = {
        "Left out": names["model"] + " " + names["hardware"],
        "Factors from": names["factors"] + " (" + names["pairs"].astype(str) + ")",
        "Source": names["source"],
        "Cells": names["n"].astype(str),
    }
    shown |= {f"{short(metric)} [%]": _percent(wide[metric]) for metric in table["metric"].unique()}
    shown["Worst [%]"] = _percent(e2e["worst_pct"])
    shown["Bias [%]"] = [f"{value:+.1f}" for value in e2e["bias_pct"]]
    shown["Calibrated [%]"] = _percent(e2e["calibrated_pct"])
    return pd.DataFrame(shown)


def _percent(values: pd.Series) -> list[str]:
    return ["" if pd.isna(value) else f"{value:.1f}" for value in values]


def to_markdown(table: pd.DataFrame, title: str, layout: Layout) -> str:
    """Note, grid and source."""
    del layout  # a grid of its own
    note = f"Ours is {SOURCE}: {SOURCES[SOURCE]}."
    return f"# {title}\n\n{NOTE}\n\n{markdown_grid(grid(table))}\n\n{note}\n"
