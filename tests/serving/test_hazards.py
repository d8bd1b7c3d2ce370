"""What went wrong for others with scheduler plugins must not go wrong here."""

import csv
import logging

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState

from ppas.serving.options import TESTED_VLLM, version_warning
from ppas.serving.scheduler import PPASScheduler, PPASSyncScheduler

from .harness import make_request, make_scheduler
from .replay import drive

PPAS = {"policy": "ppas", "b_cap": 2048}


def scheduler(options=PPAS, cls=PPASScheduler, mbt=16384, **engine):
    sizes = {"max_num_seqs": 64, "num_blocks": 20_000} | engine
    return make_scheduler(
        cls, max_num_batched_tokens=mbt, additional_config={"ppas": options}, **sizes
    )


def serve(made, shapes, flying=2):
    requests = [make_request(str(k), p, o, a) for k, (a, p, o) in enumerate(shapes)]
    replay = drive(made, requests, in_flight=flying, step_time=lambda tokens: 1.0)
    return [step for step in replay.steps if step.tokens], replay


def test_synchronous_class_under_async_scheduling_is_refused():
    with pytest.raises(ValueError, match=r"name ppas\.serving\.scheduler\.PPASScheduler$"):
        scheduler(cls=PPASSyncScheduler, async_scheduling=True)


def test_default_class_serves_synchronous_engines_too():
    shapes = [(0, 5000, 40), (3, 30_000, 2), (3, 30_000, 2)]
    plain, _ = serve(scheduler(cls=PPASSyncScheduler, async_scheduling=False), shapes, flying=1)
    default, _ = serve(scheduler(async_scheduling=False), shapes, flying=1)
    assert default == plain


def test_plugin_keeps_asynchronous_scheduling():
    assert issubclass(PPASScheduler, AsyncScheduler)


def test_lone_request_gets_the_whole_budget():
    steps, _ = serve(scheduler(), [(0, 25_000, 4)])
    assert [step.tokens[0] for step in steps[:2]] == [16384, 25_000 - 16384]


def test_cap_is_observed_and_lifted():
    made = scheduler()
    steps, replay = serve(made, [(0, 5000, 40), (3, 30_000, 2), (3, 30_000, 2)])
    totals = [sum(step.tokens.values()) for step in steps]
    assert totals.count(2048) > 5
    assert max(totals) > 2048
    assert len(replay.finish_time) == 3
    assert made.max_num_scheduled_tokens == 16384  # as vLLM left it


def test_budget_never_exceeds_vllms_own_limit(caplog):
    with caplog.at_level(logging.WARNING, "vllm.ppas"):
        logging.getLogger("vllm").propagate = True
        made = scheduler(PPAS | {"b_max": 32768}, mbt=8192, max_num_scheduled_tokens=4096)
    assert "b_max 32768 is above vLLM's own limit; using 4096" in caplog.text
    steps, _ = serve(made, [(0, 25_000, 4)])
    assert max(sum(step.tokens.values()) for step in steps) == 4096


@pytest.mark.parametrize("cap_scope", ["global", "prefill"])
def test_cap_below_a_mamba_block_does_not_starve(caplog, cap_scope):
    options = {"policy": "ppas", "b_cap": 768, "cap_scope": cap_scope}
    with caplog.at_level(logging.WARNING, "vllm.ppas"):
        logging.getLogger("vllm").propagate = True
        made = make_scheduler(
            _with_blocks(784), max_num_batched_tokens=2048, max_num_seqs=20, num_blocks=20_000,
            additional_config={"ppas": options},
        )  # fmt: skip
    assert "The smallest safe b_cap is 784" in caplog.text
    made.need_mamba_block_aligned_split = True
    steps, replay = serve(made, [(0, 1500, 200), (2, 8000, 3), (2, 8000, 3)])
    assert len(replay.finish_time) == 3
    # While the first request decodes, every step brings the others' prefills a block on.
    last = max(k for k, step in enumerate(steps) if max(step.tokens.values()) > 1)
    pressed = [step for step in steps[4:last] if 0 in step.tokens]
    assert len(pressed) > 10
    assert all(max(step.tokens.values()) > 1 for step in pressed)


def _with_blocks(block):
    """A plugin whose engine claims a hybrid model before the plugin looks."""

    class Hybrid(PPASScheduler):
        def _ppas_block_aligned_chunk(self):
            self.need_mamba_block_aligned_split = True
            self.cache_config.block_size = self.block_size = block
            return super()._ppas_block_aligned_chunk()

    return Hybrid


def test_paused_engine_schedules_nothing_and_goes_on():
    made = scheduler()
    made.add_request(make_request("0", 3000, 2))
    made.set_pause_state(PauseState.PAUSED_ALL)
    assert made.schedule().total_num_scheduled_tokens == 0
    made.set_pause_state(PauseState.UNPAUSED)
    assert made.schedule().total_num_scheduled_tokens == 3000


def test_speculative_tokens_of_decodes_stay_outside_a_prefill_cap():
    made = scheduler(PPAS | {"cap_scope": "prefill"})
    made._ppas_tokens_per_decode = 4  # three draft tokens per decode
    serve(made, [(0, 100, 2)])
    for name in ("8", "9"):
        made.add_request(make_request(name, 100, 50))
    made.schedule()
    assert made._ppas_snapshot().decode_tokens == 8


@pytest.mark.parametrize("order", ["fcfs", "priority"])
def test_static_equals_stock_under_either_order(order):
    shapes = [(k * 0.5, 60 + 30 * k, 150, k % 3) for k in range(12)]

    def steps(cls, extra):
        made = make_scheduler(
            cls, max_num_batched_tokens=256, max_num_seqs=6, num_blocks=60, policy=order, **extra
        )
        requests = [
            make_request(str(k), p, o, a, priority=r) for k, (a, p, o, r) in enumerate(shapes)
        ]
        replay = drive(made, requests, step_time=lambda tokens: 1.0)
        return [(step.tokens, step.preempted) for step in replay.steps]

    plugin = steps(PPASScheduler, {"additional_config": {"ppas": {"policy": "static"}}})
    assert plugin == steps(AsyncScheduler, {})
    assert any(preempted for _, preempted in plugin)


def test_step_log_shows_both_budgets(tmp_path):
    made = scheduler(PPAS | {"step_log": str(tmp_path / "steps.csv")})
    steps, _ = serve(made, [(0, 5000, 40), (3, 30_000, 2), (3, 30_000, 2)])
    made.shutdown()
    with next(tmp_path.glob("steps.*.csv")).open() as file:
        log = [row for row in csv.DictReader(file) if row["scheduled_tokens"] != "0"]
    totals = [int(row["scheduled_tokens"]) for row in log]
    assert totals == [sum(step.tokens.values()) for step in steps]
    assert {row["budget"] for row in log} == {"2048", "16384"}
    assert {row["reason"] for row in log} == {"low", "count"}
    assert sum(int(row["prefill_tokens"]) for row in log) == 5000 + 2 * 30_000


def test_this_version_is_tested():
    from vllm import __version__

    assert version_warning(__version__) is None, TESTED_VLLM
