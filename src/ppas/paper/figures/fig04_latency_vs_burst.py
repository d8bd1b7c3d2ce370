"""Figure 4: P-PAS against every fixed MBT over the burst rates of the primary study."""

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ppas.paper.figures import latency, style
from ppas.paper.study import Study

EXPERIMENTS = ("rtx5090_primary",)
TABLE = 9  # of the paper: it prints these cells
LOW_LOAD_RATES = 2  # the inset shows the lowest burst rates


def plot(study: Study) -> Figure:
    """Average E2E latency in seconds against the burst rate; inset: low load."""
    points = latency.average_latency(study.published(TABLE), study.cells(*EXPERIMENTS))
    figure, axes = plt.subplots(figsize=style.TALL)
    latency.draw(axes, points)
    axes.set(xlabel=latency.LABEL_X, ylabel=latency.LABEL_Y, ylim=(0, None))
    axes.set_xticks(sorted(points["burst"].unique()))
    _inset(axes, points)
    style.legend_above(axes, latency.handles(points), columns=style.LEGEND_COLUMNS)
    return figure


def _inset(axes: Axes, points: pd.DataFrame) -> None:
    rates = sorted(points["burst"].unique())[:LOW_LOAD_RATES]
    inset = axes.inset_axes(style.INSET)
    latency.draw(inset, points[points["burst"].isin(rates)])
    inset.margins(style.INSET_MARGIN)
    inset.set_xticks(rates)
    inset.set_title("low load")
    for connector in axes.indicate_inset_zoom(inset).connectors:
        connector.set_visible(False)  # they would cross the inset's tick labels
