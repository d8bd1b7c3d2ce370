"""The event loop of one vLLM V1 engine in virtual time, compiled by numba.

It allocates tokens step for step as vLLM's own scheduler does (vllm/v1/core/sched/scheduler.py
and kv_cache_manager.py): running requests first, in order of admission, then waiting ones,
first come first served, all from one token budget. What the GPU would take comes from the cost
model. ``simulate`` is the door; everything above it is one step.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import register_jitable

from ppas import policies
from ppas.policies import Snapshot
from ppas.simulator.cost_model import step_time
from ppas.work import NO_WORK, add_chunk

for function in (*policies.FUNCTIONS, add_chunk):
    register_jitable(function)


class EngineOptions(NamedTuple):
    """vLLM's options that shape a schedule, in tokens, requests and KV blocks."""

    max_num_batched_tokens: int
    max_num_seqs: int
    kv_blocks: int  # blocks that requests can hold
    block_size: int
    watermark_blocks: int  # kept free when a request is admitted beside others
    reserve_full_prompt: bool  # admit a request only if its whole prompt fits now
    steps_in_flight: int  # 2 for asynchronous scheduling, 1 for synchronous
    state_blocks: int = 0  # held by a request besides its tokens' blocks: recurrent state


REQUEST = np.dtype(
    [
        ("arrival", "f8"),  # s, when the engine has it
        ("prompt", "i8"),
        ("output", "i8"),
        ("computed", "i8"),
        ("generated", "i8"),  # output tokens that have come back from the GPU
        ("in_flight", "i8"),  # output tokens that a planned step will bring
        ("peak", "i8"),  # most tokens ever computed; what lies below is recomputed
        ("blocks", "i8"),
        ("preemptions", "i8"),
        ("running", "?"),
        ("first_token", "f8"),
        ("completed", "f8"),
    ]
)
COUNTS = np.dtype(
    [
        ("free_blocks", "i8"),
        ("running", "i8"),  # requests in the running list
        ("head", "i8"),  # the waiting queue is waiting[head:tail]
        ("tail", "i8"),
        ("finished", "i8"),
    ]
)
CHUNK = np.dtype([("step", "i8"), ("request", "i8"), ("tokens", "i8"), ("samples", "?")])
STEP = np.dtype(
    [
        ("time_s", "f8"),  # start on the GPU
        ("duration_s", "f8"),
        ("prefills_running", "i8"),
        ("prefills_waiting", "i8"),
        ("decodes_running", "i8"),
        ("residual_prefill", "i8"),
        ("budget", "i8"),
        ("scheduled_tokens", "i8"),
        ("prefill_tokens", "i8"),
        ("attention_pairs", "f8"),
        ("reloaded", "i8"),
        ("decode_context", "i8"),
        ("decode_context_max", "i8"),
        ("recomputed_tokens", "i8"),
        ("reason", "i8"),
    ]
)


class State(NamedTuple):
    """The scheduler's queues; requests are named by their row in ``requests``."""

    requests: np.ndarray  # of REQUEST
    running: np.ndarray  # in order of admission
    waiting: np.ndarray
    counts: np.ndarray  # one COUNTS


@njit(cache=True)
def new_state(requests, kv_blocks):
    """An idle engine that none of ``requests`` has reached."""
    counts = np.zeros(1, COUNTS)
    counts[0].free_blocks = kv_blocks
    running = np.empty(len(requests) + 1, np.int64)
    return State(requests, running, np.empty(len(requests) + 1, np.int64), counts)


@njit(cache=True)
def take_snapshot(s, now, budget_limit):
    """What a policy sees: the state before the step, with steps in flight already counted."""
    prefills, residual = 0, 0
    for k in range(s.counts[0].running):
        r = s.requests[s.running[k]]
        if r.computed < r.prompt:
            prefills += 1
            residual += r.prompt - r.computed
    waiting = s.counts[0].tail - s.counts[0].head
    decodes = s.counts[0].running - prefills
    return Snapshot(now, prefills, waiting, decodes, decodes, residual, budget_limit)


@njit(cache=True)
def blocks_short(request, tokens, options):
    """KV blocks that a request still lacks to hold ``tokens``."""
    size = options.block_size
    return options.state_blocks + (tokens + size - 1) // size - request.blocks


