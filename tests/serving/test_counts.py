"""What the plugin counts equals a rescan of vLLM's queues, whatever happens to requests."""

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus

from ppas.serving.scheduler import PPASScheduler

from .harness import fake_output, make_request, make_scheduler, snapshot

OPTIONS = {"ppas": {"policy": "ppas_plus", "b_cap": 24, "t_large": 60}}


class Lifecycle(RuleBasedStateMachine):
    """Requests come, run, are preempted, aborted and finished at any moment."""

    @initialize(blocks=st.integers(12, 40), seqs=st.integers(1, 6),
                order=st.sampled_from(["fcfs", "priority"]))  # fmt: skip
    def start(self, blocks, seqs, order):
        self.scheduler = make_scheduler(
            PPASScheduler,
            max_num_batched_tokens=64,
            max_num_seqs=seqs,
            num_blocks=blocks,
            policy=order,
            additional_config=OPTIONS,
        )
        self.flying = deque()
        self.added = 0

    @rule(prompt=st.integers(1, 150), output=st.integers(1, 20), priority=st.integers(0, 2))
    def add(self, prompt, output, priority):
        request = make_request(
            str(self.added), prompt, output, float(self.added), priority=priority
        )
        self.scheduler.add_request(request)
        self.added += 1

    @rule()
    def schedule(self):
        if len(self.flying) < 2:
            scheduled = self.scheduler.schedule()
            self.flying.append((scheduled, fake_output(self.scheduler, scheduled)))

    @rule()
    def deliver(self):
        if self.flying:
            self.scheduler.update_from_output(*self.flying.popleft())

    @rule(data=st.data())
    def abort(self, data):
        if self.scheduler.requests:
            name = data.draw(st.sampled_from(sorted(self.scheduler.requests)))
            self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    @rule(state=st.sampled_from(list(PauseState)))
    def pause(self, state):
        self.scheduler.set_pause_state(state)

    @rule()
    def preempt_all(self):
        # Only with nothing in flight, as the engine does it.
        while self.flying:
            self.deliver()
        self.scheduler.reset_prefix_cache(reset_running_requests=True)

    @invariant()
    def counts_equal_a_rescan(self):
        if not hasattr(self, "scheduler"):
            return
        counted, scanned = self.scheduler._ppas_snapshot(), snapshot(self.scheduler)
        assert {name: getattr(counted, name) for name in scanned._fields} == scanned._asdict()


TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(max_examples=150, stateful_step_count=60)
