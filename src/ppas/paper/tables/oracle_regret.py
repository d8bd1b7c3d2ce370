"""Appendix 10.1: what restricting P-PAS to two budgets costs, on the landscape of Figure 8.

The regret is how far the better of the two endpoints lies above the best of all tested MBTs.
"""

import pandas as pd

from ppas.paper.study import Study
from ppas.paper.tables.render import Layout, markdown_grid
from ppas.paper.tidy import SOURCES, burst_label

EXPERIMENTS = ("rtx5090_landscape_nemotron_30b",)
NOTE = "Mean E2E of the better endpoint against the best of all tested MBTs."
FORMATS = ("csv", "md")
TITLE = "Appendix 10.1: two endpoints against an oracle over all tested MBTs"
METRIC = "e2e_mean_s"
BUDGETS = ("b_cap_tokens", "b_max_tokens")
KEYS = ["model", "hardware", "prompt_tokens", "output_tokens", "burst", "source"]
COLUMNS = [*KEYS[:-1], "oracle", "oracle_s", "endpoint", "endpoint_s", "regret_pct", "source"]


def build(study: Study) -> pd.DataFrame:
    """Mean E2E in seconds of oracle and better endpoint, one row per load and output length."""
    cells = study.cells(*EXPERIMENTS)
    cells = cells[cells["metric"] == METRIC]
    chosen = cells[cells["scheduler"].isin(endpoints(study))]
    made = _best(cells, "oracle").merge(_best(chosen, "endpoint"), on=KEYS)
    made["regret_pct"] = (made["endpoint_s"] / made["oracle_s"] - 1) * 100
    made["burst"] = made["burst"].map(burst_label)
    return made[COLUMNS]


def endpoints(study: Study) -> list[str]:
    """B_cap and B_max as names of fixed MBTs, from the published Table 7."""
    model = study.cells(*EXPERIMENTS)["model"].iloc[0]
    table = study.published(7)
    budgets = table[
        (table["model"] == model) & table["metric"].isin(["b_cap_tokens", "b_max_tokens"])
    ]
    return [f"MBT {value:.0f}" for value in sorted(budgets["value"])]


def _best(cells: pd.DataFrame, name: str) -> pd.DataFrame:
    best = cells.loc[cells.groupby(KEYS)["value"].idxmin(), [*KEYS, "scheduler", "value"]]
    return best.rename(columns={"scheduler": name, "value": f"{name}_s"})


def grid(table: pd.DataFrame) -> pd.DataFrame:
    """The table as texts, one row per load and output length."""
    return pd.DataFrame(
        {
            "Load [req/s]": table["burst"],
            "Output tokens": table["output_tokens"].astype(str),
            "Best MBT": table["oracle"],
            "Avg. E2E of the best [s]": table["oracle_s"].map("{:.3f}".format),
            "Better endpoint": table["endpoint"],
            "Avg. E2E of the endpoint [s]": table["endpoint_s"].map("{:.3f}".format),
            "Regret [%]": table["regret_pct"].map("{:.1f}".format),
            "Source": table["source"],
        }
    )


def to_markdown(table: pd.DataFrame, title: str, layout: Layout) -> str:
    """Setting, grid and sources."""
    del layout  # a grid of its own
    one = table.iloc[0]
    sources = "; ".join(f"{name}: {SOURCES[name]}" for name in pd.unique(table["source"]))
    note = f"{one['model']}, {one['hardware']}, {one['prompt_tokens']} prompt tokens. {NOTE}"
    return f"# {title}\n\n{note}\n\n{markdown_grid(grid(table))}\n\nSources: {sources}.\n"
