"""Table 3: improvement of P-PAS across prompt and output lengths (section 5.2).

Prompts of 25k and outputs of 32 tokens are one setting, printed twice; each of the two
experiments runs it for itself.
"""

import pandas as pd

from ppas.paper.improvement import improvement_rows
from ppas.paper.study import Study
from ppas.paper.tables.render import Layout
from ppas.paper.tidy import beside

EXPERIMENTS = ("rtx5090_prompt_lengths", "rtx5090_output_lengths")
VARIED = ("prompt", "output")  # what each experiment varies, as the paper's rows begin
TITLE = "Table 3: robustness of P-PAS across prompt and output lengths"
LAYOUT = Layout(bold_lowest=False, burst="Varied @ burst rates [req/s]")


def build(study: Study) -> pd.DataFrame:
    """Geometric-mean improvements in percent over burst rates 0.8 and 1.2."""
    published = study.published(3)
    made = [
        improvement_rows(study.cells(name), published[published["burst"].str.startswith(varied)])
        for name, varied in zip(EXPERIMENTS, VARIED, strict=True)
    ]
    return beside(published, pd.concat(made, ignore_index=True))
