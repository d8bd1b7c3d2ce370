"""The look of every figure: sizes, colours per scheduler, marks per source, reproducible files."""

from contextlib import AbstractContextManager
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ppas.paper.tidy import PUBLISHED, SOURCES

COLUMN_IN = 3.4  # width of a column of the paper, inches
TEXT_IN = 7.0  # width of its text, inches
SINGLE = (COLUMN_IN, 2.1)
TALL = (COLUMN_IN, 2.6)
STRIP = (TEXT_IN, 1.3)
WALLS = (COLUMN_IN, 2.75)
MAPS = (TEXT_IN, 2.3)
INSET = (0.1, 0.55, 0.36, 0.36)  # left, bottom, width, height in axes units
INSET_MARGIN = 0.15
BROKEN_HEIGHTS = (3, 3, 1)  # upper and lower part of a broken axis, then the arrivals
TIMELINE_HEIGHTS = (2, 1)
DPI = 300
INK = "0.15"
RC = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "lines.solid_capstyle": "round",
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same glyphs on every machine
    "font.size": 7,
    "axes.labelsize": 7,
    "axes.titlesize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 2.6,
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "pdf.fonttype": 42,
    "svg.hashsalt": "ppas",
}
# Seaborn's "colorblind" palette.
_COLOURS = [
    "#0173B2", "#DE8F05", "#029E73", "#D55E00", "#CC78BC",
    "#CA9161", "#FBAFE4", "#949494", "#ECE133", "#56B4E9",
]  # fmt: skip
_MARKERS = ["o", "s", "^", "D", "v", "P", "X", "<", ">", "*"]
# P-PAS in vermilion everywhere; fixed MBTs in cooler colours.
SCHEDULER_COLOURS = {
    "MBT 1k": _COLOURS[7],
    "MBT 2k": _COLOURS[0],
    "MBT 4k": _COLOURS[9],
    "MBT 8k": _COLOURS[4],
    "MBT 16k": _COLOURS[2],
    "P-PAS": _COLOURS[3],
    "P-PAS+": _COLOURS[5],
    # The CPU demonstration's small and large budget, in the colours of the paper's.
    "MBT 256": _COLOURS[0],
    "MBT 2048": _COLOURS[2],
}
_SPARE_COLOURS = [_COLOURS[1], _COLOURS[8], _COLOURS[6]]
SOURCE_LINES = {
    "simulated": "-",
    "simulated-probes": "-",
    "uncalibrated": ":",
    "measured": "--",
    PUBLISHED: "none",
}
GUIDE = {"color": "0.35", "linestyle": "--", "linewidth": 0.8}
SHADE = {"color": _COLOURS[3], "alpha": 0.15, "linewidth": 0}
RATE = {"color": _COLOURS[0], "linewidth": 1.2}
TICK = {"linewidths": 0.6, "colors": "0.25"}
TICK_KEY = {
    "color": "0.25",
    "linestyle": "none",
    "marker": "|",
    "markersize": 6,
    "markeredgewidth": 0.6,
}
PREFILLS = {"color": _COLOURS[0], "label": r"prefills $N_p$"}
DECODES = {"color": _COLOURS[1], "label": r"decodes $N_d$"}
BUDGET = {"color": INK}
TITLE_PAD = 16  # points, over a legend of one row
LEGEND_COLUMNS = 4
SEEDS = {"marker": ".", "markersize": 2.2, "alpha": 0.35, "linestyle": "none", "zorder": 1}
BAR = {"width": 0.55, "edgecolor": INK, "linewidth": 0.5, "hatch": "////"}  # hatched: published
BAR_MARGIN = 0.25
BUDGET_BAR = (0.8, 0.14, 0.34)  # of a place: width, height, distance from its middle
BOX = {"boxstyle": "round,pad=0.5", "facecolor": "0.96", "edgecolor": INK, "linewidth": 0.7}
CHOICE = BOX | {"facecolor": _COLOURS[1] + "33"}
ARROW = {"arrowstyle": "-|>", "color": INK, "linewidth": 0.8, "shrinkA": 1, "shrinkB": 1}
ABOVE_TEXT = 4  # the layer over boxes
SMALL_BUDGET = {"facecolor": _COLOURS[3], "edgecolor": "none"}
LARGE_BUDGET = {"facecolor": _COLOURS[0], "edgecolor": "none"}
PREFILL_STEP = {"facecolor": _COLOURS[0], "edgecolor": "white", "linewidth": 0.6}
DECODE_STEP = {"facecolor": _COLOURS[7], "edgecolor": "white", "linewidth": 0.3}
TOKEN = {"color": _COLOURS[1], "marker": "v", "markersize": 3.2, "linestyle": "none"}
FASTER, NOT_FASTER = _COLOURS[2], "0.75"
WALL = {"edgecolors": "white", "linewidth": 0.3}
HEAT_MAP = "YlOrBr"
NUMBER = {"fontsize": 5.8}
SMALL_TEXT = {"fontsize": 6}
STEP = {"drawstyle": "steps-post", "linewidth": 0.8}


