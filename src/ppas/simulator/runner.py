"""One run through the simulator: from a configuration and a run to times per request."""

from typing import NamedTuple

import numpy as np

from ppas.policies import REASONS
from ppas.runs import Run
from ppas.schema import Config
from ppas.simulator.cost_model import CostModel
from ppas.simulator.engine import REQUEST, EngineOptions, simulate
from ppas.sizing import kv_blocks, state_blocks
from ppas.workload import Trace


class Outcome(NamedTuple):
    """Columns of a run's records and of its step log, and the number of steps."""

    records: dict[str, np.ndarray]
    steps: dict[str, np.ndarray]
    step_count: int


def engine_options(config: Config, run: Run) -> EngineOptions:
    """The simulator's options for a run, KV blocks computed from model and GPU."""
    engine = config.engine
    blocks = kv_blocks(config, run.scheduler)
    return EngineOptions(
        max_num_batched_tokens=run.scheduler.max_num_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
        kv_blocks=blocks,
        block_size=engine.block_size,
        watermark_blocks=int(engine.watermark * (blocks + 1)),  # vLLM counts its null block
        reserve_full_prompt=engine.reserve_full_prompt,
        steps_in_flight=2 if engine.async_scheduling else 1,
        state_blocks=state_blocks(config),
    )


def engine_requests(trace: Trace, cost: CostModel) -> np.ndarray:
    """A trace as the engine sees it: each request arrives once the client has submitted it."""
    requests = np.zeros(len(trace), REQUEST)
    requests["arrival"] = np.array(trace.arrivals_s) + cost.client_submit
    requests["prompt"] = trace.prompt_tokens
    requests["output"] = trace.output_tokens
    requests["first_token"] = requests["completed"] = -1
    return requests


def simulate_run(config: Config, run: Run) -> Outcome:
    """Serve a run's trace; the step log is empty unless the configuration asks for it."""
    cost = CostModel(**vars(config.cost_model.coefficients))
    trace = run.trace
    requests = engine_requests(trace, cost)
    count, steps, _ = simulate(
        requests, run.policy, engine_options(config, run), cost, config.log_steps, False
    )
    return Outcome(request_times(trace, requests, cost), step_columns(steps), count)


def request_times(trace: Trace, requests: np.ndarray, cost: CostModel) -> dict[str, np.ndarray]:
    """Latencies in seconds as the client sees them (paper section 4.4).

    TPOT is (E2E - TTFT) / (outputs - 1), undefined for a single output token; a request that
    the engine could never admit has no times and an error.
    """
    arrival = np.array(trace.arrivals_s, float)
    served = requests["completed"] >= 0
    first = np.where(served, requests["first_token"], np.nan)
    completed = np.where(served, requests["completed"] + cost.client_complete, np.nan)
    gaps = requests["output"] - 1
    tpot = np.full(len(arrival), np.nan)
    np.divide(completed - first, gaps, out=tpot, where=gaps > 0)
    return {
        "request_id": np.arange(len(arrival)),
        "arrival_s": arrival,
        "submitted_s": arrival,  # a virtual client is never late
        "prompt_tokens": requests["prompt"],
        "output_tokens": requests["output"],
        "first_token_s": first,
        "last_token_s": np.where(served, requests["completed"], np.nan),
        "completed_s": completed,
        "ttft_s": first - arrival,
        "tpot_s": tpot,
        "e2e_s": completed - arrival,
        "error": np.where(served, None, "never admitted: the KV cache is too small"),
        "preemptions": requests["preemptions"],
    }


def step_columns(steps: np.ndarray) -> dict[str, np.ndarray]:
    """The step log by column, reasons by name."""
    columns = {name: steps[name] for name in steps.dtype.names}
    columns["reason"] = np.array(REASONS)[steps["reason"]]
    return {"step": np.arange(len(steps))} | columns
