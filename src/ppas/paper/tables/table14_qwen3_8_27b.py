"""Table 14: Qwen3.8-27B with equal requests, mean and sample SD over five seeds."""

import pandas as pd

from ppas.paper.study import Study
from ppas.paper.tidy import beside, with_sd

EXPERIMENTS = ("rtx5090_homogeneous_qwen3_8_27b",)
TITLE = "Table 14: detailed results of Qwen3.8-27B, equal requests"


def build(study: Study) -> pd.DataFrame:
    """Seconds; metrics that end in ``:sd`` are standard deviations over seeds (ddof=1)."""
    return beside(with_sd(study.published(14)), with_sd(study.cells(*EXPERIMENTS)))