def theme() -> AbstractContextManager:
    """Context in which figures are drawn and saved."""
    return mpl.rc_context(RC)


def scheduler_look(schedulers: list[str]) -> dict[str, dict]:
    """Colour, marker and layer of each scheduler, in the given order; unknown ones get spares."""
    known = list(SCHEDULER_COLOURS)
    new = [name for name in schedulers if name not in SCHEDULER_COLOURS]
    looks = {}
    for name in schedulers:
        spare = _SPARE_COLOURS[new.index(name) % len(_SPARE_COLOURS)] if name in new else None
        place = known.index(name) if name in known else len(known) + new.index(name)
        looks[name] = {
            "color": SCHEDULER_COLOURS.get(name, spare),
            "marker": _MARKERS[place % len(_MARKERS)],
            "zorder": 3 if name.startswith("P-PAS") else 2,
        }
    return looks


def source_look(source: str) -> dict:
    """Line and filling of a source: the paper's numbers are hollow marks around ours."""
    hollow = {"markerfacecolor": "none", "markersize": 4.8, "markeredgewidth": 0.7, "zorder": 4}
    return {"linestyle": SOURCE_LINES[source]} | (hollow if source == PUBLISHED else {})


def source_handles(present: list[str]) -> list[Line2D]:
    """Legend entries in grey that say which mark is which source."""
    names = [source for source in SOURCES if source in present]
    return [
        Line2D([], [], color="0.3", marker="o", label=name, **source_look(name)) for name in names
    ]


def legend_above(axes: Axes, handles: list, columns: int) -> None:
    """A legend over the axes, outside the data."""
    axes.legend(
        handles=handles,
        ncols=columns,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        columnspacing=1.2,
        borderaxespad=0.3,
    )


def break_marks(upper: Axes, lower: Axes) -> None:
    """Show that the y axis is cut between two panels."""
    slash = {
        "marker": [(-1, -0.6), (1, 0.6)],
        "markersize": 5,
        "linestyle": "none",
        "color": "black",
        "markeredgewidth": 0.6,
        "clip_on": False,
    }
    upper.spines["bottom"].set_visible(False)
    lower.spines["top"].set_visible(False)
    upper.tick_params(bottom=False)
    upper.plot([0, 1], [0, 0], transform=upper.transAxes, **slash)
    lower.plot([0, 1], [1, 1], transform=lower.transAxes, **slash)


def save(figure: Figure, path: Path) -> list[Path]:
    """Write and close a figure: PDF and PNG without dates, so equal figures are equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"pdf": {"CreationDate": None}, "png": {"Software": None}}
    made = []
    for suffix, values in metadata.items():
        made.append(path.parent / f"{path.name}.{suffix}")
        figure.savefig(made[-1], metadata=values, bbox_inches="tight", pad_inches=0.02)
    plt.close(figure)
    return made
