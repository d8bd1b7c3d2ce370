"""Table 4: improvement of P-PAS on the A100 (section 5.2)."""

import pandas as pd

from ppas.paper.improvement import improvement_rows
from ppas.paper.study import Study
from ppas.paper.tables.render import Layout
from ppas.paper.tidy import beside

EXPERIMENTS = ("a100_qwen2_5_3b", "a100_smollm3_3b")
TITLE = "Table 4: P-PAS improvement on the A100"
LAYOUT = Layout(rows=("metric",), columns="scheduler", bold_lowest=False)


def build(study: Study) -> pd.DataFrame:
    """Geometric-mean improvements in percent over burst rates 0.4 and 1.0."""
    cells = pd.concat([study.cells(name) for name in EXPERIMENTS], ignore_index=True)
    published = study.published(4)
    return beside(published, improvement_rows(cells, published))
