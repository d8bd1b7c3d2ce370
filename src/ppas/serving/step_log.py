"""A step log of a running engine: one CSV row per schedule, buffered, one file per process."""

import csv
import os
from pathlib import Path
from typing import Any

from ppas import work
from ppas.policies import REASONS, Decision, Snapshot

COLUMNS = (
    "step",
    "time_s",  # since the engine started
    "prefills_running",
    "prefills_waiting",
    "decodes_running",
    "residual_prefill",
    "budget",
    *work.COLUMNS,
    "reason",
)
BUFFERED_ROWS, BUFFERED_S = 512, 1.0  # what a kill can cost, in rows or seconds


class StepLog:
    """Appends rows to ``<path stem>.<process id><suffix>``; an engine process has its own file.

    Several engines (data parallelism) share an option, never a file.
    """

    def __init__(self, path: Path):
        self.path = path.with_name(f"{path.stem}.{os.getpid()}{path.suffix or '.csv'}")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.rows: list[tuple[Any, ...]] = []
        self.steps = 0
        self.written_at = 0.0
        with self.path.open("w", newline="") as file:
            csv.writer(file).writerow(COLUMNS)

    def add(self, seen: Snapshot, decision: Decision, done: work.Work) -> None:
        """Log one step: what the scheduler saw, decided and scheduled."""
        self.rows.append(
            (
                self.steps,
                f"{seen.now:.6f}",
                seen.prefills_running,
                seen.prefills_waiting,
                seen.decodes_running,
                seen.residual_prefill,
                decision.total_budget,
                *done,
                REASONS[decision.reason],
            )
        )
        self.steps += 1
        if len(self.rows) >= BUFFERED_ROWS or seen.now - self.written_at >= BUFFERED_S:
            self.written_at = seen.now
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows."""
        with self.path.open("a", newline="") as file:
            csv.writer(file).writerows(self.rows)
        self.rows.clear()
