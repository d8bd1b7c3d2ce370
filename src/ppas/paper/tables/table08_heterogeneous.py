"""Table 8: P-PAS+ against every fixed MBT and P-PAS on mixed requests (sections 7.2, 10.5).

The paper prints the mean; its text adds P95, makespan and request wins against the best static
budget, which stand here too. Its 488 matched Qwen requests are those of seeds 0 to 9.
"""

import re

import pandas as pd

from ppas.metrics import matched_requests, mean_ratio_improvement_pct
from ppas.paper.improvement import improvement_rows, schedulers
from ppas.paper.study import Study
from ppas.paper.tables.render import Layout
from ppas.paper.tidy import KEYS, beside

EXPERIMENTS = ("rtx5090_heterogeneous_qwen3_8_27b", "rtx5090_heterogeneous_nemotron_30b")
TITLE = "Table 8: improvement of P-PAS+ over static budgets and P-PAS, mixed requests"
LAYOUT = Layout(rows=("scheduler", "burst"), bold_lowest=False, decimals=2, burst="Over")
SECTION = "7.2"
CONDITIONS = "6 conditions"  # all seeds, as in data/published
WINS, MATCHED = "request_wins_pct", "matched_requests"


def build(study: Study) -> pd.DataFrame:
    """Improvements in percent by the arithmetic mean of six ratios, and request wins."""
    published = printed(study)
    return pd.concat([_of_model(study, name, published) for name in EXPERIMENTS], ignore_index=True)


def _of_model(study: Study, experiment: str, published: pd.DataFrame) -> pd.DataFrame:
    published = published[published["model"] == study.config(experiment)["model"]["name"]]
    rows = improvement_rows(study.cells(experiment), published, mean_ratio_improvement_pct)
    wins = win_rows(study.records(experiment), published)
    return beside(published, pd.concat([rows, wins], ignore_index=True))


def printed(study: Study) -> pd.DataFrame:
    """Table 8 and what section 7.2's text adds to it."""
    table, text = study.published(8), study.published("text")
    text = text[text["table"] == SECTION]
    both = pd.concat([table, text], ignore_index=True).assign(table=table["table"].iloc[0])
    return both.drop_duplicates(KEYS)


def win_rows(records: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Share of matched requests that P-PAS+ serves faster: over all seeds, and over those that
    the paper's number is of."""
    rows = published[published["metric"] == WINS]
    pair = rows["scheduler"].iloc[0]
    made = []
    for label in dict.fromkeys([CONDITIONS, *rows["burst"]]):
        chosen = records[records["seed"].isin(seeds(label, records))]
        matched = matched_requests(chosen, *schedulers(pair))
        wins = matched.groupby(["model", "hardware", "source"])["wins"]
        values = {WINS: wins.mean() * 100, MATCHED: wins.size().astype(float)}
        made += [
            value.rename("value").reset_index().assign(metric=name, scheduler=pair, burst=label)
            for name, value in values.items()
        ]
    return pd.concat(made, ignore_index=True)


def seeds(label: str, records: pd.DataFrame) -> list[int]:
    """``6 conditions, seeds 0-9`` -> the seeds it names; all of them if it names none."""
    found = re.search(r"seeds (\d+)-(\d+)", label)
    if found is None:
        return sorted(records["seed"].unique())
    return list(range(int(found[1]), int(found[2]) + 1))
