"""Boxes and arrows: what the drawn schematics are made of. A unit of either axis is a place."""

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ppas.paper.figures import style


def canvas(size: tuple[float, float], columns: int, rows: int) -> tuple[Figure, Axes]:
    """A figure without axes lines, ``columns`` by ``rows`` places; place (0, 0) is top left."""
    figure, axes = plt.subplots(figsize=size)
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    axes.set_axis_off()
    return figure, axes


def box(axes: Axes, column: float, row: float, text: str, look: dict = style.BOX):
    """A box with text in the middle of a place."""
    middle = (column + 1 / 2, row + 1 / 2)
    return axes.annotate(text, middle, ha="center", va="center", bbox=look, **style.SMALL_TEXT)


def arrow(axes: Axes, start, end) -> None:
    """An arrow between two boxes, from edge to edge."""
    axes.annotate(
        "",
        xy=end.xy,
        xytext=start.xy,
        arrowprops=style.ARROW | {"patchA": start.get_bbox_patch(), "patchB": end.get_bbox_patch()},
        zorder=style.ABOVE_TEXT,  # drawn once the boxes know their size
    )
