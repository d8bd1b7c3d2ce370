"""Figure 1(b): the latency-optimal MBT changes with load (two fixed MBTs of the primary study)."""

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from ppas.paper.figures import latency, style
from ppas.paper.study import Study

EXPERIMENTS = ("rtx5090_primary",)
TABLE = 9  # of the paper: it prints these cells
SCHEDULERS = ("MBT 2k", "MBT 16k")


def plot(study: Study) -> Figure:
    """Average E2E latency in seconds against the burst rate; a faint dot for each seed."""
    points = latency.average_latency(study.published(TABLE), study.cells(*EXPERIMENTS))
    points = points[points["scheduler"].isin(SCHEDULERS)]
    figure, axes = plt.subplots(figsize=style.SINGLE)
    runs = study.runs(*EXPERIMENTS)
    latency.draw_seeds(axes, runs[runs["scheduler"].isin(SCHEDULERS)])
    latency.draw(axes, points)
    axes.set(xlabel=latency.LABEL_X, ylabel=latency.LABEL_Y, ylim=(0, None))
    axes.set_xticks(sorted(points["burst"].unique()))
    axes.legend(handles=latency.handles(points), loc="upper left")
    return figure
