"""Tidy tables as CSV, Markdown and LaTeX, laid out like the paper's.

The layout puts each metric's value of every source beside the paper's number. Formatting is fixed,
so equal tables give equal bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from ppas.paper.tidy import KEYS, PUBLISHED, SD, SETTING, SOURCES

LABELS = {
    "e2e_mean_s": "Avg. E2E [s]",
    "e2e_p95_s": "P95 E2E [s]",
    "ttft_mean_s": "TTFT [s]",
    "tpot_mean_s": "TPOT [s/token]",
    "makespan_s": "Makespan [s]",
    "improvement_pct:e2e_mean": "Avg. E2E [%]",
    "improvement_pct:e2e_p95": "P95 E2E [%]",
    "improvement_pct:ttft": "Avg. TTFT [%]",
    "improvement_pct:tpot": "Avg. TPOT [%]",
    "improvement_pct:makespan": "Makespan [%]",
    "request_wins_pct": "Requests faster [%]",
    "matched_requests": "Matched requests",
    "prefill_ms": "Prefill [ms]",
    "reduction_pct": "Reduction [%]",
    "sm_pct": "SM throughput [%]",
    "l2_hit_pct": "L2 hits [%]",
    "dram_pct": "DRAM throughput [%]",
    "b_max_tokens": "B_max [tokens]",
    "b_cap_tokens": "B_cap [tokens]",
    "t_large_tokens": "T_large [tokens]",
    "before_s": "Before [s]",
    "before_rate": "Rate before [req/s]",
    "burst_s": "Burst [s]",
    "after_s": "After [s]",
    "after_rate": "Rate after [req/s]",
    "burst_rate_low": "Low burst rate [req/s]",
    "burst_rate_high": "High burst rate [req/s]",
    "model": "Model",
    "hardware": "Hardware",
    "prompt_tokens": "Prompt tokens",
    "output_tokens": "Output tokens",
    "burst": "Burst rate [req/s]",
    "scheduler": "Scheduler",
    "metric": "Metric",
}
# As the paper prints; see ``digits``.
DIGITS = {"tpot_mean_s": 4, "matched_requests": 0, "prefill_ms": 1, "reduction_pct": 1}
DIGITS |= dict.fromkeys(("sm_pct", "l2_hit_pct", "dram_pct"), 2)
DIGITS |= dict.fromkeys(("b_max_tokens", "b_cap_tokens", "t_large_tokens"), 0)
DIGITS |= dict.fromkeys(("before_s", "burst_s", "after_s"), 0)
DIGITS |= dict.fromkeys(("before_rate", "after_rate", "burst_rate_low", "burst_rate_high"), 2)


@dataclass(frozen=True)
class Layout:
    """Which keys name the rows, which one the columns, and whether the lowest value is bold.

    ``decimals`` is for percentages that the paper prints with more than one; ``burst`` says what
    the rows' burst column holds.
    """

    rows: tuple[str, ...] = ("burst", "scheduler")
    columns: str = "metric"
    bold_lowest: bool = True
    decimals: int | None = None
    burst: str = LABELS["burst"]


def label(name: str) -> str:
    """How a reader sees a metric or a key."""
    return LABELS.get(name, name)


def short(name: str) -> str:
    """A metric's label without its unit, for running text."""
    return label(name).split(" [")[0]


def digits(metric: str, percent: int | None = None) -> int:
    """Decimals that the paper prints: ``percent`` or 1 for percentages, 3 for times, 4 for TPOT."""
    if percent is not None and "pct" in metric:
        return percent
    return DIGITS.get(metric.removesuffix(SD), 1 if "pct" in metric else 3)


def to_csv(table: pd.DataFrame) -> str:
    """The tidy table itself, six significant digits."""
    return table.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def to_markdown(table: pd.DataFrame, title: str, layout: Layout) -> str:
    """Heading, GitHub table and a note on the sources."""
    wide = spread(table, layout, bold="**{}**".format).reset_index()
    wide.columns = [" ".join(filter(None, name)) for name in wide.columns]
    return f"# {title}\n\n{setting(table)}\n\n{markdown_grid(wide)}\n\n{notes(table, layout)}\n"


def markdown_grid(frame: pd.DataFrame) -> str:
    """A frame of texts as a GitHub table; figures keep the digits they have."""
    return frame.to_markdown(index=False, disable_numparse=True)


