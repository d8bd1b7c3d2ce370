"""Figure 1(c): P-PAS chooses between two calibrated budgets, every scheduler step."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation

from ppas.paper.figures import schematic, style
from ppas.paper.study import Study

EXPERIMENTS = ("rtx5090_primary",)
SLUG = "ppas"  # in conf/experiment
ROWS = ("calm", "test", "pressure")


def plot(study: Study) -> Figure:
    """Scheduler state, the pressure test and the two budgets, bars to scale."""
    scheduler = study.config(*EXPERIMENTS)["schedulers"][SLUG]
    b_max, b_cap = scheduler["max_num_batched_tokens"], scheduler["policy"]["b_cap"]
    figure, axes = schematic.canvas(style.SINGLE, columns=2, rows=len(ROWS))
    calm, test, pressure = range(len(ROWS))
    state = schematic.box(axes, 0, calm, "Scheduler state\n$N_p$ prefills, $N_d$ decodes")
    text = f"Pressure?\n$N_p \\geq {scheduler['policy']['n_th']}$ and $N_d > 0$"
    choice = schematic.box(axes, 0, test, text, style.CHOICE)
    low = schematic.box(axes, 1, calm, rf"no: $B_\mathrm{{max}}$ = {b_max:,} tokens")
    high = schematic.box(axes, 1, pressure, rf"yes: $B_\mathrm{{cap}}$ = {b_cap:,} tokens")
    for start, end in ((state, choice), (choice, low), (choice, high)):
        schematic.arrow(axes, start, end)
    _bar(axes, low, 1, style.LARGE_BUDGET, above=True)
    _bar(axes, high, b_cap / b_max, style.SMALL_BUDGET, above=False)
    return figure


def _bar(axes: Axes, place: Annotation, share: float, look: dict, above: bool) -> None:
    """A bar at a box, as long as the budget is in parts of the larger one."""
    x, y = place.xy
    width, height, gap = style.BUDGET_BAR
    corner = (x - width / 2, y - gap - height if above else y + gap)
    axes.add_patch(Rectangle(corner, width * share, height, **look))
