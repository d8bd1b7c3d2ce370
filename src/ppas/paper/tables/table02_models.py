"""Table 2: improvement of P-PAS in average latency across models (section 5.2)."""

import pandas as pd

from ppas.paper.improvement import improvement_rows
from ppas.paper.study import Study
from ppas.paper.tables.render import Layout
from ppas.paper.tidy import beside

EXPERIMENTS = ("rtx5090_models_qwen2_5_0_5b", "rtx5090_primary", "rtx5090_models_smollm3_3b")
TITLE = "Table 2: average-latency improvement of P-PAS across models"
LAYOUT = Layout(
    rows=("burst",), columns="scheduler", bold_lowest=False, burst="Burst rates [req/s]"
)


def build(study: Study) -> pd.DataFrame:
    """Geometric-mean improvements in percent over each model's two burst rates."""
    cells = pd.concat([study.cells(name) for name in EXPERIMENTS], ignore_index=True)
    published = study.published(2)
    return beside(published, improvement_rows(cells, published))