def to_latex(table: pd.DataFrame, title: str, layout: Layout) -> str:
    """A ``table`` environment for booktabs and multirow."""
    wide = spread(table, layout, bold=r"\textbf{{{}}}".format)
    styler = wide.style.format_index(escape="latex").format_index(escape="latex", axis=1)
    caption = f"{title}. {setting(table)} {notes(table, layout)}"
    body = styler.to_latex(
        hrules=True,
        caption=_latex_escape(caption),
        column_format="l" * wide.index.nlevels + "r" * wide.shape[1],
        multicol_align="c",
        multirow_align="t",
        position="t",
    )
    return "% needs the packages booktabs and multirow\n" + body


def spread(table: pd.DataFrame, layout: Layout, bold: Callable[[str], str]) -> pd.DataFrame:
    """Wide frame of texts: one column per (label, source), one row per row key."""
    varied = [key for key in SETTING if table[key].nunique(dropna=False) > 1]
    rows = [key for key in varied if key != layout.columns] + list(layout.rows)
    rows = [key for key in rows if table[key].notna().any()]
    long = _by_source(table)
    numbers = zip(long["value"], long["metric"], strict=True)
    shown = [f"{v:.{digits(m, layout.decimals)}f}" for v, m in numbers]
    long = _with_deviation(long.assign(text=shown, number=[float(text) for text in shown]))
    if layout.bold_lowest:
        race = [key for key in KEYS if key != "scheduler"]
        lowest = long.groupby([*race, "source"], dropna=False)["number"].transform("min")
        long["text"] = long["text"].mask(long["number"] == lowest, long["text"].map(bold))
    for key in {*rows, layout.columns}:
        long[key] = long[key].map(lambda name: "" if pd.isna(name) else label(str(name)))
    columns = [layout.columns, "source"]
    order = long[rows].drop_duplicates(), long[columns].drop_duplicates()
    wide = long.pivot(index=rows, columns=columns, values="text")
    wide = wide.reindex(index=_index(order[0]), columns=_columns(order[1], layout.columns))
    wide.index.names = [layout.burst if name == "burst" else LABELS[name] for name in rows]
    return wide.fillna("").rename_axis(columns=[None, None])


def _with_deviation(long: pd.DataFrame) -> pd.DataFrame:
    """Fold each ``NAME:sd`` row into the text of its mean: ``4.559 ± 0.703``."""
    is_sd = long["metric"].str.endswith(SD)
    spread = long[is_sd].assign(metric=long["metric"].str.removesuffix(SD))
    spread = spread[[*KEYS, "source", "text"]]
    means = long[~is_sd].merge(spread, on=[*KEYS, "source"], how="left", suffixes=("", "_sd"))
    means["text"] += (" ± " + means["text_sd"]).fillna("")
    return means.drop(columns="text_sd")


def _by_source(table: pd.DataFrame) -> pd.DataFrame:
    """Stack ours and the paper's numbers: columns ``KEYS``, ``value``, ``source``."""
    ours = table[table["value"].notna()]
    theirs = table[table["published"].notna()].drop_duplicates(KEYS)
    theirs = theirs.assign(value=theirs["published"], source=PUBLISHED)
    # The table's own order of rows is the paper's; keep it when the two are stacked.
    stacked = pd.concat([theirs, ours]).sort_index(kind="stable")
    return stacked[[*KEYS, "value", "source"]].reset_index(drop=True)


def _index(rows: pd.DataFrame) -> pd.Index:
    if rows.shape[1] == 1:
        return pd.Index(rows.iloc[:, 0])
    return pd.MultiIndex.from_frame(rows)


def _columns(pairs: pd.DataFrame, key: str) -> pd.MultiIndex:
    names = pd.unique(pairs[key])
    sources = [source for source in SOURCES if source in set(pairs["source"])]
    wanted = [(name, source) for name in names for source in sources]
    have = set(pairs.itertuples(index=False, name=None))
    return pd.MultiIndex.from_tuples([pair for pair in wanted if pair in have])


def setting(table: pd.DataFrame) -> str:
    """What all rows share: model, hardware and lengths."""
    one = {key: table[key].iloc[0] for key in SETTING if table[key].nunique(dropna=False) == 1}
    units = {"prompt_tokens": " prompt tokens", "output_tokens": " output tokens"}
    texts = [f"{v}{units.get(k, '')}" for k, v in one.items() if not pd.isna(v)]
    return ", ".join(texts) + "."


def notes(table: pd.DataFrame, layout: Layout) -> str:
    """What the sources are and what is bold."""
    present = set(_by_source(table)["source"])
    sources = "; ".join(f"{name}: {what}" for name, what in SOURCES.items() if name in present)
    bold = " Lowest of each burst rate, metric and source in bold." if layout.bold_lowest else ""
    return f"Sources: {sources}.{bold}"


def _latex_escape(text: str) -> str:
    return text.replace("%", r"\%").replace("_", r"\_").replace("&", r"\&")
