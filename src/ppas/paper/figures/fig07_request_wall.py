"""Figure 7: the request wall, one square per matched request of the heterogeneous study.

Requests are paired by schedule, seed, shape and request id (section 10.5); green: strictly lower
end-to-end latency under P-PAS+ than under the best static budget.
"""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ppas.metrics import MATCH_KEYS, matched_requests
from ppas.paper.figures import style
from ppas.paper.improvement import schedulers
from ppas.paper.study import Study

EXPERIMENTS = ("rtx5090_heterogeneous_qwen3_8_27b", "rtx5090_heterogeneous_nemotron_30b")
COLUMNS = 55  # squares in a row
WINS, MATCHED = "request_wins_pct", "matched_requests"


def plot(study: Study) -> Figure:
    """Both walls, their squares ordered by schedule, seed and request."""
    text = study.published("text")
    matched = [_matched(study, name, text) for name in EXPERIMENTS]
    heights = [len(rows) // COLUMNS + 1 for rows, _ in matched]
    figure, panels = plt.subplots(nrows=len(matched), figsize=style.WALLS, height_ratios=heights)
    for axes, letter, (rows, title) in zip(panels, "ab", matched, strict=True):
        _wall(axes, rows["wins"].to_numpy())
        axes.set_title(f"({letter}) {title}", loc="left")
    keys = {"lower under P-PAS+": style.FASTER, "not lower": style.NOT_FASTER}
    handles = [Patch(color=colour, label=label) for label, colour in keys.items()]
    figure.legend(handles=handles, ncols=len(handles), loc="outside lower center")
    figure.set_layout_engine("constrained")
    return figure


def _matched(study: Study, experiment: str, text: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Matched requests of the first source, and a title with the paper's share and ours."""
    records = study.records(experiment)
    model, source = records["model"].iloc[0], records["source"].iloc[0]
    printed = text[text["model"] == model].set_index("metric")["value"]
    pair = text.loc[(text["model"] == model) & (text["metric"] == WINS), "scheduler"].item()
    rows = matched_requests(records[records["source"] == source], *schedulers(pair))
    rows = rows.sort_values(MATCH_KEYS)
    policy, baseline = schedulers(pair)
    title = (
        f"{model}\n{policy} vs. {baseline}, {source}: {rows['wins'].sum():,} of {len(rows):,} "
        f"({rows['wins'].mean():.1%}); published: {printed[WINS]:.1f}% of {printed[MATCHED]:,.0f}"
    )
    return rows, title


def _wall(axes: Axes, wins: np.ndarray) -> None:
    rows = -(-len(wins) // COLUMNS)
    squares = np.ma.masked_all(rows * COLUMNS)
    squares[: len(wins)] = wins
    colours = ListedColormap([style.NOT_FASTER, style.FASTER])
    grid = squares.reshape(rows, COLUMNS)
    axes.pcolormesh(grid, cmap=colours, vmin=0, vmax=1, **style.WALL)
    axes.set_aspect("equal")
    axes.invert_yaxis()
    axes.set_axis_off()
