"""Table 12: two fixed MBTs on the H100; P-PAS is our addition, the paper did not run it there."""

import pandas as pd

from ppas.paper.study import Study
from ppas.paper.tidy import beside

EXPERIMENTS = ("h100_qwen2_5_3b",)
TITLE = "Table 12: MBT sensitivity on the H100, with P-PAS added by us"


def build(study: Study) -> pd.DataFrame:
    """Means over seeds in seconds (TPOT: seconds per output token)."""
    return beside(study.published(12), study.cells(*EXPERIMENTS))
