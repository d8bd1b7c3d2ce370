"""Rules that decide a claim: each reads our numbers and the paper's and gives a ``Finding``.

A rule is a function ``(rule, tolerance, ours, paper) -> Finding``; ``rule`` and ``tolerance`` are
the mappings of ``data/published/claims.yaml``. Differences between two schedulers are in percent
of the second one's number.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

import pandas as pd

from ppas.paper import improvement, tidy

HOLDS, FAILS, INCONCLUSIVE = "holds", "fails", "inconclusive"
TRACE = ["arrival_s", "prompt_tokens", "output_tokens"]


class MissingCell(LookupError):
    """A claim needs a number that one side does not have."""


@dataclass(frozen=True)
class Finding:
    """What a rule found in the paper's numbers and in ours, and its verdict."""

    published: str
    got: str
    verdict: str


@dataclass(frozen=True)
class Side:
    """The numbers of one source: tidy ``cells`` in seconds, our request ``records``, and, for the
    paper, the table that states the claim as ``printed``."""

    source: str
    cells: pd.DataFrame
    records: pd.DataFrame = field(default_factory=pd.DataFrame)
    printed: pd.DataFrame = field(default_factory=pd.DataFrame)

    def value(self, burst: float | str, scheduler: str, metric: str) -> float:
        """One cell; raises MissingCell where this side has none."""
        key = (tidy.burst_label(burst), scheduler, metric)
        if key not in self._values:
            raise MissingCell(f"{self.source}: no cell for {', '.join(key)}")
        return self._values[key]

    @cached_property
    def _values(self) -> dict[tuple[str, str, str], float]:
        bursts = self.cells["burst"].map(tidy.burst_label)
        keys = zip(bursts, self.cells["scheduler"], self.cells["metric"], strict=True)
        return dict(zip(keys, self.cells["value"], strict=True))

    def bursts(self) -> list[float]:
        """Burst rates in requests/s, ascending."""
        return sorted({float(burst) for burst in self.cells["burst"]})

    def advantage_pct(self, burst: float, first: str, second: str, metric: str) -> float:
        """How much lower ``first`` is than ``second``, in percent of ``second``."""
        return (1 - self.value(burst, first, metric) / self.value(burst, second, metric)) * 100


Rule = Callable[[dict, dict, Side, Side], Finding]


def worst(verdicts: list[str]) -> str:
    """Fails if any fails, else inconclusive if any is, else holds."""
    return next((v for v in (FAILS, INCONCLUSIVE) if v in verdicts), HOLDS)


