"""Every comparison between two schedulers, on the same traces, with its confidence interval.

For each cell of Tables 9 to 15 all pairs of schedulers; for mixed requests P-PAS+ against every
other. The difference of average E2E is taken seed by seed, so that what a trace costs everybody
cancels. Differences of 2% or less, or whose interval holds zero, are inconclusive.
"""

import re
from itertools import combinations

import pandas as pd

from ppas.metrics import paired_differences_pct
from ppas.paper.study import Study
from ppas.paper.tables.render import Layout, label, markdown_grid
from ppas.paper.tidy import SETTING, SOURCES, burst_label

EXPERIMENTS = (
    "rtx5090_primary",
    "rtx5090_primary_high_load",
    "rtx5090_models_qwen2_5_0_5b",
    "rtx5090_models_smollm3_3b",
    "h100_qwen2_5_3b",
    "a100_qwen2_5_3b",
    "a100_smollm3_3b",
    "rtx5090_homogeneous_qwen3_8_27b",
    "rtx5090_homogeneous_nemotron_30b",
    "rtx5090_heterogeneous_qwen3_8_27b",
    "rtx5090_heterogeneous_nemotron_30b",
)
PUBLISHED_IN = (9, 10, 11, 12, 13, 14, 15)  # tables with cells
MIXED = "P-PAS+"  # the scheduler whose every comparison stands for mixed requests
FORMATS = ("csv", "md")
TITLE = "Comparisons: average E2E of two schedulers on the same traces"
METRIC = "e2e_mean_s"
INCONCLUSIVE_PCT = 2  # the noise of a published cell, see data/published/claims.yaml
CLEAR_PCT = 5  # a published difference that ours must share the sign of
LOWER, HIGHER, INCONCLUSIVE = "lower", "higher", "inconclusive"
COLUMNS = [
    *SETTING, "phases", "burst", "scheduler", "than", "metric", "published", "value", "low", "high",
    "n", "verdict", "source",
]  # fmt: skip


def build(study: Study) -> pd.DataFrame:
    """Differences in percent of the second scheduler's mean; negative: the first is lower.

    ``low`` and ``high`` bound the 95% interval (Student's t over ``n`` seeds).
    """
    made = [_comparisons(study.runs(name)) for name in EXPERIMENTS]
    ours = pd.concat(made, ignore_index=True)
    ours["burst"] = ours["burst"].map(burst_label)
    keys = [*SETTING, "burst", "scheduler", "than"]
    both = ours.merge(_published(study), on=keys, how="left").assign(metric=METRIC)
    both["verdict"] = [_verdict(row) for row in both.itertuples()]
    return both[COLUMNS]


def _comparisons(runs: pd.DataFrame) -> pd.DataFrame:
    # The policy first, then the fixed MBTs by size.
    names = sorted(pd.unique(runs["scheduler"]), key=lambda name: (_tokens(name), name != MIXED))
    pairs = [pair for pair in combinations(names, 2) if MIXED not in names or pair[0] == MIXED]
    return paired_differences_pct(runs, pairs, METRIC)


def _tokens(name: str) -> float:
    """The budget in a fixed MBT's name, in thousands or in tokens; 0 for a policy."""
    found = re.fullmatch(r"MBT (\d+)(k?)", name)
    return 0 if found is None else int(found[1]) * (1024 if found[2] else 1)


def _published(study: Study) -> pd.DataFrame:
    cells = pd.concat([study.published(number) for number in PUBLISHED_IN], ignore_index=True)
    keys = [*SETTING, "burst"]
    cells = cells[cells["metric"] == METRIC].drop_duplicates([*keys, "scheduler"])
    cells = cells[[*keys, "scheduler", "value"]]
    pairs = cells.merge(
        cells.rename(columns={"scheduler": "than"}), on=keys, suffixes=("", "_than")
    )
    pairs["published"] = (pairs["value"] / pairs["value_than"] - 1) * 100
    return pairs[[*keys, "scheduler", "than", "published"]]


def _verdict(row) -> str:
    clear = row.low > 0 or row.high < 0  # one seed has no interval, and is not clear
    if abs(row.value) <= INCONCLUSIVE_PCT or not clear:
        return INCONCLUSIVE
    return LOWER if row.value < 0 else HIGHER


def orderings(table: pd.DataFrame) -> pd.DataFrame:
    """Comparisons that the paper prints as clearly different; ``same``: ours has that sign."""
    clear = table[table["published"].abs() > CLEAR_PCT]
    return clear.assign(same=(clear["published"] < 0) == (clear["value"] < 0))


def summary(table: pd.DataFrame) -> str:
    """How many are lower, higher and inconclusive, and which clear orderings turn."""
    counts = table["verdict"].value_counts()
    told = ", ".join(f"{counts.get(name, 0)} {name}" for name in (LOWER, HIGHER, INCONCLUSIVE))
    clear = orderings(table)
    turned = clear[~clear["same"]]
    names = [
        f"{r.model} on {r.hardware} at {r.burst}: {r.scheduler} and {r.than} "
        f"({r.published:+.1f}% published, {r.value:+.1f}% ours)"
        for r in turned.itertuples()
    ]
    return (
        f"{told}. Of {len(clear)} orderings that the paper prints with more than {CLEAR_PCT}% "
        f"between them, {int(clear['same'].sum())} come out the same way round"
        + (f"; turned: {'; '.join(names)}." if names else ".")
    )


def grid(table: pd.DataFrame) -> pd.DataFrame:
    """The table as texts."""
    interval = zip(table["low"], table["high"], strict=True)
    return pd.DataFrame(
        {
            "Model": table["model"],
            "Hardware": table["hardware"],
            "Phases [s:req/s]": table["phases"],
            "Scheduler": table["scheduler"],
            "Than": table["than"],
            "Published [%]": table["published"].map(_signed),
            "Ours [%]": table["value"].map(_signed),
            "95% interval [%]": [f"{low:+.1f} to {high:+.1f}" for low, high in interval],
            "Seeds": table["n"].astype(str),
            "Ours is": table["verdict"],
            "Source": table["source"],
        }
    )


def _signed(value: float) -> str:
    return "" if pd.isna(value) else f"{value:+.1f}"


def to_markdown(table: pd.DataFrame, title: str, layout: Layout) -> str:
    """What comes out, then every comparison."""
    del layout  # a grid of its own
    sources = "; ".join(f"{name}: {SOURCES[name]}" for name in pd.unique(table["source"]))
    note = (
        f"{label(METRIC)} of the first scheduler less the second's, in percent of the second's, "
        f"seed by seed. {INCONCLUSIVE_PCT}% or less, or an interval that holds zero, is "
        f"inconclusive. Published: from the printed means. Ours is {sources}."
    )
    return f"# {title}\n\n{summary(table)}\n\n{note}\n\n{markdown_grid(grid(table))}\n"
