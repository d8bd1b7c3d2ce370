"""From the bytes of a streamed completion to the times of its tokens: pure, after the replay.

A token is an entry of ``choices[0].token_ids`` (vLLM's ``return_token_ids``), never a text or an
event: an event may bring none or several, and a server without a tokenizer sends no text. Counting
by ``continuous_usage_stats`` instead is not supported: a server that sends no ids is refused by
name, so that all numbers count tokens in the same way.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import isnan, nan
from typing import NamedTuple

DONE = b"[DONE]"
MESSAGE_CHARACTERS = 200  # of what a server says, in an error of one line
_BLANK_LINE = re.compile(rb"\r?\n\r?\n")


class Chunk(NamedTuple):
    """Bytes as received together."""

    time_s: float
    data: bytes


class Event(NamedTuple):
    """A server-sent event; its time is that of the chunk with its last byte."""

    time_s: float
    data: bytes


@dataclass
class Stream:
    """What a completion's stream brought, and when, on the clock of its chunks."""

    token_times_s: list[float] = field(default_factory=list)  # one per output token
    first_text_s: float = nan
    prompt_tokens: int | None = None  # by the server's usage
    output_tokens: int | None = None
    error: str | None = None  # the first one inside the stream, one line
    done: bool = False  # the server's [DONE] came


def read_stream(chunks: Sequence[Chunk]) -> Stream:
    """Follow the events of a completion up to its [DONE], its first error, or its last chunk."""
    stream = Stream()
    for event in read_events(chunks):
        if stream.error or stream.done:
            break
        try:
            _add(event, stream)
        except (AttributeError, KeyError, TypeError, ValueError):
            stream.error = one_line(f"unreadable event {event.data.decode(errors='replace')}")
    return stream


def _add(event: Event, stream: Stream) -> None:
    if event.data == DONE:
        stream.done = True
        return
    content = json.loads(event.data)
    if content.get("error"):
        stream.error = f"server error: {server_message(event.data)}"
        return
    if usage := content.get("usage"):
        stream.prompt_tokens = usage["prompt_tokens"]
        stream.output_tokens = usage["completion_tokens"]
    for choice in content["choices"]:  # one, or none beside the usage
        stream.token_times_s += [event.time_s] * len(choice.get("token_ids") or ())
        if choice.get("text") and isnan(stream.first_text_s):
            stream.first_text_s = event.time_s


def read_events(chunks: Sequence[Chunk]) -> Iterator[Event]:
    """The whole server-sent events in some chunks, however the chunks divide them.

    An event ends with a blank line. Comments and fields other than ``data`` are left out, and so
    is what follows the last blank line.
    """
    received = list(accumulate(len(chunk.data) for chunk in chunks))
    text = b"".join(chunk.data for chunk in chunks)
    start = 0
    for end in _BLANK_LINE.finditer(text):
        lines = text[start : end.start()].splitlines()
        data = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
        if data:
            yield Event(chunks[bisect_left(received, end.end())].time_s, b"\n".join(data))
        start = end.end()


def server_message(body: bytes) -> str:
    """What an OpenAI error body says, in one line; the body itself if it is anything else."""
    try:
        return one_line(json.loads(body)["error"]["message"])
    except (KeyError, TypeError, ValueError):
        return one_line(body.decode(errors="replace"))


def one_line(text: object) -> str:
    """A text without line breaks, shortened."""
    return " ".join(str(text).split())[:MESSAGE_CHARACTERS]
