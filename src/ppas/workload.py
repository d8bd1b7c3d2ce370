"""Request traces: piecewise Poisson arrivals and request shapes, bit-identical to the paper's.

All randomness of a trace comes from one ``random.Random(seed)``: first the arrivals, then, for a
mixed workload, the shapes. Equal seeds therefore give every scheduler the same requests.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

Phases = Sequence[tuple[float, float]]
BURST = "burst"  # stands for the burst rate in a phases string


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival: times in seconds, lengths in tokens."""

    arrivals_s: tuple[float, ...]
    prompt_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.arrivals_s)


def parse_phases(text: str, burst_rate: float | None = None) -> list[tuple[float, float]]:
    """Read ``duration:rate`` pairs (seconds, requests per second), as ``10:0.2,10:burst``.

    Raises:
        ValueError: one line that says which pair is wrong and what is allowed.
    """
    phases = []
    for pair in text.split(","):
        duration, separator, rate = pair.strip().partition(":")
        if not separator:
            raise ValueError(f"{pair.strip()!r} is not duration_s:rate, as in 10:0.2")
        if rate == BURST:
            if burst_rate is None:
                raise ValueError(f"{pair.strip()!r} needs a burst rate")
            rate = repr(burst_rate)
        try:
            phases.append((float(duration), float(rate)))
        except ValueError:
            raise ValueError(f"{pair.strip()!r} is not duration_s:rate, as in 10:0.2") from None
    for duration, rate in phases:
        if not (math.isfinite(duration) and duration > 0):
            raise ValueError(f"phase of {duration} s; a phase lasts a finite time above 0 s")
        if not (math.isfinite(rate) and rate >= 0):
            raise ValueError(f"rate {rate}; rates are finite and >= 0 requests/s")
    return phases


def format_phases(phases: Phases) -> str:
    """Write phases back as ``duration:rate`` pairs; the inverse of ``parse_phases``."""
    return ",".join(f"{duration:g}:{rate!r}" for duration, rate in phases)


def poisson_arrivals(phases: Phases, seed: int) -> list[float]:
    """Arrival times in seconds of a piecewise Poisson process (paper section 4.1, Table 16)."""
    return _arrivals(phases, random.Random(seed))


def _arrivals(phases: Phases, rng: random.Random) -> list[float]:
    arrivals, start = [], 0.0
    for duration, rate in phases:
        clock, end = start, start + duration
        # Each phase begins afresh at its own start: the exponential is memoryless.
        while rate > 0:
            clock += rng.expovariate(rate)
            if clock >= end:
                break
            arrivals.append(clock)
        start = end
    return arrivals


def stratified_shapes(
    count: int, prompts: Sequence[int], outputs: Sequence[int], rng: random.Random
) -> list[tuple[int, int]]:
    """Spread ``count`` requests evenly over all (prompt, output) pairs (paper section 7.1).

    Each pair gets the whole part of its equal share; the remainder goes to pairs in random
    order; the requests are then shuffled.
    """
    pairs = list(product(prompts, outputs))
    each, rest = divmod(count, len(pairs))
    ties = list(range(len(pairs)))
    rng.shuffle(ties)
    extra = set(ties[:rest])
    shapes = [pair for i, pair in enumerate(pairs) for _ in range(each + (i in extra))]
    rng.shuffle(shapes)
    return shapes


def make_trace(phases: Phases, seed: int, prompts: Sequence[int], outputs: Sequence[int]) -> Trace:
    """The trace of one run; several prompt or output lengths make a stratified mixture."""
    rng = random.Random(seed)
    arrivals = _arrivals(phases, rng)
    if len(prompts) == len(outputs) == 1:
        shapes = [(prompts[0], outputs[0])] * len(arrivals)
    else:
        shapes = stratified_shapes(len(arrivals), prompts, outputs, rng)
    return Trace(
        arrivals_s=tuple(arrivals),
        prompt_tokens=tuple(prompt for prompt, _ in shapes),
        output_tokens=tuple(output for _, output in shapes),
    )
