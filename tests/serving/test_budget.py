"""The plugin's mixin on a stand-in for vLLM's scheduler: what it passes on and leaves behind."""

import csv
from types import SimpleNamespace

import pytest

from ppas import work
from ppas.serving.budget import TokenBudgetMixin
from ppas.serving.options import read_options, version_warning


class FakeScheduler:
    """As much of vLLM's scheduler as the mixin touches."""

    def __init__(self, ppas, *, limit=16384, version_of_today="ignored"):
        self.max_num_scheduled_tokens = limit
        self.vllm_config = SimpleNamespace(additional_config={"ppas": ppas})
        self.running, self.waiting, self.requests = [], [], {}
        self.calls, self.scheduled = [], {}

    def get_request_counts(self):
        return len(self.running), len(self.waiting)

    def schedule(self, *args, **kwargs):
        self.calls.append((args, kwargs, self.max_num_scheduled_tokens))
        return SimpleNamespace(
            total_num_scheduled_tokens=sum(self.scheduled.values()),
            num_scheduled_tokens=self.scheduled,
        )

    def has_requests(self):
        return bool(self.running or self.waiting)

    def shutdown(self):
        self.calls.append("shutdown")


class Plugin(TokenBudgetMixin, FakeScheduler):
    pass


PPAS = {"policy": "ppas", "b_cap": 2048}


def request(prompt=100, computed=0, is_prefill_chunk=False):
    return SimpleNamespace(
        num_prompt_tokens=prompt, num_computed_tokens=computed, is_prefill_chunk=is_prefill_chunk
    )


def test_unknown_arguments_of_schedule_are_passed_through():
    plugin = Plugin(PPAS)
    plugin.schedule(True, later="added")
    assert plugin.calls == [((True,), {"later": "added"}, 16384)]


def test_budget_is_set_for_the_step_and_restored():
    plugin = Plugin(PPAS)
    plugin.running, plugin.waiting = [request(computed=100)], [request(), request()]
    plugin.schedule()
    assert plugin.calls[0][2] == 2048
    assert plugin.max_num_scheduled_tokens == 16384


def test_budget_is_restored_when_vllm_fails():
    class Failing(FakeScheduler):
        def schedule(self):
            raise RuntimeError("out of blocks")

    class FailingPlugin(TokenBudgetMixin, Failing):
        pass

    plugin = FailingPlugin(PPAS)
    plugin.running, plugin.waiting = [request(computed=100)], [request(), request()]
    with pytest.raises(RuntimeError, match="out of blocks"):
        plugin.schedule()
    assert plugin.max_num_scheduled_tokens == 16384


def test_streaming_sessions_waiting_for_input_are_no_prefills():
    plugin = Plugin(PPAS)
    plugin.running, plugin.waiting = [request(computed=100)], [request(), request()]
    plugin.num_waiting_for_streaming_input = 1
    plugin.schedule()
    assert plugin.calls[0][2] == 16384


def test_requests_that_a_connector_filled_are_no_prefills():
    plugin = Plugin(PPAS)
    plugin.connector = object()
    plugin.running = [request(computed=100)]
    plugin.waiting, plugin.skipped_waiting = [request()], [request(computed=100)]
    plugin.schedule()
    assert plugin.calls[0][2] == 16384
    plugin.skipped_waiting.append(request(computed=99))
    plugin.schedule()
    assert plugin.calls[1][2] == 2048


def test_counting_does_not_touch_waiting_requests():
    class Untouchable:
        def __len__(self):
            return 10**6

        def __iter__(self):
            raise AssertionError("looked at every waiting request")

    plugin = Plugin(PPAS)
    plugin.running, plugin.waiting = [request(computed=100)], Untouchable()
    plugin.schedule()
    assert plugin.calls[0][2] == 2048


def test_step_log_is_written_at_shutdown(tmp_path):
    plugin = Plugin(PPAS | {"step_log": str(tmp_path / "log" / "steps.csv")})
    for _ in range(3):
        plugin.schedule()
    plugin.shutdown()
    (path,) = (tmp_path / "log").glob("steps.*.csv")
    assert len(path.read_text().splitlines()) == 4
    assert plugin.calls[-1] == "shutdown"


def test_going_idle_writes_the_log_for_vllm_may_kill_the_process(tmp_path):
    plugin = Plugin(PPAS | {"step_log": str(tmp_path / "steps.csv")})
    plugin.schedule()
    (path,) = tmp_path.glob("steps.*.csv")
    assert len(path.read_text().splitlines()) == 2


