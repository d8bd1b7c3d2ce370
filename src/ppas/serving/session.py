"""A server session: one vLLM server for all runs of a (model, scheduler), one after another.

Start, warm up, then for each run: replay, drain, check, keep. A run counts only if every request
came through whole and on time, and none found its prompt in the prefix cache. A server that dies
is restarted once, and the run that it spoiled is repeated.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from ppas.config import max_model_len
from ppas.measured import MeasuringFailed, Store, run_frame
from ppas.runs import Run
from ppas.schema import Config, SchedulerConfig
from ppas.serving import host, launch
from ppas.serving.client import Call, Reply, lateness, problems
from ppas.serving.client_process import ClientDied, ClientProcess
from ppas.serving.prompts import make_calls, make_prompt
from ppas.serving.provenance import provenance
from ppas.serving.server import Server, ServerDied, free_port
from ppas.workload import Trace, parse_phases

WARM_UPS = 2  # of each shape: the first one compiles and allocates
MAX_LATENESS_S = 0.05  # of the 99th percentile of sends; beyond it, the client was too slow
ATTEMPTS = 2  # at a run, before it counts as invalid
DRAIN_POLL_S = 0.02
NEWS_S = 10.0  # between two lines about a server that is starting
IN_FLIGHT = ("vllm:num_requests_running", "vllm:num_requests_waiting")
PREFIX_HITS, PREEMPTIONS = "vllm:prefix_cache_hits_total", "vllm:num_preemptions_total"
CHECKED = (PREFIX_HITS, PREEMPTIONS)
START, WARM_UP, REPLAY, DRAIN = "start", "warm-up", "replay", "drain"


class InvalidRuns(RuntimeError):
    """Runs that stay invalid when repeated, one line each."""


class Invalid(Exception):
    """Why one attempt at a run does not count, in one line."""


@dataclass
class Session:
    """Measures runs of one scheduler into a store."""

    config: Config
    scheduler: SchedulerConfig
    store: Store
    python: Path  # the interpreter that has vLLM
    notify: Callable[[str], Any] = print
    servers: list["Serving"] = field(default_factory=list)  # that were started

    def measure(self, runs: Sequence[Run]) -> None:
        """Measure those runs that the store lacks, each kept as soon as it is done; publish all.

        Raises:
            ServerDied: a second server has ended by itself; its log's end is in the message.
            InvalidRuns: some runs do not count; all others are kept.
            OSError: a result cannot be written; those before it are kept.
        """
        failed: list[str] = []
        with host.reserved(self.config.hardware.device, self.notify) as device:
            # Only now: the session that held the device may have measured the same runs.
            if left := deque(self.store.missing(runs)):
                self._serve_twice(left, failed, device)
            if failed:
                raise InvalidRuns("\n".join(failed))
            self.store.publish(self.config, runs)

    def _serve_twice(self, left: deque[Run], failed: list[str], device: Mapping[str, str]) -> None:
        with closing(ClientProcess()) as client:
            try:
                self._serve(left, failed, device, client)
            except ServerDied as error:
                self.notify(f"{error}\nrestarting it once; {len(left)} runs left")
                self._serve(left, failed, device, client)

    def _serve(
        self,
        left: deque[Run],
        failed: list[str],
        device: Mapping[str, str],
        client: ClientProcess,
    ) -> None:
        """Start a server and work through ``left``; what is done leaves the queue."""
        serving = Serving(self, client)
        self.servers.append(serving)
        attempts: Counter[str] = Counter()
        with serving.started(device):
            while left:
                run = left[0]
                attempts[run.run_id] += 1
                try:
                    serving.run(run)
                except Invalid as reason:
                    if not serving.server.healthy():
                        raise serving.server.died(f"ended during {label(run)}") from None
                    if attempts[run.run_id] < ATTEMPTS:
                        self.notify(f"{label(run)}: invalid, repeating it: {reason}")
                        continue
                    failed.append(f"{label(run)}: invalid: {reason}")
                left.popleft()


class Serving:
    """One server's part of a session, and where its time goes."""

    def __init__(self, session: Session, client: ClientProcess) -> None:
        self.session, self.client = session, client
        self.config, self.store = session.config, session.store
        self.id = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid4().hex[:6]}"
        self.log = self.store.logs / f"{self.id}.log"
        self.server: Server
        self.facts: dict[str, Any] = {}
        self.seconds: Counter[str] = Counter()  # by phase
        self.ready_at = 0.0

    @contextmanager
    def started(self, device: Mapping[str, str]) -> Iterator[None]:
        """A server that is up and warm; what it ran on is kept, with its times at the end."""
        config, session = self.config, self.session
        port, name = free_port(), f"{config.model.name}-{uuid4().hex[:8]}"
        model = launch.model_source(config.model, self.store.logs / "model")
        command = launch.serve_command(config, session.scheduler, session.python, model, port, name)
        environment = launch.serve_environment(config) | device
        with Server(command, self.log, port, name, environment) as self.server:
            with self._phase(START):
                self.server.wait_until_ready(config.backend.start_timeout_s, self._news())
            metrics = self.server.get("/metrics")[1]
            self.facts = provenance(session.python, command, environment, metrics)
            with self._phase(WARM_UP):
                self._warm_up()
            self.ready_at = time.monotonic()
            self.store.keep_session(self.id, self.facts)
            try:
                yield
            finally:
                if self.server.healthy():
                    self.store.keep_session(self.id, self.facts | self.times())

    def _news(self) -> Callable[[float], None]:
        """A line now and then while the server starts."""
        said = 0.0

        def tell(waited: float) -> None:
            nonlocal said
            if waited - said >= NEWS_S:
                said = waited
                self.session.notify(f"vLLM is starting: {waited:.0f} s; its log: {self.log}")

        return tell

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - start

    def times(self) -> dict[str, Any]:
        """Seconds by phase; overhead is the share after start-up that is no replay or drain."""
        total = time.monotonic() - self.ready_at
        busy = self.seconds[REPLAY] + self.seconds[DRAIN]
        return {
            "seconds": {name: round(value, 2) for name, value in self.seconds.items()},
            "overhead_pct": round(100 * (1 - busy / total), 2) if total else 0.0,
        }

    def _warm_up(self) -> None:
        """Serially, every shape of step: a whole chunk of each budget, then decodes.

        Raises:
            ServerDied: a warm-up request failed.
        """
        model, scheduler = self.config.model, self.session.scheduler
        most = max(self.config.workload.output_tokens)
        room = max_model_len(self.config) - most
        budgets = {scheduler.max_num_batched_tokens, scheduler.policy.get("b_cap")} - {None}
        lengths = {min(budget, room) for budget in budgets}
        for number in range(WARM_UPS):
            for length in sorted(lengths):
                prompt = make_prompt(length, model, f"{self.id}/warm-up/{length}/{number}")
                replies = self._replay([Call(0.0, prompt, most)])
                if wrong := problems(replies):
                    raise self.server.died(f"failed to warm up: {wrong[0]}")

    def _replay(self, calls: Sequence[Call]) -> list[Reply]:
        backend = self.config.backend
        return self.client.replay(
            self.server.url, self.server.name, calls, backend.request_timeout_s, backend.first_token
        )

    def run(self, run: Run) -> None:
        """One attempt at a run; it is kept if it counts.

        Raises:
            Invalid: it does not.
        """
        trace, before = run.trace, self._metrics(CHECKED)
        try:
            replies = self._replay(make_calls(trace, self.config.model, uuid4().hex))
        except ClientDied as error:
            raise Invalid(str(error)) from None
        finally:
            self._drain()
        ended = [reply.completed_s for reply in replies if reply.error is None]
        self.seconds[REPLAY] += max(ended, default=0.0)
        after = self._metrics(CHECKED)
        counted = {name: after[name] - before[name] for name in CHECKED}
        late = float(np.percentile(lateness(replies), 99)) if replies else 0.0
        check(replies, late, counted[PREFIX_HITS])
        columns = request_columns(trace, replies)
        facts = {
            "run": label(run),
            "session": self.id,
            "ended_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "lateness_p99_ms": round(late * 1000, 2),
            "preemptions": int(counted[PREEMPTIONS]),
        }
        self.store.keep(run, run_frame(self.config, run, columns), facts)
        mean = float(np.mean(columns["e2e_s"])) if len(trace) else float("nan")
        self.session.notify(f"{label(run)}: {len(trace)} requests, mean E2E {mean:.3f} s")

    def _drain(self) -> None:
        """Wait until nothing is left in the engine.

        Raises:
            Invalid: something stays.
        """
        with self._phase(DRAIN):
            deadline = time.monotonic() + self.config.backend.request_timeout_s
            while any(self._metrics(IN_FLIGHT).values()):
                if time.monotonic() > deadline:
                    raise Invalid("requests stay in the engine after the replay")
                time.sleep(DRAIN_POLL_S)

    def _metrics(self, names: Sequence[str]) -> dict[str, float]:
        """Values of some of the server's metrics, summed over their labels.

        Raises:
            Invalid: the server does not answer, or has no such metric.
        """
        try:
            text = self.server.get("/metrics")[1]
        except (OSError, HTTPException) as error:
            raise Invalid(f"the server does not answer: {error}") from None
        values = metric_values(text)
        if unknown := [name for name in names if name not in values]:
            raise Invalid(f"the server has no metric {unknown[0]}, which a run is checked by")
        return {name: values[name] for name in names}


