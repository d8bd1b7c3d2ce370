"""Table 6: the gate-up projection under a profiler (section 6.1); no simulator can say this."""

import pandas as pd

from ppas.paper.study import Study
from ppas.paper.tables.render import Layout
from ppas.paper.tidy import KEYS, beside

EXPERIMENTS = ()
TITLE = "Table 6: profiler measurements of the gate-up projection, as published"
LAYOUT = Layout(rows=("scheduler",), bold_lowest=False)


def build(study: Study) -> pd.DataFrame:
    """Percentages of the sustained peak, all published: we have measured none."""
    return beside(study.published(6), pd.DataFrame(columns=[*KEYS, "value", "std", "source"]))
