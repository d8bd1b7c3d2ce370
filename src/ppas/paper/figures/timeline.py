"""A timeline of what a scheduler decided, step by step; Figure 3 is one.

One drawing for every step log, simulated or written by the plugin. The budget is drawn as logged:
where only prefill tokens are capped, a capped step may also schedule its running decodes, so its
budget lies that many tokens above the cap.
"""

from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ppas.paper.figures import style

PRESSURE = ("count", "large")  # reasons for the small budget
SAME_TIME_S = 1e-6  # steps closer than this follow one another without a pause
REQUESTS = ("prefills_running", "prefills_waiting", "decodes_running")
NUMBERS = ("time_s", *REQUESTS, "budget")  # the columns that are drawn, beside the reason


def measured(log: Path) -> Figure:
    """The timeline of a step log that the plugin wrote; it opens at the log's first step.

    Raises:
        OSError, ValueError: one line that names the file.
    """
    run = read_log(log)
    return draw(run, f"{log.name}, measured", start_s=run["time_s"].iloc[0])


def read_log(path: Path) -> pd.DataFrame:
    """A plugin's step log as a run: a step lasts until the next one starts.

    vLLM schedules once more after its last request and then waits for another, so a step without
    requests is where a pause begins; such steps are left out. The last step has no duration.

    Raises:
        FileNotFoundError: the file is missing; names the logs beside it.
        ValueError: it is not a step log, or holds no step.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file{_logs_beside(path)}")
    try:
        log = pd.read_csv(path, dtype=dict.fromkeys(NUMBERS, float))
    except ValueError as error:
        raise ValueError(f"{path}: not a step log: {str(error).splitlines()[0]}") from None
    if missing := [name for name in (*NUMBERS, "reason") if name not in log]:
        raise ValueError(f"{path}: not a step log of the plugin: no column {missing[0]}")
    until_next = log["time_s"].shift(-1) - log["time_s"]
    run = log.assign(duration_s=until_next.fillna(0))[log[list(REQUESTS)].any(axis=1)]
    if run.empty:
        raise ValueError(f"{path}: no steps with requests; the plugin writes many at a time")
    return run.reset_index(drop=True)


def _logs_beside(path: Path) -> str:
    logs = sorted(path.parent.glob(f"{path.stem}.*{path.suffix}"))
    names = ", ".join(log.name for log in logs)
    return f"; each engine process writes its own: {names}" if names else ""


def draw(
    run: pd.DataFrame,
    title: str,
    *,
    start_s: float = 0,
    n_th: int | None = None,
    marks: tuple[int, ...] = (),
) -> Figure:
    """Prefills, decodes and token budget against time in seconds.

    Args:
        run: one row per step: ``time_s``, ``duration_s``, requests, ``budget``, ``reason``.
        start_s: where the time axis starts.
        n_th: prefills at which pressure begins, if known.
        marks: budgets to mark, in tokens; by default the smallest and the largest of the run.
    """
    states = with_idle(run)
    figure, (upper, lower) = plt.subplots(
        nrows=2, sharex=True, figsize=style.TALL, height_ratios=style.TIMELINE_HEIGHTS
    )
    _requests(upper, states, n_th)
    marks = marks or (run["budget"].min(), run["budget"].max())
    lower.plot(states["time_s"], states["budget"], **style.STEP, **style.BUDGET)
    lower.set(ylabel="Token budget", xlabel="Time [s]", yticks=sorted(set(marks)))
    lower.set(ylim=(0, None), xlim=(start_s, None))
    for axes in (upper, lower):
        _shade(axes, states)
    figure.align_ylabels()
    handles = upper.get_legend_handles_labels()[0]
    style.legend_above(upper, handles, columns=len(handles))
    upper.set_title(title, pad=style.TITLE_PAD)
    return figure


def with_idle(run: pd.DataFrame) -> pd.DataFrame:
    """One row per change of state: the steps, and each pause in which the engine has no request.

    A pause has no prefills, no decodes and no budget, for the scheduler does not run then.
    """
    end = run["time_s"] + run["duration_s"]
    pause = ~(run["time_s"].shift(-1) - end <= SAME_TIME_S)
    idle = pd.DataFrame({"time_s": end[pause], "prefills": 0, "decodes": 0, "pressure": False})
    busy = run.assign(
        prefills=run["prefills_running"] + run["prefills_waiting"],
        decodes=run["decodes_running"],
        pressure=run["reason"].isin(PRESSURE),
    )
    columns = [*idle.columns, "budget"]
    states = pd.concat([busy[columns], idle], ignore_index=True)
    return states.sort_values("time_s", kind="stable").reset_index(drop=True)


def _requests(axes: Axes, states: pd.DataFrame, n_th: int | None) -> None:
    axes.plot(states["time_s"], states["prefills"], **style.STEP, **style.PREFILLS)
    axes.plot(states["time_s"], states["decodes"], **style.STEP, **style.DECODES)
    if n_th is not None:
        axes.axhline(n_th, **style.GUIDE, label=rf"$N_\mathrm{{th}}={n_th}$")
    axes.set(ylabel="Requests")
    axes.set_ylim(0, None)
    axes.yaxis.get_major_locator().set_params(integer=True)


def _shade(axes: Axes, states: pd.DataFrame) -> None:
    bottom, top = axes.get_ylim()
    pressure = states["pressure"].to_numpy(bool)
    axes.fill_between(
        states["time_s"], bottom, top, where=pressure, step="post", label="pressure", **style.SHADE
    )
    axes.set_ylim(bottom, top)
