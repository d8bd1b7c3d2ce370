"""Token times depend on what arrived when, not on how the bytes were divided."""

import json
from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppas.serving.stream import Chunk, Event, read_events, read_stream


def event(content: object, newline: bytes = b"\n") -> bytes:
    return b"data: " + json.dumps(content, ensure_ascii=False).encode() + newline * 2


def tokens(count: int, text: str = "", **more: object) -> bytes:
    return event({"choices": [{"text": text, "token_ids": [7] * count} | more]})


USAGE = event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 4}})
DONE = b"data: [DONE]\n\n"


def arriving(*parts: bytes) -> list[Chunk]:
    """Chunks that come at 1 s, 2 s and so on."""
    return [Chunk(float(time), data) for time, data in enumerate(parts, start=1)]


@st.composite
def divided_streams(draw) -> tuple[list[int], list[bytes], list[Chunk]]:
    """Tokens per event, the events, and their bytes divided anywhere, even in a character."""
    counts = draw(st.lists(st.integers(0, 3), max_size=8))
    newline = draw(st.sampled_from([b"\n", b"\r\n"]))
    text = st.text(max_size=4)
    events = [
        event({"choices": [{"text": draw(text), "token_ids": [7] * count}]}, newline)
        for count in counts
    ]
    whole = b"".join(events)
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=20)))
    edges = zip([0, *cuts], [*cuts, len(whole)], strict=True)
    return counts, events, arriving(*(whole[low:high] for low, high in edges))


@given(divided_streams())
def test_an_event_is_timed_by_the_chunk_that_completes_it(divided):
    counts, events, chunks = divided
    expected = []
    for i, count in enumerate(counts):
        needed, received = sum(map(len, events[: i + 1])), 0
        for chunk in chunks:
            received += len(chunk.data)
            if received >= needed:
                expected += [chunk.time_s] * count
                break
    stream = read_stream(chunks)
    assert stream.token_times_s == expected
    assert stream.error is None


def test_several_events_of_one_chunk_share_its_time():
    assert read_stream(arriving(tokens(1), tokens(1) + tokens(3))).token_times_s == [1, 2, 2, 2, 2]


def test_an_event_without_tokens_is_no_token():
    assert read_stream(arriving(tokens(0), tokens(1))).token_times_s == [2]


def test_the_prompts_ids_are_no_output():
    stream = read_stream(arriving(tokens(0, prompt_token_ids=[1, 2, 3]), tokens(2)))
    assert stream.token_times_s == [2, 2]


def test_first_text_is_the_first_that_is_not_empty():
    stream = read_stream(arriving(tokens(1), tokens(1, "a"), tokens(1, "b")))
    assert stream.first_text_s == 2
    assert isnan(read_stream(arriving(tokens(1))).first_text_s)


def test_usage_and_the_end_are_read():
    stream = read_stream(arriving(tokens(4), USAGE, DONE))
    assert (stream.prompt_tokens, stream.output_tokens, stream.done) == (5, 4, True)


def test_a_stream_without_its_end_is_not_done():
    stream = read_stream(arriving(tokens(4), USAGE, DONE[:-1]))
    assert (stream.done, stream.error) == (False, None)


def test_nothing_is_read_after_the_end():
    assert read_stream(arriving(tokens(1), DONE, tokens(1))).token_times_s == [1]


@pytest.mark.parametrize(
    "data, error",
    [
        (event({"error": {"message": "out\nof blocks"}}), "server error: out of blocks"),
        (event({"error": "out of blocks"}), 'server error: {"error": "out of blocks"}'),
        (b"data: {\n\n", "unreadable event {"),
        (event([]), "unreadable event []"),
        (event({"choices": 1}), 'unreadable event {"choices": 1}'),
        (event({"choices": [], "usage": {"total": 1}}), "unreadable event"),
        (event({"id": "x" * 1000}), "unreadable event"),
    ],
)
def test_an_error_in_the_stream_is_one_line_and_ends_it(data, error):
    stream = read_stream(arriving(tokens(1), data, tokens(1), DONE))
    assert stream.token_times_s == [1]
    assert stream.error.startswith(error)
    assert "\n" not in stream.error and len(stream.error) <= 250
    assert not stream.done


def test_comments_other_fields_and_lines_of_data_are_told_apart():
    text = b": ping\n\nevent: x\nid: 3\ndata: a\ndata:b\n\ndata"
    assert list(read_events(arriving(text))) == [Event(1, b"a\nb")]
