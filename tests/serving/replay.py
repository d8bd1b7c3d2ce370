"""Serve requests through vLLM's real scheduler in virtual time.

`drive` replays the loop of vllm/v1/engine/core.py (`step_with_batch_queue`, `step`) with a step
time that the caller supplies, so that every decision falls at a known moment. Times are seconds of
virtual time, lengths are tokens, and a request is named by its index in the list given to `drive`.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from .harness import fake_output


class Step(NamedTuple):
    """One call of `schedule()`.

    `time` is the moment of the decision in seconds, `tokens` maps a request's index to the tokens
    it got (in the order of the scheduler's output; empty for an empty step), and `preempted` lists
    the requests preempted since the previous call, in ascending order.
    """

    time: float
    tokens: dict[int, int]
    preempted: list[int]


@dataclasses.dataclass(slots=True)
class Replay:
    """All steps of a run, and when each request got its first token and finished (seconds).

    `aborted` requests appear neither in `finish_time` nor in `finish_order`.
    """

    steps: list[Step] = dataclasses.field(default_factory=list)
    first_token_time: dict[int, float] = dataclasses.field(default_factory=dict)
    finish_time: dict[int, float] = dataclasses.field(default_factory=dict)
    aborted: set[int] = dataclasses.field(default_factory=set)

    @property
    def finish_order(self) -> list[int]:
        """Indices of the requests in the order in which they finished."""
        return list(self.finish_time)


class _Engine:
    """State of one replay; `run` is the busy loop, each method one of its phases."""

    def __init__(
        self,
        scheduler: Scheduler,
        requests: Sequence[Request],
        step_time: Callable[[dict[str, int]], float],
        aborts: Iterable[tuple[float, int]],
        clock: Callable[[float], None] | None,
    ) -> None:
        self.scheduler = scheduler
        self.requests = requests
        self.step_time = step_time
        self.clock = clock
        self.index = {request.request_id: i for i, request in enumerate(requests)}
        order = sorted(range(len(requests)), key=lambda i: requests[i].arrival_time)
        self.arrivals = deque(order)  # sorted() is stable: ties keep the caller's order
        self.aborts = deque(sorted(aborts))
        self.queue: deque[tuple[float, SchedulerOutput, ModelRunnerOutput]] = deque()
        self.now = 0.0
        self.device_free = 0.0
        self.replay = Replay()

    def run(self, in_flight: int, max_steps: int, empty_step_delay: float) -> Replay:
        """Run until every request left, as `EngineCoreProc.run_busy_loop` does."""
        while True:
            self.take_input()
            if not self.queue and not self.scheduler.has_requests():
                if not self.arrivals:
                    return self.replay
                self.wait_for_arrival()
                continue
            executed = self.step(in_flight)
            if len(self.replay.steps) > max_steps:
                raise RuntimeError(f"no end after {max_steps} steps")
            if not executed and self.scheduler.has_requests():
                self.now += empty_step_delay

    def take_input(self) -> None:
        """Add the requests that have arrived and drop those that were aborted."""
        while self.arrivals and self.requests[self.arrivals[0]].arrival_time <= self.now:
            self.scheduler.add_request(self.requests[self.arrivals.popleft()])
        self.take_aborts()

    def take_aborts(self) -> None:
        """Abort what was to be aborted by now; a request that is not there is passed over."""
        while self.aborts and self.aborts[0][0] <= self.now:
            _, index = self.aborts.popleft()
            name = self.requests[index].request_id
            if name in self.scheduler.requests:
                self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
                self.replay.aborted.add(index)

    def wait_for_arrival(self) -> None:
        """Idle until the next request arrives."""
        self.now = max(self.now, self.requests[self.arrivals[0]].arrival_time)

    def step(self, in_flight: int) -> bool:
        """`step_with_batch_queue` (in_flight 2) or `step` (1) of vllm/v1/engine/core.py.

        Schedule if there is anything to do; go on without waiting while the batch queue has room
        and the step did something or requests remain; otherwise wait for the oldest step.
        Returns whether the step just scheduled has tokens.
        """
        executed = False
        if self.scheduler.has_requests():
            executed = self.schedule()
            stuck = not executed and self.skip_dead_time()
            more = executed or self.scheduler.has_requests()
            if len(self.queue) < in_flight and more and not stuck:
                return executed
        finish, scheduled, output = self.queue.popleft()
        self.now = max(self.now, finish)
        self.finish_step(scheduled, output)
        return executed

    def schedule(self) -> bool:
        """Take one decision now and hand it to the device, which runs steps one after another."""
        if self.clock:
            self.clock(self.now)
        scheduled = self.scheduler.schedule()
        output = fake_output(self.scheduler, scheduled)
        tokens = scheduled.num_scheduled_tokens
        index = self.index
        preempted = sorted(index[name] for name in scheduled.preempted_req_ids or ())
        named = {index[name]: count for name, count in tokens.items()}
        self.replay.steps.append(Step(self.now, named, preempted))
        start = max(self.now, self.device_free)
        self.device_free = start + self.step_time(tokens) if tokens else start
        self.queue.append((self.device_free, scheduled, output))
        return bool(tokens)

    def skip_dead_time(self) -> bool:
        """After an empty step: jump to the next arrival or abort if nothing can change before it.

        So it is when the step preempted nobody, nothing with tokens is in flight, and unfinished
        requests remain. The engine would spin here, a millisecond at a time.
        """
        in_flight = any(step[1].total_num_scheduled_tokens for step in self.queue)
        if in_flight or self.replay.steps[-1].preempted:
            return False
        if not self.scheduler.has_unfinished_requests():
            return False
        moments = [self.requests[self.arrivals[0]].arrival_time] if self.arrivals else []
        moments += [self.aborts[0][0]] if self.aborts else []
        if not moments:
            raise RuntimeError("stuck: the scheduler holds requests but can never run them")
        self.now = max(self.now, min(moments))
        return True

    def finish_step(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> None:
        """Hand the result of the oldest step to the scheduler and note who got what, when.

        Aborts that came during the step go first (`_process_aborts_queue`).
        """
        self.take_aborts()
        if self.clock:
            self.clock(self.now)
        replay = self.replay
        for batch in self.scheduler.update_from_output(scheduled, output).values():
            for item in batch.outputs:
                index = self.index[item.request_id]
                if item.new_token_ids:
                    replay.first_token_time.setdefault(index, self.now)
                if item.finish_reason is not None:
                    replay.finish_time[index] = self.now


def drive(
    scheduler: Scheduler,
    requests: Sequence[Request],
    *,
    in_flight: int = 2,
    step_time: Callable[[dict[str, int]], float],
    aborts: Iterable[tuple[float, int]] = (),
    clock: Callable[[float], None] | None = None,
    max_steps: int = 1_000_000,
    empty_step_delay: float = 0.0,
) -> Replay:
    """Serve `requests` in virtual time and return every decision that the scheduler took.

    With `in_flight=2` (asynchronous scheduling) the decision for step k+1 is taken when step k
    starts; with 1 it is taken when step k ends. A request that arrives at the moment of a decision
    takes part in it. `step_time` maps {request id: tokens} of a non-empty step to seconds; empty
    steps take none. `aborts` holds (time, index) pairs. `clock` is told the virtual time before
    each `schedule()` and `update_from_output()`. The engine sleeps 1 ms after an empty step while
    requests remain (`_process_engine_step`): pass `empty_step_delay=0.001` to include it.
    """
    engine = _Engine(scheduler, requests, step_time, aborts, clock)
    return engine.run(in_flight, max_steps, empty_step_delay)
