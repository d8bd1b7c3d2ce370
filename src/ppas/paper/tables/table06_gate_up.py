"""Table 6: the gate-up projection under a profiler (section 6.1); no simulator can say this."""

import pandas as pd

from ppas.paper.study import Study
from ppas.paper.tables.render import Layout
from ppas.paper.tidy import beside

EXPERIMENTS = ()
PROFILED = ("counters",)
TITLE = "Table 6: profiler measurements of the gate-up projection, as published"
LAYOUT = Layout(rows=("scheduler",), bold_lowest=False)
PROMPT = 16384  # tokens; the paper's table prints only the chunks' length
NO_LENGTH = pd.Series(dtype="Int64")


def build(study: Study) -> pd.DataFrame:
    """Percentages of the sustained peak: published, and ours where `ppas profile` measured any."""
    published = study.published(6)
    counters = study.profiles(set(published["metric"]), PROMPT)
    return beside(published, counters.assign(prompt_tokens=NO_LENGTH))