@njit(cache=True)
def preempt_newest(s):
    """Drop the newest running request's KV and put it first in the waiting queue."""
    s.counts[0].running -= 1
    s.counts[0].head -= 1
    victim = s.running[s.counts[0].running]
    s.waiting[s.counts[0].head] = victim
    r = s.requests[victim]
    s.counts[0].free_blocks += r.blocks
    r.blocks, r.computed, r.in_flight = 0, 0, 0
    r.running = False
    r.preemptions += 1
    return victim


@njit(cache=True)
def give(s, i, tokens, chunks, planned, options):
    """Give request ``i`` the next chunk of the step and the KV blocks for it."""
    r = s.requests[i]
    need = blocks_short(r, r.computed + tokens, options)
    s.counts[0].free_blocks -= need
    r.blocks += need
    chunks[planned].request = i
    chunks[planned].tokens = tokens


@njit(cache=True)
def schedule_running(s, budget, options, chunks):
    """Serve running requests in order of admission; returns (chunks, budget left, preempted)."""
    planned, index, preempted = 0, 0, False
    while index < s.counts[0].running and budget > 0:
        i = s.running[index]
        index += 1
        r = s.requests[i]
        # All its output tokens are done or in flight: it only waits to be finished.
        if r.in_flight > 0 and r.generated + r.in_flight >= r.output:
            continue
        tokens = min(r.prompt + r.generated + r.in_flight - r.computed, budget)
        end, victim = r.computed + tokens, -1
        while victim != i and blocks_short(r, end, options) > s.counts[0].free_blocks:
            victim = preempt_newest(s)
            preempted = True
        if victim == i:
            break
        give(s, i, tokens, chunks, planned, options)
        planned += 1
        budget -= tokens
    return planned, budget, preempted


@njit(cache=True)
def schedule_waiting(s, budget, options, chunks, planned):
    """Admit waiting requests, first come first served; returns the number of chunks."""
    c = s.counts[0]
    while budget > 0 and c.head < c.tail and c.running < options.max_num_seqs:
        i = s.waiting[c.head]
        whole = s.requests[i].prompt + s.requests[i].generated
        tokens = min(whole, budget)
        fit = whole if options.reserve_full_prompt else tokens
        watermark = options.watermark_blocks if c.running > 0 else 0
        if blocks_short(s.requests[i], fit, options) + watermark > c.free_blocks:
            break
        c.head += 1
        s.running[c.running] = i
        c.running += 1
        s.requests[i].running = True
        give(s, i, tokens, chunks, planned, options)
        planned += 1
        budget -= tokens
    return planned


@njit(cache=True)
def schedule(s, budget, options, chunks):
    """Plan one step within the token budget; returns its number of chunks."""
    planned, left, preempted = schedule_running(s, budget, options, chunks)
    # A step that had to preempt admits nobody.
    return planned if preempted else schedule_waiting(s, left, options, chunks, planned)


@njit(cache=True)
def advance(s, chunks, planned):
    """Count the planned tokens as computed; returns the step's work and recomputed tokens."""
    work, recomputed = NO_WORK, 0
    for k in range(planned):
        r, tokens = s.requests[chunks[k].request], chunks[k].tokens
        done, end = r.computed, r.computed + tokens
        known = r.prompt + r.generated + r.in_flight
        recomputed += max(0, min(end, r.peak) - done)
        work = add_chunk(work, tokens, done, known - done > 1)
        r.computed, r.peak = end, max(r.peak, end)
        # A chunk brings an output token only if it reaches the end of what is known.
        chunks[k].samples = end == known
        r.in_flight += chunks[k].samples
    return work, recomputed


@njit(cache=True)
def deliver(s, chunks, planned, now):
    """Hand a finished step's output tokens to their requests and retire complete ones."""
    retired = 0
    for k in range(planned):
        if not chunks[k].samples:
            continue
        r = s.requests[chunks[k].request]
        r.generated += 1
        if r.running:  # a preempted request still gets the token, but no longer counts on it
            r.in_flight -= 1
        if r.generated == 1:
            r.first_token = now
        if r.generated >= r.output:
            r.completed = now
            s.counts[0].free_blocks += r.blocks
            r.blocks = 0
            retired += 1
    if retired > 0:
        c = s.counts[0]
        c.finished += retired
        c.running = drop_completed(s.requests, s.running, 0, c.running)
        c.tail = drop_completed(s.requests, s.waiting, c.head, c.tail)