def measure_store(
    config: Config,
    store: Store,
    runs: Sequence[Run],
    python: Path,
    notify: Callable[[str], Any] = print,
) -> Session:
    """Measure what a store lacks, then publish it.

    Raises:
        MeasuringFailed: what went wrong; all runs that count are kept for the next time.
    """
    missing = store.missing(runs)
    seconds = sum(duration for run in missing for duration, _ in parse_phases(run.phases))
    notify(
        f"{store.experiment} {store.slug}: {len(runs) - len(missing)} runs done, "
        f"{len(missing)} to measure, {seconds / 60:.1f} min of traces"
    )
    session = Session(config, runs[0].scheduler, store, python, notify)
    try:
        if not store.complete(runs):
            session.measure(runs)
    except (ServerDied, InvalidRuns, OSError) as error:
        left = len(store.missing(runs))
        raise MeasuringFailed(
            f"{store.experiment} {store.slug}: {error}\n{len(runs) - left} of {len(runs)} runs are "
            "kept; the same command goes on with the others"
        ) from error
    return session


def check(replies: Sequence[Reply], late_s: float, prefix_hits: float) -> None:
    """Whether an attempt counts; ``late_s`` is the 99th percentile of lateness.

    Raises:
        Invalid: it does not, and why.
    """
    if wrong := problems(replies):
        raise Invalid("; ".join(wrong))
    if prefix_hits:
        raise Invalid(f"{prefix_hits:g} prompt tokens were found in the prefix cache")
    if late_s > MAX_LATENESS_S:
        raise Invalid(f"requests were sent {late_s * 1000:.0f} ms late (99th percentile)")


