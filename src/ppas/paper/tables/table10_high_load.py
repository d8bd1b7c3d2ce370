"""Table 10: the primary study's follow-up beyond its highest burst rate."""

import pandas as pd

from ppas.paper.study import Study
from ppas.paper.tidy import beside

EXPERIMENTS = ("rtx5090_primary_high_load",)
TITLE = "Table 10: high-load follow-up of the primary study"


def build(study: Study) -> pd.DataFrame:
    """Means over seeds in seconds; the paper prints neither TTFT nor TPOT here."""
    return beside(study.published(10), study.cells(*EXPERIMENTS))
