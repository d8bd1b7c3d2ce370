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
PERCENT = 100  # of a ratio


def plot(study: Study) -> Figure:
    """Mean E2E above the best MBT of the column in percent, one panel per load."""
    cells = study.cells(*EXPERIMENTS)
    cells = cells[(cells["metric"] == METRIC) & (cells["source"] == cells["source"].iloc[0])]
    grids = {burst: excess_pct(rows) for burst, rows in cells.groupby("burst")}
    highest = max(grid.to_numpy().max() for grid in grids.values())
    figure, panels = plt.subplots(ncols=len(grids), sharey=True, figsize=style.MAPS)
    for axes, letter, (burst, grid) in zip(panels, "ab", grids.items(), strict=False):
        _heat_map(axes, grid, highest)
        axes.set_title(f"({letter}) {burst} requests/s, {cells['source'].iloc[0]}")
    panels[0].set_ylabel("MBT [tokens]")
    label = "Mean E2E above the best MBT [%]"
    figure.colorbar(panels[0].collections[0], ax=panels, label=label)
    return figure


def excess_pct(cells: pd.DataFrame) -> pd.DataFrame:
    """MBT in tokens by output length in tokens: percent above the column's lowest mean."""
    tokens = cells["scheduler"].str.extract(r"(\d+)", expand=False).astype(int)
    grid = cells.assign(mbt=tokens).pivot(index="mbt", columns="output_tokens", values="value")
    return ((grid / grid.min() - 1) * PERCENT).sort_index(ascending=False)


def _heat_map(axes: Axes, grid: pd.DataFrame, highest: float) -> None:
    import seaborn as sns  # costs a second that the other figures need not pay

    texts = grid.map(lambda value: "best" if value == 0 else f"{value:.1f}")
    look = {"cmap": style.HEAT_MAP, "annot_kws": style.NUMBER, "cbar": False}
    sns.heatmap(grid, ax=axes, annot=texts, fmt="", vmin=0, vmax=highest, **look)
    axes.set(xlabel="Output length [tokens]", ylabel="")
    axes.tick_params(length=0, rotation=0)
