"""What the plugin adds to vLLM's schedule(), on the real scheduler: part of ``make bench``.

python -m tests.serving.overhead
"""

import statistics
import time

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from ppas.serving.scheduler import PPASScheduler

from .harness import fake_output, make_request, make_scheduler

RUNNING, STEPS, LIMIT_PCT = 256, 400, 2.0
OPTIONS = {"ppas": {"policy": "ppas_plus", "b_cap": 2048, "t_large": 65536}}


def loaded(cls: type, waiting: int):
    """A scheduler with 256 decodes, all that its sequence limit allows, and others waiting."""
    scheduler = make_scheduler(
        cls, max_num_batched_tokens=16384, max_num_seqs=RUNNING, num_blocks=40_000,
        additional_config=OPTIONS if cls is PPASScheduler else {},
    )  # fmt: skip
    for k in range(RUNNING + waiting):
        scheduler.add_request(make_request(str(k), 32, 10_000))
    step(scheduler)
    return scheduler


def step(scheduler) -> float:
    """Seconds that one schedule() takes; its output is delivered outside the clock."""
    start = time.perf_counter()
    scheduled = scheduler.schedule()
    taken = time.perf_counter() - start
    scheduler.update_from_output(scheduled, fake_output(scheduler, scheduled))
    return taken


def own_time(scheduler) -> float:
    """Seconds that the plugin's own part of schedule() takes: all but the call to vLLM's."""

    class Empty:
        total_num_scheduled_tokens = 0

    original = AsyncScheduler.schedule
    AsyncScheduler.schedule = lambda self, *args: Empty
    try:
        start = time.perf_counter()
        scheduler.schedule()
        return time.perf_counter() - start
    finally:
        AsyncScheduler.schedule = original


def measure(waiting: int) -> tuple[float, float, float]:
    """Medians in microseconds: stock schedule(), paired difference, the plugin's own part."""
    stock, plugin = loaded(AsyncScheduler, waiting), loaded(PPASScheduler, waiting)
    # In turn, and in changing order, so that the machine's drift falls on both alike.
    pairs = []
    for k in range(STEPS):
        if k % 2:
            with_plugin, plain = step(plugin), step(stock)
        else:
            plain, with_plugin = step(stock), step(plugin)
        pairs.append((plain, with_plugin - plain))
    own = statistics.median(own_time(plugin) for _ in range(STEPS))
    plain, added = (statistics.median(column) for column in zip(*pairs, strict=True))
    return 1e6 * plain, 1e6 * added, 1e6 * own


def main() -> None:
    """Print a line per number of waiting requests; exit with status 1 above the limit."""
    missed = False
    for waiting in (0, 1024, 16384):
        plain, added, own = measure(waiting)
        share = 100 * own / plain
        missed |= share > LIMIT_PCT
        print(
            f"schedule() with {RUNNING} running, {waiting:6,} waiting: stock {plain:7.1f} us, "
            f"plugin's own part {own:5.1f} us ({share:.2f}%, limit {LIMIT_PCT:g}%), "
            f"paired difference {added:+.1f} us ({100 * added / plain:+.2f}%)"
        )
    raise SystemExit(missed)


if __name__ == "__main__":
    main()
