"""Table 9: all five metrics of the primary study, fixed MBTs and P-PAS at six burst rates."""

import pandas as pd

from ppas.paper.study import Study
from ppas.paper.tidy import beside

EXPERIMENTS = ("rtx5090_primary",)
TITLE = "Table 9: detailed results of the primary study"


def build(study: Study) -> pd.DataFrame:
    """Means over seeds in seconds (TPOT: seconds per output token)."""
    return beside(study.published(9), study.cells(*EXPERIMENTS))
