"""Latency against burst rate: our cells as lines, the paper's as hollow marks."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ppas.paper.figures import style
from ppas.paper.tidy import KEYS, PUBLISHED, beside

LABEL_X = "Burst arrival rate [requests/s]"
LABEL_Y = "Average E2E latency [s]"


def average_latency(published: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Average E2E in seconds of every source: columns scheduler, source, burst, value."""
    both = beside(published, cells)
    both = both[both["metric"] == "e2e_mean_s"].astype({"burst": float})
    theirs = both.drop_duplicates(KEYS).assign(source=PUBLISHED)
    theirs["value"] = theirs["published"]
    points = pd.concat([both, theirs])[["scheduler", "source", "burst", "value"]]
    return points.dropna(subset=["value"]).reset_index(drop=True)


def draw(axes: Axes, points: pd.DataFrame) -> None:
    """Draw one line, or row of hollow marks, per scheduler and source."""
    looks = style.scheduler_look(list(pd.unique(points["scheduler"])))
    for (name, source), line in points.groupby(["scheduler", "source"], sort=False):
        axes.plot(line["burst"], line["value"], **looks[name] | style.source_look(source))


def draw_seeds(axes: Axes, runs: pd.DataFrame, metric: str = "e2e_mean_s") -> None:
    """A faint dot per run: average E2E, or another of its metrics, in seconds.

    In a fixed order, for dots that overlap.
    """
    runs = runs.sort_values(["burst_rate", "seed"])
    looks = style.scheduler_look(list(pd.unique(runs["scheduler"])))
    for name, rows in runs.groupby("scheduler", sort=False):
        look = {"color": looks[name]["color"]} | style.SEEDS
        axes.plot(rows["burst_rate"], rows[metric], **look)


def handles(points: pd.DataFrame) -> list[Line2D]:
    """Legend entries: schedulers in colour, then sources in grey."""
    looks = style.scheduler_look(list(pd.unique(points["scheduler"])))
    lines = [Line2D([], [], label=name, **look) for name, look in looks.items()]
    return lines + style.source_handles(list(pd.unique(points["source"])))
