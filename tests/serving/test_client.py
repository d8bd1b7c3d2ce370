"""The client against a stub server: schedule, times, and each way to fail."""

import gc
import multiprocessing
import os
import random
import signal
import socket
import statistics
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import accumulate
from math import isnan, nan
from time import perf_counter

import numpy as np
import pytest

from ppas.serving.client import Call, Reply, lateness, problems, replay

from .stub import FIRST_S, NEXT_S, prompt, stub

SLACK_S = 0.25  # what a busy machine may add to a delay of the stub
TIMEOUT_S = 20.0
RATE, REQUESTS, TRIES = 200, 10_000, 3
MAX_LATE_MS, MAX_DRIFT_MS = 5, 1


@pytest.fixture(scope="module")
def server():
    with stub() as url:
        yield url


@pytest.fixture(scope="module")
def worker():
    """A process for replays alone, as a session has one."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


def call(script: str, output_tokens: int = 4, arrival_s: float = 0.0) -> Call:
    return Call(arrival_s, prompt(script), output_tokens)


def ask(
    url: str, script: str, output_tokens: int = 4, timeout_s: float = TIMEOUT_S, **more
) -> Reply:
    return replay(url, "stub", [call(script, output_tokens)], timeout_s, **more)[0]


def near(delay_s: float):
    return pytest.approx(delay_s + SLACK_S / 2, abs=SLACK_S / 2 + 0.002)


@pytest.mark.parametrize(
    "script, ttft_s, tpot_s",
    [
        ("paced", FIRST_S, NEXT_S),
        ("empty_first", FIRST_S, NEXT_S),
        ("three_first", FIRST_S, NEXT_S / 3),  # the three at once, and one more
    ],
)
def test_times_are_those_of_the_tokens(server, script, ttft_s, tpot_s):
    reply = ask(server, script)
    assert reply.error is None
    assert (reply.prompt_tokens, reply.output_tokens) == (8, 4)
    assert reply.ttft_s == near(ttft_s)
    assert reply.tpot_s == near(tpot_s)
    assert reply.e2e_s == near(ttft_s + 3 * tpot_s)
    assert reply.last_token_s <= reply.completed_s == near(reply.last_token_s)
    assert 0 <= reply.submitted_s < reply.first_token_s < reply.last_token_s


def test_the_papers_first_token_is_the_first_text(server):
    by_tokens, by_text = (ask(server, "text_later", first_token=way) for way in ("tokens", "text"))
    assert by_tokens.ttft_s == near(FIRST_S)
    assert by_text.ttft_s == near(FIRST_S + NEXT_S)
    assert by_tokens.error is by_text.error is None


def test_the_first_token_is_by_tokens_or_text(server):
    with pytest.raises(ValueError, match="'words': choose one of"):
        ask(server, "at_once", first_token="words")


def test_one_token_has_no_time_per_output_token(server):
    reply = ask(server, "paced", output_tokens=1)
    assert reply.error is None
    assert reply.ttft_s == near(FIRST_S)
    assert reply.first_token_s == reply.last_token_s
    assert isnan(reply.tpot_s)


FAULTS = {
    "early_end": "stream ended after 2 of 4 tokens",
    "reset": "after 2 of 4 tokens",
    "stall": "no answer within 0.5 s after 2 of 4 tokens",
    "silent": "no answer within 0.5 s after 0 of 4 tokens",
    "in_band_error": "server error: the engine is dead after 2 of 4 tokens",
    "unreadable": 'unreadable event {"choices": [{"token_ids": [7 after 2 of 4 tokens',
    "http_error": "HTTP status 400: prompt is too long",
    "http_failure": "HTTP status 500: Internal Server Error",
    "fewer": "3 output tokens by usage, 4 asked",
    "more": "5 output tokens by usage, 4 asked",
    "lost_event": "3 token ids streamed, 4 asked",
    "other_prompt": "9 prompt tokens by usage, 8 sent",
    "no_usage": "no usage in the stream",
    "no_ids": "no token ids in the stream",
}
NO_TOKEN = {"silent", "http_error", "http_failure", "no_ids"}


def require_no_latency(reply: Reply) -> None:
    assert "\n" not in reply.error
    assert all(map(isnan, (reply.completed_s, reply.ttft_s, reply.tpot_s, reply.e2e_s)))


@pytest.mark.parametrize("script, error", FAULTS.items())
def test_a_fault_is_named_and_gives_no_latency(server, script, error):
    reply = ask(server, script, timeout_s=0.5)
    assert error in reply.error
    require_no_latency(reply)
    assert reply.submitted_s >= 0
    assert isnan(reply.first_token_s) == (script in NO_TOKEN)


def test_a_request_is_given_up_in_time(server):
    begin = perf_counter()
    ask(server, "silent", timeout_s=0.3)
    assert 0.3 <= perf_counter() - begin < 5  # the server would take an hour


def test_text_without_a_tokenizer_is_an_error(server):
    reply = ask(server, "at_once", first_token="text")
    assert reply.error.startswith("no text in the stream")
    require_no_latency(reply)


def test_a_fault_disturbs_no_other_request(server):
    """All faults at once, and between them requests that are as if alone."""
    calls = []
    for i, script in enumerate(FAULTS):
        calls += [call(script, arrival_s=0.02 * i), call("paced", arrival_s=0.02 * i)]
    replies = replay(server, "stub", calls, timeout_s=FIRST_S + 3 * NEXT_S + 1)
    assert all(reply.error for reply in replies[::2])
    for reply in replies[1::2]:
        assert reply.error is None
        assert reply.ttft_s == near(FIRST_S)
        assert reply.e2e_s == near(FIRST_S + 3 * NEXT_S)


def test_a_refused_connection_is_an_error_of_each_request():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"
    for reply in replay(url, "stub", [call("at_once"), call("at_once")], TIMEOUT_S):
        assert reply.error.startswith("ConnectionRefusedError")
        assert isnan(reply.first_token_s)
        require_no_latency(reply)


def test_a_killed_server_is_an_error_of_what_it_served():
    with stub() as url:
        calls = [call("at_once"), call("paced"), call("die", arrival_s=0.1)]
        calls.append(call("at_once", arrival_s=0.1 + 2 * NEXT_S))
        before, *during, after = replay(url, "stub", calls, TIMEOUT_S)
    assert before.error is None
    assert [reply.error.partition(" after ")[2] for reply in during] == [
        "0 of 4 tokens", "2 of 4 tokens",
    ]  # fmt: skip
    assert "ConnectionRefusedError" in after.error
    for reply in (*during, after):
        require_no_latency(reply)


def test_requests_are_sent_at_their_times_in_any_order(server):
    arrivals = [0.3, 0.0, 0.2, 0.2]
    calls = [call("paced", arrival_s=arrival) for arrival in arrivals]
    replies = replay(server, "stub", calls, TIMEOUT_S)
    assert [reply.scheduled_s for reply in replies] == arrivals
    assert [reply.submitted_s for reply in replies] == [near(arrival) for arrival in arrivals]
    assert problems(replies) == []


def test_the_garbage_collector_is_as_before(server):
    ask(server, "at_once")
    assert gc.isenabled()
    gc.disable()
    try:
        ask(server, "at_once")
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_no_calls_give_no_replies(server):
    assert replay(server, "stub", [], TIMEOUT_S) == []


def make_reply(error: str | None) -> Reply:
    return Reply(1.0, 1.5, nan, nan, nan, None, None, error)


def test_problems_are_named_by_request_and_then_counted():
    replies = [make_reply(error) for error in (None, "a", "b", None, "c")]
    assert problems(replies) == ["request 1: a", "request 2: b", "request 4: c"]
    assert problems(replies, most=2) == ["request 1: a", "request 2: b", "and 1 more"]
    assert problems(replies[:1]) == []


def test_lateness_is_counted_from_the_schedule():
    assert lateness([make_reply(None)] * 2).tolist() == [0.5, 0.5]


def test_a_killed_client_is_seen_at_once():
    """The session that waits for replies learns that there will be none."""
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
    ):
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        client = pool.submit(os.getpid).result()
        replies = pool.submit(replay, url, "stub", [call("silent")], 600.0)
        silent.settimeout(60)
        connection, _ = silent.accept()  # the replay is under way
        with connection, pytest.raises(BrokenProcessPool):
            os.kill(client, signal.SIGKILL)
            replies.result(timeout=60)


def test_two_hundred_requests_a_second_are_sent_on_time(server, worker):
    """Poisson arrivals for 50 s, some 400 streams at once; and on time at the end as at the start.

    Repeated on a machine that was busy with something else.
    """
    gaps = random.Random(0)
    arrivals = accumulate(gaps.expovariate(RATE) for _ in range(REQUESTS))
    calls = [call("paced", 4, arrival) for arrival in arrivals]
    measured = []
    for _ in range(TRIES):
        replies = worker.submit(replay, server, "stub", calls, TIMEOUT_S).result()
        assert problems(replies) == []
        late_ms = lateness(replies) * 1000
        fifths = [statistics.median(part) for part in np.array_split(late_ms, 5)]
        p50, p99 = np.percentile(late_ms, [50, 99])
        measured.append(
            f"late p50 {p50:.2f} ms, p99 {p99:.2f} ms, max {late_ms.max():.2f} ms, "
            f"medians of fifths {' '.join(f'{m:.2f}' for m in fifths)} ms"
        )
        print(f"\n{len(replies)} requests in {calls[-1].arrival_s:.1f} s: {measured[-1]}")
        if p99 <= MAX_LATE_MS and fifths[-1] - fifths[0] <= MAX_DRIFT_MS:
            return
    pytest.fail("; ".join(measured))
