"""CPU demonstration: two budgets and P-PAS, measured on a real vLLM server without a GPU.

Not a figure of the paper: a small made-up model on a processor shows whether the same crossing
appears there. A faint dot is one seed.
"""

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ppas.paper.figures import latency, style
from ppas.paper.study import Study

EXPERIMENTS = ("cpu_demo",)
PANELS = {
    "e2e_mean_s": "Average E2E latency [s]",
    "ttft_mean_s": "Average TTFT [s]",
    "tpot_mean_s": "Average TPOT [s/token]",
}


def plot(study: Study) -> Figure:
    """Three latencies in seconds against the burst rate."""
    cells, runs = study.cells(*EXPERIMENTS), study.runs(*EXPERIMENTS)
    figure, panels = plt.subplots(ncols=len(PANELS), figsize=style.MAPS)
    for axes, (metric, title) in zip(panels, PANELS.items(), strict=True):
        points = cells[cells["metric"] == metric]
        latency.draw_seeds(axes, runs, metric)
        latency.draw(axes, points)
        _finish(axes, points, title)
    figure.legend(
        handles=latency.handles(cells), loc="outside upper center", ncols=style.LEGEND_COLUMNS
    )
    figure.set_layout_engine("constrained")
    return figure


def _finish(axes: Axes, points, title: str) -> None:
    axes.set(xlabel=latency.LABEL_X, title=title, ylim=(0, None))
    axes.set_xticks(sorted(points["burst"].unique()))
