"""Table 15: Nemotron-30B with equal requests, mean and sample SD over five seeds."""

import pandas as pd

from ppas.paper.study import Study
from ppas.paper.tidy import beside, with_sd

EXPERIMENTS = ("rtx5090_homogeneous_nemotron_30b",)
TITLE = "Table 15: detailed results of Nemotron-30B, equal requests"


def build(study: Study) -> pd.DataFrame:
    """Seconds; metrics that end in ``:sd`` are standard deviations over seeds (ddof=1)."""
    return beside(with_sd(study.published(15)), with_sd(study.cells(*EXPERIMENTS)))
