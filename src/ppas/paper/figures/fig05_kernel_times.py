"""Figure 5: two kernels of a decoder block, as published; only a profiler on a GPU can say this.

Beside the paper's bars stand those of every GPU that `ppas profile` measured the same prompt on.
"""

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ppas.paper.figures import style
from ppas.paper.study import Study

EXPERIMENTS = ()
PROFILED = ("times",)
PANELS = {"flash_attention_ms": "(a) FlashAttention", "gate_up_ms": "(b) Fused gate-up"}
HATCHES = ["", "....", "xxxx", "++++"]  # of measured bars, one for each GPU; then again
GREY = "0.85"
SHARE = 0.8  # of a scheduler's place that its bars take


def plot(study: Study) -> Figure:
    """Execution time in milliseconds of eight 2k chunks and of one 16k chunk, one layer."""
    rows = study.published("fig05")
    figure, panels = plt.subplots(ncols=len(PANELS), sharey=True, figsize=style.SINGLE)
    measured = _measured(study, rows)
    for axes, (metric, title) in zip(panels, PANELS.items(), strict=True):
        times = rows[rows["metric"] == metric].set_index("scheduler")["value"]
        if measured:
            _bars_beside(axes, metric, list(times.index), [rows, *measured.values()])
        else:
            _bars(axes, times)
        axes.set_title(title)
    panels[0].set_ylabel("Kernel time per layer [ms]")
    if measured:
        names = [_name("published", rows), *measured]
        handles = [Patch(facecolor=GREY, label=n, **_look(k)) for k, n in enumerate(names)]
        figure.legend(handles=handles, loc="outside upper center", ncols=style.LEGEND_COLUMNS)
    else:
        figure.suptitle("published: the paper's profiler", **style.SMALL_TEXT)
    figure.set_layout_engine("constrained")
    return figure


def _measured(study: Study, published: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Profiles of the paper's model, prompt and budgets, by source and hardware."""
    (prompt,) = published["prompt_tokens"].unique()
    rows = study.profiles(list(PANELS), prompt)
    for key in ("model", "scheduler"):
        rows = rows[rows[key].isin(published[key])]
    return {_name("measured", group): group for _, group in rows.groupby("hardware")}


def _name(source: str, rows: pd.DataFrame) -> str:
    return f"{source}, {rows['hardware'].iloc[0]}"


def _bars(axes: Axes, times: pd.Series) -> None:
    looks = style.scheduler_look(list(times.index))
    colours = [looks[name]["color"] for name in times.index]
    bars = axes.bar(times.index, times, color=colours, **style.BAR)
    axes.bar_label(bars, fmt="%.2f ms", **style.SMALL_TEXT)
    axes.margins(x=style.BAR_MARGIN, y=style.BAR_MARGIN)


def _bars_beside(
    axes: Axes, metric: str, schedulers: list[str], groups: list[pd.DataFrame]
) -> None:
    """A bar per scheduler and group, the published one first."""
    looks = style.scheduler_look(schedulers)
    width = SHARE / len(groups)
    for k, rows in enumerate(groups):
        times = rows[rows["metric"] == metric].set_index("scheduler")["value"].reindex(schedulers)
        places = [place + (k - (len(groups) - 1) / 2) * width for place in range(len(schedulers))]
        colours = [looks[scheduler]["color"] for scheduler in schedulers]
        bars = axes.bar(places, times, width, color=colours, **_look(k))
        texts = ["" if pd.isna(time) else f"{time:.2f}" for time in times]
        axes.bar_label(bars, texts, **style.SMALL_TEXT)
    axes.set_xticks(range(len(schedulers)), schedulers)
    axes.margins(y=style.BAR_MARGIN)


def _look(group: int) -> dict:
    """Edge and hatch: the paper's bars are hatched as where they stand alone."""
    hatch = HATCHES[(group - 1) % len(HATCHES)] if group else style.BAR["hatch"]
    return {key: value for key, value in style.BAR.items() if key != "width"} | {"hatch": hatch}
