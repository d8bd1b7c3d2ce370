"""Table 13: absolute values behind Table 4."""

import pandas as pd

from ppas.paper.study import Study
from ppas.paper.tidy import beside

EXPERIMENTS = ("a100_qwen2_5_3b", "a100_smollm3_3b")
TITLE = "Table 13: detailed results on the A100"


def build(study: Study) -> pd.DataFrame:
    """Means over seeds in seconds (TPOT: seconds per output token)."""
    cells = pd.concat([study.cells(name) for name in EXPERIMENTS], ignore_index=True)
    return beside(study.published(13), cells)
