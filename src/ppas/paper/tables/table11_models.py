"""Table 11: absolute values behind Table 2.

The paper prints two burst rates per model, chosen after a full sweep. Qwen2.5-0.5B's other rates
follow here without a published number.
"""

import pandas as pd

from ppas.paper.study import Study
from ppas.paper.tidy import beside

EXPERIMENTS = ("rtx5090_models_qwen2_5_0_5b", "rtx5090_primary", "rtx5090_models_smollm3_3b")
PRIMARY = EXPERIMENTS[1]  # of its sweep, Table 11 repeats what it prints
TITLE = "Table 11: detailed results across models"


def build(study: Study) -> pd.DataFrame:
    """Means over seeds in seconds (TPOT: seconds per output token)."""
    published = study.published(11)
    cells = {name: study.cells(name) for name in EXPERIMENTS}
    primary = cells[PRIMARY]
    mine = published[published["model"].isin(primary["model"])]
    repeated = primary["burst"].isin(mine["burst"].astype(float))
    repeated &= primary["scheduler"].isin(mine["scheduler"])
    cells[PRIMARY] = primary[repeated]
    return beside(published, pd.concat(cells.values(), ignore_index=True))
