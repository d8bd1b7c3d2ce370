"""Figure 8: how much each fixed MBT costs at each output length, at low and at high load.

The paper gives neither its high rate nor its budgets: see ``conf/experiment`` for ours.
"""

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ppas.paper.figures import style
from ppas.paper.study import Study

EXPERIMENTS = ("rtx5090_landscape_nemotron_30b",)
METRIC = "e2e_mean_s"


def plot(study: Study) -> Figure:
    """Mean E2E above the best MBT of the column in percent, one panel per load."""
    cells = study.cells(*EXPERIMENTS)
    cells = cells[(cells["metric"] == METRIC) & (cells["source"] == cells["source"].iloc[0])]
    grids = {burst: excess_pct(rows) for burst, rows in cells.groupby("burst")}
    highest = max(grid.to_numpy().max() for grid in grids.values())
    figure, panels = plt.subplots(ncols=len(grids), sharey=True, figsize=style.MAPS)
    for axes, letter, (burst, grid) in zip(panels, "ab", grids.items(), strict=False):
        mesh = _heat_map(axes, grid, highest)
        axes.set_title(f"({letter}) {burst} requests/s, {cells['source'].iloc[0]}")
    panels[0].set_ylabel("MBT [tokens]")
    figure.colorbar(mesh, ax=panels, label="Mean E2E above the best MBT [%]")
    return figure


def excess_pct(cells: pd.DataFrame) -> pd.DataFrame:
    """MBT in tokens by output length in tokens: percent above the column's lowest mean."""
    tokens = cells["scheduler"].str.extract(r"(\d+)", expand=False).astype(int)
    grid = cells.assign(mbt=tokens).pivot(index="mbt", columns="output_tokens", values="value")
    return ((grid / grid.min() - 1) * 100).sort_index(ascending=False)


def _heat_map(axes: Axes, grid: pd.DataFrame, highest: float):
    mesh = axes.imshow(grid, cmap=style.HEAT_MAP, vmin=0, vmax=highest, aspect="auto")
    axes.set_xticks(range(grid.shape[1]), grid.columns)
    axes.set_yticks(range(grid.shape[0]), grid.index)
    axes.set_xlabel("Output length [tokens]")
    axes.tick_params(length=0)
    for row, values in enumerate(grid.to_numpy()):
        for column, value in enumerate(values):
            dark = value > style.HEAT_DARK * highest
            text = "best" if value == 0 else f"{value:.1f}"
            axes.text(column, row, text, color="white" if dark else style.INK, **style.NUMBER)
    return mesh
