"""What a rule is given (``Side``) and what it returns (``Finding``).

A rule is a function ``(rule, tolerance, ours, paper) -> Finding``; ``rule`` and ``tolerance`` are
the mappings of ``data/published/claims.yaml``. Differences between two schedulers are in percent
of the second one's number.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd

from ppas.paper import tidy
from ppas.paper.study import Study

HOLDS, FAILS, INCONCLUSIVE = "holds", "fails", "inconclusive"
NOT_EVALUATED = "not evaluated"


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
    """The numbers of one source.

    Tidy ``cells`` in seconds and our request ``records``; ``printed`` is, on the paper's side,
    the table that states the claim, and ``rows`` on ours that table as we build it. ``study`` and
    ``experiments`` are for rules that look at more than these.
    """

    source: str
    cells: pd.DataFrame = field(default_factory=pd.DataFrame)
    records: pd.DataFrame = field(default_factory=pd.DataFrame)
    printed: pd.DataFrame = field(default_factory=pd.DataFrame)
    rows: pd.DataFrame = field(default_factory=pd.DataFrame)
    study: Study | None = None
    experiments: tuple[str, ...] = ()

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


def clearly(value: float, margin: float) -> str:
    """Holds above the margin, fails below its negative, inconclusive between."""
    return HOLDS if value > margin else INCONCLUSIVE if value >= -margin else FAILS


def on_both(judge: Callable[[dict, dict, Side], tuple[str, str]]) -> Rule:
    """Ask a one-sided rule of the paper's numbers too: a claim they do not bear fails."""

    def both(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
        published, theirs = judge(rule, tolerance, paper)
        got, mine = judge(rule, tolerance, ours)
        return Finding(published, got, worst([theirs, mine]))

    return both
