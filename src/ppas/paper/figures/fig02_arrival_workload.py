"""Figure 2: the bursty arrival process, with one realised sequence of arrivals."""

from collections.abc import Sequence
from itertools import accumulate

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ppas.paper.figures import style
from ppas.paper.study import Study
from ppas.workload import parse_phases, poisson_arrivals

EXPERIMENTS = ()
# Duration in seconds : rate in requests/s. Caption of Figure 2 and section 4.1: 10 s phases, a
# steady rate of 0.2 and, in this example, a burst rate of 4.0.
PHASES = "10:0.2,10:4.0,10:0.2,10:4.0,10:0.2"
SEED = 0  # the first of the study's seeds


def plot(study: Study) -> Figure:
    """Arrival rate in requests/s against time in seconds, y axis broken between the two rates."""
    del study  # the workload alone decides this figure
    phases = parse_phases(PHASES)
    durations, rates = zip(*phases, strict=True)
    edges = [0, *accumulate(durations)]
    parts = style.BROKEN_HEIGHTS
    figure, (burst, steady, rug) = plt.subplots(
        nrows=len(parts), sharex=True, figsize=style.SINGLE, height_ratios=parts
    )
    _rates(burst, steady, rates, edges)
    rug.eventplot(poisson_arrivals(phases, SEED), **style.TICK)
    rug.set(yticks=[], xlabel="Time [s]", xlim=(edges[0], edges[-1]), xticks=edges)
    ticks = Line2D([], [], label=f"sampled arrivals (seed {SEED})", **style.TICK_KEY)
    style.legend_above(burst, [*burst.patches, ticks], columns=2)
    return figure


def _rates(burst: Axes, steady: Axes, rates: Sequence[float], edges: Sequence[float]) -> None:
    low, high = min(rates), max(rates)
    for axes in (burst, steady):
        axes.stairs(rates, edges, baseline=None, label="arrival rate", **style.RATE)
    # Both parts span the same range, so a step of the line means the same in each.
    burst.set(ylim=(high - low, high + low), yticks=[high, high + low])
    burst.set_ylabel("Arrival rate [requests/s]", y=0)
    steady.set(ylim=(0, low + low), yticks=[0, low])
    style.break_marks(burst, steady)
