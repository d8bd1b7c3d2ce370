"""Figure 5: two kernels of a decoder block, as published; only a profiler on a GPU can say this."""

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ppas.paper.figures import style
from ppas.paper.study import Study

EXPERIMENTS = ()
PANELS = {"flash_attention_ms": "(a) FlashAttention", "gate_up_ms": "(b) Fused gate-up"}


def plot(study: Study) -> Figure:
    """Execution time in milliseconds of eight 2k chunks and of one 16k chunk, one layer."""
    rows = study.published("fig05")
    figure, panels = plt.subplots(ncols=len(PANELS), sharey=True, figsize=style.SINGLE)
    for axes, (metric, title) in zip(panels, PANELS.items(), strict=True):
        times = rows[rows["metric"] == metric].set_index("scheduler")["value"]
        _bars(axes, times)
        axes.set_title(title)
    panels[0].set_ylabel("Kernel time per layer [ms]")
    figure.suptitle("published: the paper's profiler", **style.SMALL_TEXT)
    figure.set_layout_engine("constrained")
    return figure


def _bars(axes: Axes, times) -> None:
    looks = style.scheduler_look(list(times.index))
    colours = [looks[name]["color"] for name in times.index]
    bars = axes.bar(times.index, times, color=colours, **style.BAR)
    axes.bar_label(bars, fmt="%.2f ms", **style.SMALL_TEXT)
    axes.margins(x=style.BAR_MARGIN, y=style.BAR_MARGIN)
