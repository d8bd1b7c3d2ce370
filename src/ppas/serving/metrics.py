"""Prometheus counters of steps and seconds by reason, beside vLLM's own on `/metrics`.

The scheduler lives in the engine process, `/metrics` in the API server. vLLM joins the counters
of several processes when PROMETHEUS_MULTIPROC_DIR is set (vllm/v1/metrics/prometheus.py), as it
does itself for several API servers; without it there is nothing to join, and no counter.
"""

import os

from ppas.policies import REASONS

FLUSH_S = 1.0  # seconds between writes; counting itself must cost nothing


class BudgetCounters:
    """Counts in plain integers and hands them to Prometheus once a second."""

    def __init__(self) -> None:
        from prometheus_client import Counter

        self._steps = Counter("ppas_steps", "Scheduler steps by reason for the budget", ["reason"])
        self._seconds = Counter("ppas_budget_seconds", "Seconds under each budget", ["reason"])
        self._pending = [[0, 0.0] for _ in REASONS]
        self._last: tuple[float, int] | None = None
        self._written = 0.0

    def count(self, now: float, reason: int) -> None:
        """Note a step; the time until the next one is spent under its budget."""
        if self._last is not None:
            before, earlier = self._last
            self._pending[earlier][1] += now - before
        self._pending[reason][0] += 1
        self._last = (now, reason)
        if now - self._written >= FLUSH_S:
            self.flush()
            self._written = now

    def stop(self) -> None:
        """The engine goes idle: write the counts, and let the idle time count for no budget."""
        self._last = None
        self.flush()

    def flush(self) -> None:
        """Hand what was counted to Prometheus."""
        for name, pending in zip(REASONS, self._pending, strict=True):
            if any(pending):
                self._steps.labels(name).inc(pending[0])
                self._seconds.labels(name).inc(pending[1])
                pending[0], pending[1] = 0, 0.0


def budget_counters() -> BudgetCounters | None:
    """Counters, where vLLM joins those of several processes; otherwise None."""
    return BudgetCounters() if os.environ.get("PROMETHEUS_MULTIPROC_DIR") else None
