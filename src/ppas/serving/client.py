"""The streaming client: replays the calls of a trace on a server of OpenAI's completions API.

Each call is sent at the replay's start plus its arrival, whatever became of the calls before it.
Meanwhile the event loop only sends, notes the time of each received chunk and keeps its bytes:
bodies are encoded before, streams are parsed after (`ppas.serving.stream`).

Calls and replies can be pickled: run `replay` in a process of its own, so that nothing else
delays it.
"""

import asyncio
import gc
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from math import isnan, nan
from time import perf_counter
from typing import Literal, NamedTuple, get_args

import aiohttp
import numpy as np

from ppas.serving.stream import Chunk, Stream, one_line, read_stream, server_message

FirstToken = Literal["tokens", "text"]
POLL_S = 0.001  # resolution of the event loop's timers
KEEP_ALIVE_S = 2.0  # below the server's (5 s in vLLM), which may close while we send
HEADERS = {
    "Content-Type": "application/json",
    "Accept-Encoding": "identity",  # a compressor would hold tokens back
}


class Call(NamedTuple):
    """A completion to ask for ``arrival_s`` seconds after the start, by the prompt's token ids."""

    arrival_s: float
    prompt: Sequence[int]
    output_tokens: int


@dataclass(frozen=True)
class Reply:
    """What became of a call: seconds since the replay's start, nan where it never happened.

    With an ``error`` there is no ``completed_s``, and no latency. Tokens are those of the
    server's usage, None if it sent none.
    """

    scheduled_s: float
    submitted_s: float  # just before the request is written
    first_token_s: float
    last_token_s: float
    completed_s: float  # end of a stream that brought all that was asked
    prompt_tokens: int | None
    output_tokens: int | None
    error: str | None  # one line

    @property
    def ttft_s(self) -> float:
        """Seconds from submission to the first token."""
        return nan if self.error else self.first_token_s - self.submitted_s

    @property
    def tpot_s(self) -> float:
        """Seconds per output token after the first, up to completion; nan for one token.

        (E2E - TTFT) / (n - 1), as in all rows of Tables 9 to 13.
        """
        if self.error or self.output_tokens == 1:
            return nan
        return (self.completed_s - self.first_token_s) / (self.output_tokens - 1)

    @property
    def e2e_s(self) -> float:
        """Seconds from submission to completion."""
        return self.completed_s - self.submitted_s


def replay(
    url: str,
    model: str,
    calls: Sequence[Call],
    timeout_s: float,
    first_token: FirstToken = "tokens",
) -> list[Reply]:
    """Send each call at its time and wait for all streams; one reply per call, in their order.

    A call may take ``timeout_s`` seconds from submission to completion. ``first_token`` says when
    a first token has come: with the first token id, or with the first text that is not empty (the
    paper's way; needs a server with a tokenizer). What goes wrong with a call is its reply's error,
    and nothing to the others.

    Raises:
        ValueError: ``first_token`` is neither.
    """
    if first_token not in get_args(FirstToken):
        raise ValueError(f"first_token is {first_token!r}: choose one of {get_args(FirstToken)}")
    endpoint = f"{url.rstrip('/')}/v1/completions"
    bodies = [json.dumps(_request(model, call)).encode() for call in calls]
    with _no_garbage_collection():
        exchanges = asyncio.run(_send_all(endpoint, calls, bodies, timeout_s))
    return [_reply(*pair, first_token) for pair in zip(calls, exchanges, strict=True)]


def problems(replies: Sequence[Reply], most: int = 5) -> list[str]:
    """The errors in one line each, by request; after ``most`` of them, how many more there are."""
    lines = [f"request {i}: {reply.error}" for i, reply in enumerate(replies) if reply.error]
    more = len(lines) - most
    return lines[:most] + ([f"and {more} more"] if more > 0 else [])


def lateness(replies: Sequence[Reply]) -> np.ndarray:
    """How late each request was sent, in seconds, by request."""
    return np.array([reply.submitted_s - reply.scheduled_s for reply in replies])


