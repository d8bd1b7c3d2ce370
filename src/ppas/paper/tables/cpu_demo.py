"""CPU demonstration: two budgets and P-PAS on a real vLLM server without a GPU.

Not a table of the paper. What matters is the order of the rows at each burst rate: whether the
large budget wins at low load, the small one at high load, and where P-PAS falls.
"""

import pandas as pd

from ppas.paper.study import Study
from ppas.paper.tidy import unpublished, with_sd

EXPERIMENTS = ("cpu_demo",)
TITLE = "CPU demonstration: a small made-up model, mean and standard deviation over seeds"
METRICS = ("e2e_mean_s", "e2e_p95_s", "ttft_mean_s", "tpot_mean_s", "makespan_s")


def build(study: Study) -> pd.DataFrame:
    """Means over seeds in seconds (TPOT: seconds per output token), and their deviations."""
    cells = study.cells(*EXPERIMENTS)
    return with_sd(unpublished(cells[cells["metric"].isin(METRICS)]))