def _on_both(judge: Callable[[dict, dict, Side], tuple[str, str]]) -> Rule:
    """Ask a one-sided rule of the paper's numbers too: a claim they do not bear fails."""

    def both(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
        published, theirs = judge(rule, tolerance, paper)
        got, mine = judge(rule, tolerance, ours)
        return Finding(published, got, worst([theirs, mine]))

    return both


def _lower(rule: dict, tolerance: dict, side: Side) -> tuple[str, str]:
    margin = tolerance["inconclusive_pct"]
    texts, verdicts = [], []
    for burst in rule["bursts"]:
        for other in rule["than"]:
            gap = side.advantage_pct(burst, rule["scheduler"], other, rule["metric"])
            texts.append(f"{gap:+.1f}% under {other} at {burst}")
            verdicts.append(INCONCLUSIVE if abs(gap) <= margin else HOLDS if gap > 0 else FAILS)
    return "; ".join(texts), worst(verdicts)


def _close(rule: dict, tolerance: dict, side: Side) -> tuple[str, str]:
    limit, margin = tolerance["within_pct"], tolerance["inconclusive_pct"]
    texts, verdicts = [], []
    for burst in rule["bursts"]:
        gap = -side.advantage_pct(burst, rule["scheduler"], rule["to"], rule["metric"])
        texts.append(f"{gap:+.1f}% against {rule['to']} at {burst}")
        beyond = abs(gap) - limit
        verdicts.append(HOLDS if beyond <= 0 else INCONCLUSIVE if beyond <= margin else FAILS)
    return "; ".join(texts), worst(verdicts)


def _no_single_best(rule: dict, tolerance: dict, side: Side) -> tuple[str, str]:
    metric, bursts = rule["metric"], side.bursts()
    best = {
        burst: min(rule["among"], key=lambda name, b=burst: side.value(b, name, metric))
        for burst in bursts
    }
    verdicts = []
    for name in rule["schedulers"]:
        lost = max(side.advantage_pct(burst, best[burst], name, metric) for burst in bursts)
        beaten = lost > tolerance["inconclusive_pct"]
        verdicts.append(HOLDS if beaten else INCONCLUSIVE if lost > 0 else FAILS)
    return _winners(list(best.values()), bursts), worst(verdicts)


def _crossover(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    bursts = paper.bursts()
    theirs, mine = (_signs(rule, tolerance, side, bursts) for side in (paper, ours))
    verdicts = [_reversal(theirs), _reversal(mine)]
    if any(a * b < 0 for a, b in zip(theirs, mine, strict=True)):
        verdicts.append(FAILS)  # the order turns at another burst rate than in the paper
    if any(a != 0 and b == 0 for a, b in zip(theirs, mine, strict=True)):
        verdicts.append(INCONCLUSIVE)
    names = {1: rule["low"], -1: rule["high"], 0: "neither"}
    published, got = (_winners([names[s] for s in side], bursts) for side in (theirs, mine))
    return Finding(published, got, worst(verdicts))


def _signs(rule: dict, tolerance: dict, side: Side, bursts: list[float]) -> list[int]:
    """Per burst rate: 1 where the low-load scheduler is lower, -1 the other, 0 neither."""
    names = rule["low"], rule["high"]
    gaps = [side.advantage_pct(burst, *names, rule["metric"]) for burst in bursts]
    return [
        0 if abs(gap) <= tolerance["inconclusive_pct"] else 1 if gap > 0 else -1 for gap in gaps
    ]


def _reversal(signs: list[int]) -> str:
    clear = [sign for sign in signs if sign]
    if clear != sorted(clear, reverse=True) or (clear and len(set(clear)) == 1):
        return FAILS
    return HOLDS if signs[0] and signs[-1] else INCONCLUSIVE


def _winners(names: list[str], bursts: list[float]) -> str:
    """Neighbouring burst rates with the same winner, told together."""
    runs = groupby(zip(names, bursts, strict=True), key=lambda pair: pair[0])
    return "; ".join(f"{name} at {', '.join(str(b) for _, b in run)}" for name, run in runs)


def _improvement(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    """The paper's improvement against ours, and against one recomputed from the paper's cells."""
    rows = paper.printed[paper.printed["metric"] == rule["metric"]]
    printed = rows.set_index("scheduler")["value"]
    again, got = (_improvements(side, rows, paper.bursts()) for side in (paper, ours))
    published, mine, verdicts = [], [], []
    for pair in rule["pairs"]:
        sound = abs(printed[pair] - again[pair]) <= tolerance["rounding_points"]
        doubt = "" if sound else f" (its own cells give {again[pair]:.2f}%)"
        published.append(f"{printed[pair]:.1f}% {pair}{doubt}")
        mine.append(f"{got[pair]:.2f}% {pair}")
        verdicts.append(_agreement(printed[pair], got[pair], tolerance) if sound else FAILS)
    return Finding("; ".join(published), "; ".join(mine), worst(verdicts))


def _improvements(side: Side, rows: pd.DataFrame, bursts: list[float]) -> pd.Series:
    cells = side.cells.astype({"burst": float})
    try:
        made = improvement.improvement_rows(cells, rows, bursts)
    except ValueError as error:
        raise MissingCell(f"{side.source}: {error}") from error
    return made.set_index("scheduler")["value"]


def _agreement(printed: float, got: float, tolerance: dict) -> str:
    margin = tolerance["inconclusive_pct"]
    clear = min(abs(printed), abs(got)) > margin
    if abs(printed - got) > tolerance["points"] or (clear and printed * got < 0):
        return FAILS
    return HOLDS if clear else INCONCLUSIVE


def _cells_within(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    """Mean and worst relative error of our cells per metric, and the paper's own consistency."""
    both = tidy.beside(paper.printed, ours.cells).dropna(subset=["published"])
    if both["value"].isna().any():
        raise MissingCell(f"{ours.source}: {int(both['value'].isna().sum())} cells missing")
    error = ((both["value"] / both["published"] - 1) * 100).abs()
    texts, verdicts = [], []
    for metric in pd.unique(both["metric"]):
        chosen = error[both["metric"] == metric]
        cell = both.loc[chosen.idxmax()]
        where = f"{cell['scheduler']} at {cell['burst']}"
        texts.append(f"{metric}: mean {chosen.mean():.1f}%, worst {chosen.max():.1f}% ({where})")
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


def _same_traces(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    """Equal arrivals and lengths, request by request, for every scheduler of a seed and rate."""
    schedulers = ours.records["scheduler"].nunique()
    if schedulers < 2:
        raise MissingCell(f"{ours.source}: one scheduler has nothing to compare with")
    trace = ["experiment", "model", "hardware", "phases", "burst_rate", "seed"]
    counts = ours.records.groupby([*trace, "request_id"])[[*TRACE, "scheduler"]].nunique()
    equal = counts[TRACE].eq(1).all(axis=1) & counts["scheduler"].eq(schedulers)
    traces = equal.groupby(trace).all()
    got = f"{traces.sum()} of {len(traces)} traces equal for {schedulers} schedulers"
    return Finding("", got, HOLDS if traces.all() else FAILS)


RULES: dict[str, Rule] = {
    "lower": _on_both(_lower),
    "close": _on_both(_close),
    "crossover": _crossover,
    "no_single_best": _on_both(_no_single_best),
    "improvement": _improvement,
    "cells_within": _cells_within,
    "same_traces": _same_traces,
}
# How a reader sees a rule; fields are the rule's own parameters.
DESCRIPTIONS = {
    "lower": "{scheduler} has a lower {metric} than {than} at burst {bursts}",
    "close": "{metric} of {scheduler} is close to that of {to} at burst {bursts}",
    "crossover": "{low} has the lower {metric} at low burst rates and {high} at high ones, "
    "turning where the paper's do",
    "no_single_best": "none of {schedulers} has the lowest {metric} at every burst rate among "
    "{among}",
    "improvement": "{metric} of {pairs} is the paper's, which follows from Table {cells}",
    "cells_within": "every metric's mean and worst error over Table {table} stay in bounds",
    "same_traces": "all schedulers of a seed and burst rate get equal arrivals and lengths",
}
