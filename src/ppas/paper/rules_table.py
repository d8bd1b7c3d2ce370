"""Rules on a table's own numbers: each row that the paper prints against the row that we build."""

from contextlib import suppress

import pandas as pd

from ppas.paper import tidy
from ppas.paper.finding import (
    FAILS,
    HOLDS,
    INCONCLUSIVE,
    Finding,
    MissingCell,
    Rule,
    Side,
    clearly,
    worst,
)
from ppas.paper.improvement import improvement_rows
from ppas.paper.tables.render import short

FEW = 4  # rows that are told one by one; more are summed up


def _improvement(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    """The paper's improvements against ours, and against those recomputed from its own cells."""
    rows = printed_rows(rule, ours, paper)
    again = _recomputed(rows, paper) if "cells" in rule else [float("nan")] * len(rows)
    verdicts, published, got = [], [], []
    for row, recomputed in zip(rows.to_dict("records"), again, strict=True):
        points = _per_metric(tolerance["points"], row["metric"])
        gap = abs(row["published"] - recomputed)
        sound = pd.isna(recomputed) or gap <= tolerance["rounding_points"]
        verdict = _agreement(row["published"], row["value"], points, tolerance["inconclusive_pct"])
        verdicts.append(verdict if sound else FAILS)
        doubt = "" if sound else f" (its own cells give {recomputed:.2f}%)"
        published.append(f"{row['published']:g}% {_name(row, rows)}{doubt}")
        got.append(f"{row['value']:.2f}% {_name(row, rows)}")
    return Finding(*_told(published, got, rows, verdicts), worst(verdicts))


def printed_rows(rule: dict, ours: Side, paper: Side) -> pd.DataFrame:
    """The rows of a claim that the paper prints, ours beside them; none of ours may lack."""
    rows = ours.rows[ours.rows["published"].notna()]
    wanted = paper.printed
    for key, column in (("metric", "metric"), ("pairs", "scheduler"), ("models", "model")):
        if key in rule:
            names = rule[key] if isinstance(rule[key], list) else [rule[key]]
            rows, wanted = (frame[frame[column].isin(names)] for frame in (rows, wanted))
    rows = rows[rows["value"].notna()]
    if len(rows) < len(wanted) or rows.empty:
        raise MissingCell(f"{ours.source}: {len(wanted) - len(rows)} of {len(wanted)} rows missing")
    return rows


def _recomputed(rows: pd.DataFrame, paper: Side) -> pd.Series:
    """Each row from the paper's own cells, NaN where it prints none."""
    cells = paper.cells.astype({"burst": float})
    made = pd.Series(float("nan"), rows.index)
    for _, group in rows.groupby([*tidy.SETTING, "burst", "scheduler"], dropna=False):
        with suppress(ValueError):
            again = improvement_rows(cells, group).set_index("metric")["value"]
            made[group.index] = group["metric"].map(again)
    return made


def _agreement(printed: float, got: float, points: float, margin: float) -> str:
    clear = min(abs(printed), abs(got)) > margin
    if abs(printed - got) > points or (clear and printed * got < 0):
        return FAILS
    return HOLDS if clear else INCONCLUSIVE


def _per_metric(limit: float | dict[str, float], metric: str) -> float:
    return limit[metric] if isinstance(limit, dict) else limit


def _name(row: dict, rows: pd.DataFrame) -> str:
    """What tells a row from the others: its metric, model or group, and its pair."""
    varied = [str(row[key]) for key in ("model", "burst") if rows[key].nunique() > 1]
    metric = [short(row["metric"])] if rows["metric"].nunique() > 1 else []
    return " ".join([*metric, *varied, str(row["scheduler"])])


def _told(
    published: list[str], got: list[str], rows: pd.DataFrame, verdicts: list[str]
) -> tuple[str, str]:
    """Few rows in full; of many, how far ours are off, and every row that does not hold."""
    if len(rows) <= FEW:
        return "; ".join(published), "; ".join(got)
    gaps = (rows["published"] - rows["value"]).abs()
    text = f"{gaps.mean():.1f} points off on average, {gaps.max():.1f} at most"
    told = list(zip(published, got, verdicts, strict=True))
    for verdict in (FAILS, INCONCLUSIVE):
        named = [f"{mine} ({theirs.split('%')[0]}%)" for theirs, mine, v in told if v == verdict]
        text += f"; {verdict}: {', '.join(named)}" if named else ""
    doubts = [text for text in published if "its own cells" in text]
    return "; ".join([f"{len(rows)} rows", *doubts]), text


def _cells_within(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    """Mean and worst relative error of our cells per metric, and the paper's own consistency."""
    both = printed_rows({"metric": list(tolerance["mean_pct"])}, ours, paper)
    error = ((both["value"] / both["published"] - 1) * 100).abs()
    texts, verdicts = [], []
    for metric in pd.unique(both["metric"]):
        chosen = error[both["metric"] == metric]
        cell = both.loc[chosen.idxmax()]
        where = f"{cell['scheduler']} at {cell['burst']}"
        texts.append(
            f"{short(metric)}: mean {chosen.mean():.1f}%, worst {chosen.max():.1f}% ({where})"
        )
        within = chosen.mean() <= tolerance["mean_pct"][metric]
        within = within and chosen.max() <= tolerance["worst_pct"][metric]
        verdicts.append(HOLDS if within else FAILS)
    published, sound = _consistency(paper.printed, tolerance.get("identity_s"))
    return Finding(published, "; ".join(texts), worst([*verdicts, HOLDS if sound else FAILS]))


def _consistency(printed: pd.DataFrame, limit_s: float | None) -> tuple[str, bool]:
    """Whether E2E = TTFT + (n - 1) TPOT in every row of the paper's table, n output tokens."""
    text = f"{len(printed)} cells"
    if limit_s is None:
        return text, True
    rows = printed.pivot(index=tidy.KEYS[:-1], columns="metric", values="value").reset_index()
    intervals = rows["output_tokens"].astype(float) - 1
    gap = (rows["ttft_mean_s"] + intervals * rows["tpot_mean_s"] - rows["e2e_mean_s"]).abs()
    cell = rows.loc[gap.idxmax()]
    where = f"{cell['scheduler']} at {cell['burst']}"
    text += f"; E2E and TTFT + (n-1) TPOT differ by {gap.max():.4f} s at most ({where})"
    return text, bool(gap.max() <= limit_s)


def _largest(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    """The largest improvement of a table stands in the same row for us as for the paper."""
    rows = printed_rows(rule, ours, paper)
    tops = {key: rows.loc[rows[key].idxmax()] for key in ("published", "value")}
    texts = [f"{top[key]:.1f}% {_name(top.to_dict(), rows)}" for key, top in tops.items()]
    mine, theirs = tops["value"], tops["published"]
    if mine.name == theirs.name:
        return Finding(*texts, HOLDS)
    close = mine["value"] - rows.loc[theirs.name, "value"] <= tolerance["inconclusive_pct"]
    return Finding(*texts, INCONCLUSIVE if close else FAILS)


def _only_negative(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    """The named row is the only one in which P-PAS is worse, for us as for the paper."""
    rows = printed_rows(rule, ours, paper)
    named = (rows["burst"] == rule["burst"]) & (rows["scheduler"] == rule["scheduler"])
    texts, verdicts = [], []
    for key in ("published", "value"):
        lowest = rows[key].where(~named, -rows[key]).min()
        verdicts.append(clearly(lowest, tolerance["inconclusive_pct"]))
        negative = rows[rows[key] < 0].to_dict("records")
        texts.append("; ".join(f"{row[key]:.1f}% {_name(row, rows)}" for row in negative))
    return Finding(texts[0], texts[1] or "none", worst(verdicts))


def _near(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    """Each printed row within so many points or percent of ours; no sign is at stake."""
    rows = printed_rows(rule, ours, paper)
    gap = (rows["value"] - rows["published"]).abs()
    if "within_pct" in tolerance:
        gap, limit = gap / rows["published"] * 100, tolerance["within_pct"]
    else:
        limit = tolerance["points"]
    texts = [
        "; ".join(f"{row[key]:{form}} {_name(row, rows)}" for row in rows.to_dict("records"))
        for key, form in (("published", "g"), ("value", ".4g"))
    ]
    return Finding(*texts, HOLDS if gap.max() <= limit else FAILS)


RULES: dict[str, Rule] = {
    "improvement": _improvement,
    "cells_within": _cells_within,
    "largest": _largest,
    "only_negative": _only_negative,
    "near": _near,
}
DESCRIPTIONS = {
    "improvement": "{metric} is the paper's in every row of Table {table}, which follows from its "
    "own cells where it prints them",
    "cells_within": "every metric's mean and worst error over Table {table} stay in bounds",
    "largest": "{metric} is largest in the same row of Table {table}",
    "only_negative": "{metric} is negative for {scheduler}, {burst}, and nowhere else in Table "
    "{table}",
    "near": "{metric} of Table {table} is close to the paper's",
}