def _request(model: str, call: Call) -> dict[str, object]:
    return {
        "model": model,
        "prompt": list(call.prompt),
        "max_tokens": call.output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Keep the collector, which stops everything, out of the replay."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass
class _Exchange:
    """What was noted of a call while the replay ran, in seconds since its start."""

    submitted_s: float = nan
    status: int | None = None
    chunks: list[Chunk] = field(default_factory=list)
    ended_s: float = nan
    failure: str | None = None


async def _send_all(
    endpoint: str, calls: Sequence[Call], bodies: Sequence[bytes], timeout_s: float
) -> list[_Exchange]:
    exchanges = [_Exchange() for _ in calls]
    order = sorted(range(len(calls)), key=lambda i: calls[i].arrival_s)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=None)
    async with (
        aiohttp.ClientSession(
            connector=connector, headers=HEADERS, timeout=aiohttp.ClientTimeout()
        ) as session,
        asyncio.TaskGroup() as group,
    ):
        start = perf_counter()
        for i in order:
            await _until(start + calls[i].arrival_s)
            group.create_task(_send(session, endpoint, bodies[i], timeout_s, start, exchanges[i]))
    return exchanges


async def _until(moment: float) -> None:
    """Wait for a moment of ``perf_counter``.

    The event loop's timers are late by up to a millisecond, the resolution of its poll; the last
    one is therefore spent in turns of the loop.
    """
    if (wait_s := moment - perf_counter()) > POLL_S:
        await asyncio.sleep(wait_s - POLL_S)
    while perf_counter() < moment:
        await asyncio.sleep(0)


async def _send(
    session: aiohttp.ClientSession,
    endpoint: str,
    body: bytes,
    timeout_s: float,
    start: float,
    exchange: _Exchange,
) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            exchange.submitted_s = perf_counter() - start
            async with session.post(endpoint, data=body, allow_redirects=False) as response:
                exchange.status = response.status
                async for data in response.content.iter_any():
                    exchange.chunks.append(Chunk(perf_counter() - start, data))
                exchange.ended_s = perf_counter() - start
    except TimeoutError:
        exchange.failure = f"no answer within {timeout_s:g} s"
    except (aiohttp.ClientError, OSError) as error:
        cause = getattr(error, "os_error", error)  # aiohttp's own does not say "refused"
        exchange.failure = one_line(f"{type(cause).__name__}: {cause}")


def _reply(call: Call, exchange: _Exchange, first_token: FirstToken) -> Reply:
    stream = read_stream(exchange.chunks if exchange.status == HTTPStatus.OK else ())
    times = stream.token_times_s or [nan]
    error = _failure(call, exchange, stream) or _mismatch(call, stream, first_token)
    return Reply(
        scheduled_s=call.arrival_s,
        submitted_s=exchange.submitted_s,
        first_token_s=times[0] if first_token == "tokens" else stream.first_text_s,
        last_token_s=times[-1],
        completed_s=nan if error else exchange.ended_s,
        prompt_tokens=stream.prompt_tokens,
        output_tokens=stream.output_tokens,
        error=error,
    )


def _failure(call: Call, exchange: _Exchange, stream: Stream) -> str | None:
    """Why a stream did not come to its proper end, if so."""
    so_far = f"after {len(stream.token_times_s)} of {call.output_tokens} tokens"
    if exchange.failure:
        return f"{exchange.failure} {so_far}"
    if exchange.status != HTTPStatus.OK:
        body = b"".join(chunk.data for chunk in exchange.chunks)
        return f"HTTP status {exchange.status}: {server_message(body)}"
    if stream.error:
        return f"{stream.error} {so_far}"
    return None if stream.done else f"stream ended {so_far}"


def _mismatch(call: Call, stream: Stream, first_token: FirstToken) -> str | None:
    """What a whole stream has other than was asked, if so."""
    streamed, wanted, sent = len(stream.token_times_s), call.output_tokens, len(call.prompt)
    if stream.output_tokens is None:
        return "no usage in the stream"
    if stream.output_tokens != wanted:
        return f"{stream.output_tokens} output tokens by usage, {wanted} asked"
    if streamed == 0:
        return "no token ids in the stream: the server does not know return_token_ids"
    if streamed != wanted:
        return f"{streamed} token ids streamed, {wanted} asked"
    if stream.prompt_tokens != sent:
        return f"{stream.prompt_tokens} prompt tokens by usage, {sent} sent"
    if first_token == "text" and isnan(stream.first_text_s):
        return "no text in the stream: first_token 'text' needs a server with a tokenizer"
    return None
