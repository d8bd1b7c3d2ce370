"""Figure 3: what P-PAS decides during one run, step by step."""

import pandas as pd
from matplotlib.figure import Figure

from ppas.paper.figures import timeline
from ppas.paper.study import Study

EXPERIMENTS = ("rtx5090_primary_timeline",)
SCHEDULER = "P-PAS"
N_TH = 2  # prefills at which pressure begins, section 4.3
B_CAP, B_MAX = 2048, 16384  # tokens, section 4.3; they only place the axis's marks


def plot(study: Study) -> Figure:
    """Prefills, decodes and token budget against time in seconds."""
    run = one_run(study.steps(*EXPERIMENTS))
    first = run.iloc[0]
    rate, seed, source = first["burst_rate"], first["seed"], first["source"]
    title = f"{SCHEDULER}, burst rate {rate} requests/s, seed {seed}, {source}"
    return timeline.draw(run, title, n_th=N_TH, marks=(B_CAP, B_MAX))


def one_run(steps: pd.DataFrame) -> pd.DataFrame:
    """The steps of the first P-PAS run of the log: lowest burst rate, then lowest seed."""
    runs = steps[steps["scheduler"] == SCHEDULER].sort_values(
        ["source", "burst_rate", "seed", "step"], kind="stable"
    )
    keys = ["source", "burst_rate", "seed"]
    return runs[(runs[keys] == runs[keys].iloc[0]).all(axis=1)].reset_index(drop=True)
