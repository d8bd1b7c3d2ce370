"""Table 7: the P-PAS+ configurations of the heterogeneous study (section 7.1)."""

import pandas as pd

from ppas.paper.study import Study
from ppas.paper.tables.render import Layout
from ppas.paper.tidy import beside, rows_of

EXPERIMENTS = ("rtx5090_heterogeneous_qwen3_8_27b", "rtx5090_heterogeneous_nemotron_30b")
TITLE = "Table 7: P-PAS+ configurations of the heterogeneous study"
LAYOUT = Layout(rows=("scheduler",), bold_lowest=False)
SLUG = "ppas_plus"  # in conf/experiment


def build(study: Study) -> pd.DataFrame:
    """Budgets and threshold in tokens, as they were run."""
    made = [_configured(study.config(name)) for name in EXPERIMENTS]
    return beside(study.published(7), pd.concat(made, ignore_index=True))


def _configured(config: dict) -> pd.DataFrame:
    scheduler = config["schedulers"][SLUG]
    values = {
        "b_max_tokens": scheduler["max_num_batched_tokens"],
        "b_cap_tokens": scheduler["policy"]["b_cap"],
        "t_large_tokens": scheduler["policy"]["t_large"],
    }
    rows = [(None, scheduler["name"], metric, value) for metric, value in values.items()]
    return rows_of(config, "configured", rows)
