"""Figure 3: what P-PAS decides during one run, step by step.

The budget is drawn as logged. Where only prefill tokens are capped, a capped step may also
schedule its running decodes, so its budget lies that many tokens above the cap.
"""

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ppas.paper.figures import style
from ppas.paper.study import Study

EXPERIMENTS = ("rtx5090_primary_timeline",)
SCHEDULER = "P-PAS"
N_TH = 2  # prefills at which pressure begins, section 4.3
B_CAP, B_MAX = 2048, 16384  # tokens, section 4.3; they only place the axis's marks
PRESSURE = ("count", "large")  # reasons for the small budget
SAME_TIME_S = 1e-6  # steps closer than this follow one another without a pause


def plot(study: Study) -> Figure:
    """Prefills, decodes and token budget against time in seconds."""
    run = one_run(study.steps(*EXPERIMENTS))
    states = with_idle(run)
    figure, (upper, lower) = plt.subplots(
        nrows=2, sharex=True, figsize=style.TALL, height_ratios=style.TIMELINE_HEIGHTS
    )
    _requests(upper, states)
    lower.plot(states["time_s"], states["budget"], **style.STEP, **style.BUDGET)
    lower.set(ylabel="Token budget", xlabel="Time [s]", yticks=(B_CAP, B_MAX))
    lower.set(ylim=(0, None), xlim=(0, None))
    for axes in (upper, lower):
        _shade(axes, states)
    figure.align_ylabels()
    first = run.iloc[0]
    rate, seed, source = first["burst_rate"], first["seed"], first["source"]
    style.legend_above(upper, upper.get_legend_handles_labels()[0], columns=style.LEGEND_COLUMNS)
    title = f"{SCHEDULER}, burst rate {rate} requests/s, seed {seed}, {source}"
    upper.set_title(title, pad=style.TITLE_PAD)
    return figure


def one_run(steps: pd.DataFrame) -> pd.DataFrame:
    """The steps of the first P-PAS run of the log: lowest burst rate, then lowest seed."""
    runs = steps[steps["scheduler"] == SCHEDULER].sort_values(
        ["source", "burst_rate", "seed", "step"], kind="stable"
    )
    keys = ["source", "burst_rate", "seed"]
    return runs[(runs[keys] == runs[keys].iloc[0]).all(axis=1)].reset_index(drop=True)


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


def _requests(axes: Axes, states: pd.DataFrame) -> None:
    axes.plot(states["time_s"], states["prefills"], **style.STEP, **style.PREFILLS)
    axes.plot(states["time_s"], states["decodes"], **style.STEP, **style.DECODES)
    axes.axhline(N_TH, **style.GUIDE, label=rf"$N_\mathrm{{th}}={N_TH}$")
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