@njit(cache=True)
def drop_completed(requests, queue, start, end):
    """Close the gaps that completed requests leave in ``queue[start:end]``; returns its end."""
    kept = start
    for k in range(start, end):
        if requests[queue[k]].completed < 0:
            queue[kept] = queue[k]
            kept += 1
    return kept


@njit(cache=True)
def with_room(log, used, more):
    """The log, copied to a larger array if ``more`` records no longer fit behind ``used``."""
    if used + more <= len(log):
        return log
    larger = np.empty(2 * (used + more) + 64, log.dtype)
    larger[:used] = log[:used]
    return larger


@njit(cache=True)
def log_step(log, k, start, duration, view, decision, work, recomputed):
    """Write step ``k`` of the step log."""
    log[k].time_s, log[k].duration_s = start, duration
    log[k].prefills_running = view.prefills_running
    log[k].prefills_waiting = view.prefills_waiting
    log[k].decodes_running = view.decodes_running
    log[k].residual_prefill = view.residual_prefill
    log[k].budget, log[k].reason = decision.total_budget, decision.reason
    log[k].scheduled_tokens = work.new_tokens
    log[k].prefill_tokens = work.prefill_tokens
    log[k].attention_pairs, log[k].reloaded = work.attention_pairs, work.reloaded
    log[k].decode_context = work.decode_context
    log[k].decode_context_max = work.decode_context_max
    log[k].recomputed_tokens = recomputed


@njit(cache=True)
def simulate(requests, policy, options, cost, log_steps, log_chunks):
    """Serve ``requests`` (sorted by arrival) to the end; fills in their times in place.

    Args:
        requests: array of REQUEST; times in seconds, lengths in tokens.
        policy, options, cost: Policy, EngineOptions and CostModel.
        log_steps, log_chunks: keep one STEP per step, and one CHUNK per step and request.

    Returns:
        (number of steps, array of STEP, array of CHUNK). A request that can never be admitted
        keeps ``completed < 0``.
    """
    s = new_state(requests, options.kv_blocks)
    arrived, now, gpu_free, steps, logged = 0, 0.0, 0.0, 0, 0
    step_log, chunk_log = np.empty(0, STEP), np.empty(0, CHUNK)
    # A ring of steps in flight: their chunks, how many, and when the GPU is done with them.
    depth, oldest, flying = options.steps_in_flight, 0, 0
    flights = np.zeros((depth, min(len(requests), options.max_num_seqs)), CHUNK)
    sizes, ends = np.zeros(depth, np.int64), np.zeros(depth)

    while s.counts[0].finished < len(requests):
        while arrived < len(requests) and requests[arrived].arrival <= now:
            s.waiting[s.counts[0].tail] = arrived
            s.counts[0].tail += 1
            arrived += 1

        view = take_snapshot(s, now, options.max_num_batched_tokens)
        decision = policies.decide(view, policy)
        slot = (oldest + flying) % depth
        planned = schedule(s, decision.total_budget, options, flights[slot])
        if planned > 0:
            if log_chunks:
                flights[slot][:planned].step[:] = steps
                chunk_log = with_room(chunk_log, logged, planned)
                chunk_log[logged : logged + planned] = flights[slot][:planned]
                logged += planned
            work, recomputed = advance(s, flights[slot], planned)
            start, duration = max(now, gpu_free), step_time(cost, work)
            gpu_free = start + duration
            sizes[slot], ends[slot] = planned, gpu_free
            if log_steps:
                step_log = with_room(step_log, steps, 1)
                log_step(step_log, steps, start, duration, view, decision, work, recomputed)
            steps += 1
            flying += 1
            if flying < depth:
                continue  # vLLM plans the next step before it waits for this one

        if flying > 0:
            now = ends[oldest]
            deliver(s, flights[oldest], sizes[oldest], now)
            oldest = (oldest + 1) % depth
            flying -= 1
        elif arrived < len(requests):
            now = requests[arrived].arrival
        else:
            break  # what is left can never be admitted
    return steps, step_log[:steps], chunk_log[:logged]