def test_step_log_says_what_a_step_asks_of_the_gpu(tmp_path):
    plugin = Plugin(PPAS | {"step_log": str(tmp_path / "steps.csv")})
    plugin.requests = {
        "chunk": request(9000, computed=3048, is_prefill_chunk=True),
        "last chunk": request(500, computed=500),
        "decode": request(100, computed=140),
        "longer decode": request(700, computed=701),
    }
    plugin.scheduled = {"chunk": 2048, "last chunk": 100, "decode": 1, "longer decode": 1}
    plugin.schedule()
    plugin.shutdown()
    with next(tmp_path.glob("steps.*.csv")).open() as file:
        (row,) = csv.DictReader(file)
    assert {name: float(row[name]) for name in work.COLUMNS} == {
        "scheduled_tokens": 2150,
        "prefill_tokens": 2148,
        "attention_pairs": 2048 * (1000 + 1024) + 100 * (400 + 50),
        "reloaded": 1000 + 400,
        "decode_context": 139 + 700,
        "decode_context_max": 700,
    }


def test_without_a_log_no_request_is_looked_at_for_it():
    plugin = Plugin(PPAS)
    plugin.scheduled = {"unknown to requests": 1}  # looking it up would raise
    assert plugin.schedule().num_scheduled_tokens == plugin.scheduled


def test_counters_leave_idle_time_out(tmp_path, monkeypatch):
    prometheus = pytest.importorskip("prometheus_client")
    from ppas.serving.metrics import BudgetCounters

    monkeypatch.setattr(prometheus, "Counter", lambda *args: Recorder())
    counters = BudgetCounters()
    for now in (10.0, 10.25, 10.5):
        counters.count(now, 1)
    counters.stop()
    counters.count(99.0, 2)
    counters.count(99.5, 2)
    counters.stop()
    assert counters._steps.total == {"low": 3, "count": 2}
    assert counters._seconds.total == {"low": 0.5, "count": 0.5}


class Recorder:
    """Stands in for a Prometheus counter."""

    def __init__(self):
        self.total = {}

    def labels(self, name):
        self.name = name
        return self

    def inc(self, value):
        self.total[self.name] = self.total.get(self.name, 0) + value


@pytest.mark.parametrize(
    "given, problem",
    [
        (None, "--additional-config: ppas: missing; for example"),
        ({"ppas": 3}, "--additional-config: ppas: 3 is not a dictionary"),
        ({"ppas": {}}, "--additional-config: ppas.policy: unknown policy None; choose from"),
        ({"ppas": {"policy": "best"}}, "ppas.policy: unknown policy 'best'; choose from static"),
        ({"ppas": {"policy": "ppas"}}, "ppas.b_cap: policy 'ppas' needs it"),
        ({"ppas": {"policy": "ppas", "b_cap": 0}}, "ppas.b_cap: 0 is not a positive whole"),
        ({"ppas": {"policy": "ppas", "b_cap": -5}}, "ppas.b_cap: -5 is not a positive whole"),
        ({"ppas": {"policy": "ppas", "b_cap": "2k"}}, "ppas.b_cap: '2k' is not a positive whole"),
        ({"ppas": {"policy": "ppas", "b_cap": 20000}}, "ppas.b_cap: 20000 is above b_max"),
        ({"ppas": {"policy": "ppas_plus", "b_cap": 9}}, "ppas.t_large: policy 'ppas_plus' needs"),
        ({"ppas": PPAS | {"bcap": 1}}, "ppas.bcap: not an option of policy 'ppas'; allowed:"),
        ({"ppas": PPAS | {"step_log": 1}}, "ppas.step_log: 1 is not a file's path"),
    ],
)
def test_wrong_options_stop_the_engine_with_one_line(given, problem):
    with pytest.raises(ValueError) as caught:
        read_options(given, 16384)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_versions_are_warned_about_and_used():
    assert "tested with vLLM 0.22.1, 0.27.1, 0.33.0; this is 0.99" in version_warning("0.99")
    assert version_warning("0.27.1") is None


def test_missing_vllm_says_how_to_install_it():
    from importlib.util import find_spec

    if find_spec("vllm"):
        import ppas.serving.scheduler as scheduler

        assert issubclass(scheduler.PPASScheduler, TokenBudgetMixin)
    else:
        with pytest.raises(ImportError, match="needs vLLM in this environment: pip install vllm"):
            import ppas.serving.scheduler  # noqa: F401
