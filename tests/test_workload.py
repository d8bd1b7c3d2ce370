"""Traces are bit-identical to the paper's, whatever schedules them."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from ppas.workload import (
    format_phases,
    make_trace,
    parse_phases,
    poisson_arrivals,
    stratified_shapes,
)

GOLDEN = json.loads((Path(__file__).parent / "golden" / "traces.json").read_text())
OUTPUTS = (16, 32, 64, 128, 256)
QWEN, NEMOTRON = (8192, 16384, 32768, 65536), (16384, 32768, 65536, 131072)


@pytest.mark.parametrize("condition", GOLDEN)
def test_arrivals_match_the_papers(condition):
    steady, burst = (float(part.split("=")[1]) for part in condition.split("|")[1:])
    phases = parse_phases(f"10:{steady},10:burst,10:{steady},10:burst,10:{steady}", burst)
    arrivals = [poisson_arrivals(phases, seed) for seed in range(5)]
    golden = GOLDEN[condition]
    assert [len(times) for times in arrivals] == golden["counts_seed0_4"]
    assert [round(time, 6) for time in arrivals[0][:3]] == golden["first3_seed0"]
    spans = [round(times[-1] - times[0], 3) for times in arrivals]
    assert spans == golden["first_to_last_s"]


def test_heterogeneous_shapes_match_the_papers():
    nemotron = make_trace([(20, 0.1), (10, 0.2), (20, 0.1)], 0, NEMOTRON, OUTPUTS)
    assert list(zip(nemotron.prompt_tokens, nemotron.output_tokens, strict=True)) == [
        (32768, 16), (16384, 128), (65536, 128), (131072, 256), (65536, 32), (32768, 64),
    ]  # fmt: skip
    qwen = make_trace([(20, 0.05), (10, 0.1), (20, 0.05)], 0, QWEN, OUTPUTS)
    assert list(zip(qwen.prompt_tokens, qwen.output_tokens, strict=True)) == [
        (8192, 128), (32768, 256),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "prompts, steady, bursts, seeds, total",
    [
        (QWEN, 0.05, (0.1, 0.4), 10, 488),
        (QWEN, 0.05, (0.1, 0.4), 11, 525),
        (NEMOTRON, 0.1, (0.2, 0.8), 11, 1045),
    ],
)
def test_matched_request_totals(prompts, steady, bursts, seeds, total):
    counts = [
        len(make_trace([(20, steady), (length, burst), (20, steady)], seed, prompts, OUTPUTS))
        for length in (10, 20, 40)
        for burst in bursts
        for seed in range(seeds)
    ]
    assert sum(counts) == total


@pytest.mark.parametrize("count", [0, 1, 19, 20, 21, 45])
def test_shapes_are_stratified(count):
    counts = Counter(stratified_shapes(count, QWEN, OUTPUTS, random.Random(1)))
    assert sum(counts.values()) == count
    shares = [counts[(prompt, output)] for prompt in QWEN for output in OUTPUTS]
    assert max(shares) - min(shares) <= 1


def test_rate_zero_gives_no_arrivals():
    assert poisson_arrivals([(10, 0.0)], 0) == []
    assert len(make_trace([(10, 0.0)], 0, (25000,), (32,))) == 0


def test_phases_survive_a_round_trip():
    phases = parse_phases("10:0.2, 10:burst,0.5:1e0", burst_rate=1.4)
    assert phases == [(10, 0.2), (10, 1.4), (0.5, 1.0)]
    assert parse_phases(format_phases(phases)) == phases


@pytest.mark.parametrize(
    "text, problem",
    [
        ("", "not duration_s:rate"),
        ("10", "not duration_s:rate"),
        ("10:0.2,", "not duration_s:rate"),
        ("10:fast", "not duration_s:rate"),
        ("0:0.2", "finite time above 0"),
        ("-1:0.2", "finite time above 0"),
        ("nan:0.2", "finite time above 0"),
        ("10:-1", "finite and >= 0"),
        ("10:nan", "finite and >= 0"),
        ("10:inf", "finite and >= 0"),
        ("10:burst", "needs a burst rate"),
    ],
)
def test_bad_phases_are_named(text, problem):
    with pytest.raises(ValueError, match=problem):
        parse_phases(text)
