"""Isolated probes of a running engine, and the cost model that its step times give.

A probe is a short replay whose steps are of few kinds: prompts alone, by chunk size and depth;
decodes, by batch and context; a long prompt beside decodes. Each is repeated. Every third
condition of a kind is held out: no fit sees it, and its errors are reported apart.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from ppas import work
from ppas.simulator.cost_model import CostModel
from ppas.workload import Trace

REPEATS = 3
HELD_OUT_EVERY = 3
SMALLEST_CHUNK = 64  # tokens
LONE_OUTPUT, DECODE_OUTPUT = 4, 32  # tokens
BATCHES = (1, 4, 16, 64)  # decodes that run together
BESIDE = (1, 4, 16)  # decodes beside a long prompt
MOST_PROMPT_TOKENS = 100_000  # of one probe, so that none takes more than seconds
BEHIND_S, SPARE_OUTPUT = 0.05, 96  # the long prompts' delay, and tokens that decodes give it
DECODE, PREFILL, MIXED = "decode", "prefill", "mixed"
OF_DECODE_STEPS = ("t_decode", "kv_decode")
OF_STEPS_WITH_PREFILL = (
    "t_mixed", "per_token", "attention", "kv_reload", "kv_mixed", "kv_tail",
)  # fmt: skip
F_SCALE = 0.05  # relative error beyond which a step counts as an outlier (soft L1)
ROUNDS = 30  # of reweighting; weights settle within about ten


class Limits(NamedTuple):
    """What bounds the probes of a model on an engine, in tokens and requests."""

    b_max: int  # the large token budget, which lone prompts get
    b_cap: int  # the small one, under pressure
    max_model_len: int
    max_num_seqs: int
    kv_tokens: int


class Probe(NamedTuple):
    """Requests to replay on an idle engine; ``held_out`` ones enter no fit."""

    name: str
    trace: Trace
    held_out: bool

    @property
    def tokens(self) -> int:
        """What the engine schedules for it: every token but the last of each output."""
        return sum(self.trace.prompt_tokens) + sum(self.trace.output_tokens) - len(self.trace)


class StepFit(NamedTuple):
    """Coefficients of a step by name, and their errors by group and kind of step."""

    coefficients: dict[str, float]
    errors: dict[str, Any]


def probes(limits: Limits) -> list[Probe]:
    """All probes of a (model, budgets) pair, each of them REPEATS times, in order of replay."""
    conditions = [
        Probe(name, trace, k % HELD_OUT_EVERY == 1)
        for kind in (lone_prompts, decode_batches, prompts_beside_decodes)
        for k, (name, trace) in enumerate(kind(limits))
    ]
    return [probe for _ in range(REPEATS) for probe in conditions]


def lone_prompts(limits: Limits) -> Iterator[tuple[str, Trace]]:
    """One prompt alone: in one chunk of each size, and with chunks that find others computed."""
    sizes = {limits.b_max}
    size = max(SMALLEST_CHUNK, limits.b_cap // 8)
    while size < limits.b_max:
        sizes |= {size, min(size * 3 // 2, limits.b_max)}
        size *= 2
    deep = {limits.b_max + size for size in (limits.b_cap, limits.b_max // 2, limits.b_max)}
    deep |= {limits.max_model_len}
    longest = min(limits.max_model_len, limits.kv_tokens, MOST_PROMPT_TOKENS) - LONE_OUTPUT
    for prompt in sorted({min(size, longest) for size in sizes | deep}):
        yield f"{PREFILL} {prompt}", Trace((0.0,), (prompt,), (LONE_OUTPUT,))


def decode_batches(limits: Limits) -> Iterator[tuple[str, Trace]]:
    """Equal requests that decode together, by batch and context."""
    contexts = (limits.b_cap // 8, limits.b_cap, limits.b_max // 2, limits.b_max * 3 // 2)
    for context in contexts:
        for batch in BATCHES:
            if _fits([(context, DECODE_OUTPUT)] * batch, limits):
                trace = Trace((0.0,) * batch, (context,) * batch, (DECODE_OUTPUT,) * batch)
                yield f"{DECODE} {batch} x {context}", trace


def prompts_beside_decodes(limits: Limits) -> Iterator[tuple[str, Trace]]:
    """Decodes and, just behind them, one long prompt or two.

    Under P-PAS the lone prompt comes in chunks of the large budget; of two, the first comes in
    chunks of the small one, for the other one waits.
    """
    for context in (limits.b_cap // 8, limits.b_cap, limits.b_max // 2):
        for batch in BESIDE:
            for count, prompt in ((1, limits.b_max + limits.b_cap), (2, limits.b_max)):
                chunks = -(-count * prompt // (limits.b_cap - min(batch, limits.b_cap - 1)))
                output = chunks + SPARE_OUTPUT
                if not _fits([(context, output)] * batch + [(prompt, 1)] * count, limits):
                    continue
                trace = Trace(
                    (0.0,) * batch + (BEHIND_S,) * count,
                    (context,) * batch + (prompt,) * count,
                    (output,) * batch + (1,) * count,
                )
                yield f"{MIXED} {count} x {prompt} beside {batch} x {context}", trace


def _fits(shapes: Sequence[tuple[int, int]], limits: Limits) -> bool:
    """Whether (prompt, output) requests run side by side, none waiting for room."""
    prompts = sum(prompt for prompt, _ in shapes)
    return (
        len(shapes) <= limits.max_num_seqs
        and max(map(sum, shapes)) <= limits.max_model_len
        and sum(map(sum, shapes)) <= limits.kv_tokens
        and prompts <= MOST_PROMPT_TOKENS
    )


def split_log(log: pd.DataFrame, replayed: Sequence[Probe]) -> pd.DataFrame:
    """The log's busy steps with the number of their probe, told by counting tokens.

    Args:
        log: the plugin's columns, one row per call of ``schedule()``; nothing but ``replayed``
            was served, one probe after another.

    Returns:
        The busy rows, with ``probe`` (its place in ``replayed``) and ``held_out``.

    Raises:
        ValueError: the log does not account for every token of every probe, as with prefix
            caching, preemption or other clients.
    """
    busy = log[log["scheduled_tokens"] > 0].reset_index(drop=True)
    served = busy["scheduled_tokens"].cumsum().to_numpy()
    ends = np.cumsum([probe.tokens for probe in replayed])
    places = np.searchsorted(served, ends)
    for probe, end, place in zip(replayed, ends, places, strict=True):
        if place >= len(served) or served[place] != end:
            raise ValueError(
                f"step log: {probe.name}: its steps do not add up to its {probe.tokens} tokens; "
                "was anything else served, preempted or found in a prefix cache?"
            )
    sizes = [end - begin for begin, end in pairwise([-1, *places])]
    rows = busy.iloc[: places[-1] + 1]
    held_out = np.repeat([probe.held_out for probe in replayed], sizes)
    return rows.assign(probe=np.repeat(np.arange(len(replayed)), sizes), held_out=held_out)


def kinds(steps: pd.DataFrame) -> np.ndarray:
    """DECODE, PREFILL or MIXED for each step."""
    decodes = steps["scheduled_tokens"] > steps["prefill_tokens"]
    names = np.where(decodes, MIXED, PREFILL)
    return np.where(steps["prefill_tokens"] == 0, DECODE, names)


def fit_steps(steps: pd.DataFrame) -> StepFit:
    """Coefficients of a step from step times: non-negative least squares on relative errors.

    The cost model is linear in its coefficients, and steps with and without prefill share none.
    Steps of equal work count once, with the median of their times; each kind of step counts as
    much as any other; outliers count less (soft L1).

    Args:
        steps: columns ``work.COLUMNS``, ``duration_s`` (seconds) and ``held_out``; steps without
            a duration are left out.

    Returns:
        The eight coefficients, and by ``fitted`` and ``held_out`` and by kind the number of
        distinct steps, their mean absolute and their worst error in percent.

    Raises:
        ValueError: a kind of step is missing.
    """
    known = steps[steps["duration_s"] > 0]
    medians = known.groupby([*work.COLUMNS, "held_out"])["duration_s"].median().reset_index()
    medians["kind"] = kinds(medians)
    fitted = medians[~medians["held_out"]]
    if missing := {DECODE, PREFILL, MIXED} - set(fitted["kind"]):
        raise ValueError(f"step log: no {sorted(missing)[0]} steps to fit")
    decodes = fitted["kind"] == DECODE
    values = [
        *_fit(fitted[decodes], OF_DECODE_STEPS),
        *_fit(fitted[~decodes], OF_STEPS_WITH_PREFILL),
    ]
    names = (*OF_DECODE_STEPS, *OF_STEPS_WITH_PREFILL)
    # Four digits, as the file keeps them.
    found = {name: float(f"{value:.4g}") for name, value in zip(names, values, strict=True)}
    return StepFit(found, _errors(medians, found))


def terms(steps: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
    """What each named coefficient is multiplied with: an array of (steps, names)."""
    column = {
        "t_decode": None,
        "kv_decode": "decode_context",
        "t_mixed": None,
        "per_token": "scheduled_tokens",
        "attention": "attention_pairs",
        "kv_reload": "reloaded",
        "kv_mixed": "decode_context",
        "kv_tail": "decode_context_max",
    }
    ones = np.ones(len(steps))
    wanted = [ones if column[name] is None else steps[column[name]] for name in names]
    return np.column_stack(wanted).astype(float)


def _fit(steps: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
    """Non-negative coefficients that least squares gives, reweighted until outliers count less."""
    matrix = terms(steps, names) / steps["duration_s"].to_numpy()[:, None]
    scale = matrix.max(axis=0)
    if not scale.all():
        raise ValueError(f"step log: nothing to fit {names[int(np.argmin(scale))]} to")
    matrix = matrix / scale
    even = 1 / steps.groupby("kind")["kind"].transform("size").to_numpy()
    weights, solution = even, np.zeros(len(names))
    for _ in range(ROUNDS):
        root = np.sqrt(weights)
        solution, _ = nnls(matrix * root[:, None], root)
        weights = even / np.sqrt(1 + ((matrix @ solution - 1) / F_SCALE) ** 2)
    return solution / scale


def predicted(steps: pd.DataFrame, coefficients: dict[str, float]) -> np.ndarray:
    """Seconds that the cost model gives for each step, as ``cost_model.step_time`` does."""
    times = [
        terms(steps, names) @ [coefficients[name] for name in names]
        for names in (OF_DECODE_STEPS, OF_STEPS_WITH_PREFILL)
    ]
    return np.where(steps["prefill_tokens"] == 0, *times)


def _errors(steps: pd.DataFrame, coefficients: dict[str, float]) -> dict[str, Any]:
    percent = 100 * np.abs(predicted(steps, coefficients) / steps["duration_s"] - 1)
    group = np.where(steps["held_out"], "held_out", "fitted")
    table = percent.groupby([group, steps["kind"]]).agg(["size", "mean", "max"])
    made: dict[str, Any] = {}
    for (name, kind), row in table.iterrows():
        made.setdefault(name, {})[kind] = {
            "steps": int(row["size"]),
            "mean_abs_error_pct": round(float(row["mean"]), 2),
            "worst_error_pct": round(float(row["max"]), 2),
        }
    return made


def fit_client(lone: pd.DataFrame) -> StepFit:
    """What the client and the server around the engine add to a lone request, in seconds.

    Args:
        lone: one row per lone request: ``ttft_s`` and ``engine_s`` (to its first token, as the
            client saw it and as the step log says), ``last_token_s`` and ``completed_s``.

    Returns:
        The medians ``client_submit`` and ``client_complete``, never below zero, and how far
        single requests lie from them in milliseconds.
    """
    added = {
        "client_submit": lone["ttft_s"] - lone["engine_s"],
        "client_complete": lone["completed_s"] - lone["last_token_s"],
    }
    found = {name: float(f"{max(0.0, v.median()):.4g}") for name, v in added.items()}
    errors = {
        name: {
            "mean_abs_error_ms": round(float(1000 * (values - found[name]).abs().mean()), 2),
            "worst_error_ms": round(float(1000 * (values - found[name]).abs().max()), 2),
        }
        for name, values in added.items()
    }
    return StepFit(found, {"requests": len(lone), **errors})


def cost_model(steps: StepFit, client: StepFit) -> CostModel:
    """The ten coefficients of both fits."""
    return CostModel(**steps.coefficients, **client.coefficients)