def metric_values(text: str) -> dict[str, float]:
    """Samples of a /metrics page by name, summed over their labels."""
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values[sample.name] = values.get(sample.name, 0.0) + sample.value
    return values


def label(run: Run) -> str:
    """A run in words."""
    shape = f"{_range(run.prompt_tokens)}/{_range(run.output_tokens)} tokens"
    return f"{run.slug} burst {run.burst_rate:g} seed {run.seed} {shape}"


def _range(tokens: Sequence[int]) -> str:
    return f"{tokens[0]}" if len(tokens) == 1 else f"{min(tokens)}-{max(tokens)}"


def request_columns(trace: Trace, replies: Sequence[Reply]) -> dict[str, Any]:
    """A run's records: seconds since its start, latencies from the scheduled arrival.

    The paper counts from submission; the schedule is kept to within milliseconds, and counting
    from it leaves no delay of the client out (decision D8 of the claims).
    """
    arrival = np.array(trace.arrivals_s, float)
    first = np.array([reply.first_token_s for reply in replies], float)
    completed = np.array([reply.completed_s for reply in replies], float)
    outputs = np.array([reply.output_tokens for reply in replies], int)
    tpot = np.full(len(arrival), np.nan)
    np.divide(completed - first, outputs - 1, out=tpot, where=outputs > 1)
    return {
        "request_id": np.arange(len(arrival)),
        "arrival_s": arrival,
        "submitted_s": np.array([reply.submitted_s for reply in replies], float),
        "prompt_tokens": np.array([reply.prompt_tokens for reply in replies], int),
        "output_tokens": outputs,
        "first_token_s": first,
        "last_token_s": np.array([reply.last_token_s for reply in replies], float),
        "completed_s": completed,
        "ttft_s": first - arrival,
        "tpot_s": tpot,
        "e2e_s": completed - arrival,
        "error": np.full(len(arrival), None),
        # vLLM counts preemptions over all requests; the run's facts have them.
        "preemptions": np.full(len(arrival), np.nan),
    }
