"""Table 1: improvement of P-PAS over two fixed MBTs across the burst rates of Table 9."""

import pandas as pd

from ppas.paper.improvement import improvement_rows
from ppas.paper.study import Study
from ppas.paper.tables.render import Layout
from ppas.paper.tidy import beside

EXPERIMENTS = ("rtx5090_primary",)
TITLE = "Table 1: P-PAS improvement over fixed MBT schedulers"
LAYOUT = Layout(rows=("metric",), columns="scheduler", bold_lowest=False)


def build(study: Study) -> pd.DataFrame:
    """Geometric-mean improvements in percent over the paper's burst rates; positive is better."""
    published = study.published(1)
    return beside(published, improvement_rows(study.cells(*EXPERIMENTS), published))
