"""Measured calibration: probe one server, and fit the cost model of its model and GPU.

The server runs P-PAS on the experiment's largest and smallest budget, so that one start shows
both: a lone prompt gets the large one, and prompts that wait for each other beside decodes the
small one. What a step takes depends on its work, not on the policy.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pandas as pd

from ppas.config import ROOT, max_model_len, schedulers
from ppas.schema import Config, SchedulerConfig
from ppas.serving import host, launch
from ppas.serving.client import Call, replay
from ppas.serving.server import Server, free_port
from ppas.simulator.calibration import write_cost_model
from ppas.simulator.probes import (
    HELD_OUT_EVERY,
    PREFILL,
    REPEATS,
    Limits,
    Probe,
    StepFit,
    cost_model,
    fit_client,
    fit_steps,
    kinds,
    probes,
    split_log,
)
from ppas.simulator.step_times import step_durations
from ppas.sizing import kv_blocks

NAME = "probed"  # what the server calls the model
STEP_LOG = "steps.csv"
TIMEOUT_S = 300.0  # of one probe
KV_SHARE = 0.8  # of the estimated KV cache that probes may fill; a preemption would spoil them
TOKEN_IDS = 256  # prompts are random ids below this, which every vocabulary has
SOURCE = "simulated-probes"  # what results with such a cost model are called


class Plan(NamedTuple):
    """What to serve and what to replay; the first ``warm_up`` replays are not fitted."""

    scheduler: SchedulerConfig
    replays: list[Probe]
    warm_up: int


def make_plan(config: Config) -> Plan:
    """Probes between the largest and the smallest budget of an experiment's schedulers."""
    chosen = schedulers(config).values()
    b_max = max(scheduler.max_num_batched_tokens for scheduler in chosen)
    b_cap = min(s.policy.get("b_cap") or s.max_num_batched_tokens for s in chosen)
    scheduler = SchedulerConfig("probes", b_max, {"kind": "ppas", "b_cap": b_cap})
    room = kv_blocks(config, scheduler) * config.engine.block_size
    planned = probes(
        Limits(
            b_max=b_max,
            b_cap=b_cap,
            max_model_len=max_model_len(config),
            max_num_seqs=config.engine.max_num_seqs,
            kv_tokens=int(KV_SHARE * room),
        )
    )
    # Kernels are compiled when first used: the largest probe of each kind, once.
    largest = list({probe.name.split()[0]: probe for probe in planned}.values())
    return Plan(scheduler, [*largest, *planned], len(largest))


class Reading(NamedTuple):
    """A step log's steps, with durations in seconds and probes, and the fit to them."""

    steps_in_flight: int
    steps: pd.DataFrame
    fit: StepFit


@contextmanager
def probe_server(
    config: Config, scheduler: SchedulerConfig, python: Path, folder: Path
) -> Iterator[Any]:
    """A server with the plugin and its step log in ``folder``, ready for requests."""
    port = free_port()
    model = launch.model_source(config.model, folder / "model")
    command = launch.serve_command(
        config, scheduler, python, model, port, NAME, step_log=folder / STEP_LOG
    )
    command.append("--no-enable-prefix-caching")  # prompts here may begin alike
    with host.reserved(config.hardware.device) as device:
        environment = launch.serve_environment(config) | device
        with Server(command, folder / "server.log", port, NAME, environment) as server:
            server.wait_until_ready(config.backend.start_timeout_s)
            yield server


def send(server: Any, plan: Plan, progress: Callable[[Sequence[Probe]], Any]) -> list[list[Any]]:
    """Replay every probe on an idle server; the client's replies to each.

    Raises:
        ValueError: a request failed.
    """
    random, answered = Random(0), []
    for probe in progress(plan.replays):
        calls = [
            Call(arrival, random.choices(range(TOKEN_IDS), k=prompt), output)
            for arrival, prompt, output in zip(
                probe.trace.arrivals_s,
                probe.trace.prompt_tokens,
                probe.trace.output_tokens,
                strict=True,
            )
        ]
        replies = replay(server.url, NAME, calls, TIMEOUT_S)
        if failed := [reply.error for reply in replies if reply.error]:
            raise ValueError(f"{probe.name}: a request failed: {failed[0]}")
        answered.append(replies)
    return answered


def fit_log(path: Path, plan: Plan) -> Reading:
    """Read a step log and fit its steps, with as many in flight as explain their times better.

    The configuration cannot tell how many that are: vLLM falls back to synchronous scheduling
    where it must, and an executor may run a step within the call.

    Raises:
        ValueError: the log is not of these probes.
    """
    log = pd.read_csv(path)
    times, busy = log["time_s"].to_numpy(), log["scheduled_tokens"].to_numpy() > 0
    readings = []
    for in_flight in (1, 2):
        durations = step_durations(times, busy, in_flight)
        steps = split_log(log.assign(duration_s=durations), plan.replays)
        fit = fit_steps(steps[steps["probe"] >= plan.warm_up])
        readings.append(Reading(in_flight, steps, fit))
    return min(readings, key=lambda reading: _mean_error(reading.fit))


def _mean_error(fit: StepFit) -> float:
    return sum(error["mean_abs_error_pct"] for error in fit.errors["fitted"].values())


def lone_requests(steps: pd.DataFrame, plan: Plan, answered: list[list[Any]]) -> pd.DataFrame:
    """One row per request that was alone on the server, as ``fit_client`` takes them."""
    prefill = steps[kinds(steps) == PREFILL].groupby("probe")["duration_s"].sum()
    rows = [
        {
            "ttft_s": replies[0].first_token_s - replies[0].submitted_s,
            "engine_s": prefill[number],
            "last_token_s": replies[0].last_token_s,
            "completed_s": replies[0].completed_s,
        }
        for number, replies in enumerate(answered)
        if number >= plan.warm_up and len(replies) == 1
    ]
    return pd.DataFrame(rows)


def calibrate_measured(
    config: Config,
    python: Path,
    out: Path,
    progress: Callable[[Sequence[Probe]], Any] = iter,
    serve: Callable[..., Any] = probe_server,
) -> str:
    """Probe a server of the configuration's model on this machine and write its cost model.

    Args:
        python: interpreter of the environment that has vLLM.
        out: the file to write, such as ``conf/cost_model/qwen2_5_3b_h200.yaml``.
        progress: wraps the list of probes, such as tqdm.
        serve: starts the server, as ``probe_server`` does.

    Returns:
        One line on how well it fits.

    Raises:
        ValueError: a request failed, or the step log is not of these probes.
    """
    plan = make_plan(config)
    folder = ROOT / "logs" / f"probes_{out.stem}"
    for old in folder.glob("steps.*.csv"):
        old.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    with serve(config, plan.scheduler, python, folder) as server:
        version = json.loads(server.get("/version")[1])["version"]
        answered = send(server, plan, progress)
    logs = sorted(folder.glob("steps.*.csv"))
    if len(logs) != 1:
        raise ValueError(f"{folder}: {len(logs)} step logs; one engine process writes one")
    in_flight, steps, of_steps = fit_log(logs[0], plan)
    of_client = fit_client(lone_requests(steps, plan, answered))
    fit = {
        "source": "measured probes",
        "experiment": config.experiment,
        "vllm": version,
        "budgets": [plan.scheduler.max_num_batched_tokens, plan.scheduler.policy["b_cap"]],
        "steps_in_flight": in_flight,
        "probes": len(plan.replays) - plan.warm_up,
        "repeats": REPEATS,
        "held_out": f"one in {HELD_OUT_EVERY} conditions",
        "errors": of_steps.errors | {"client": of_client.errors},
    }
    header = "Fitted by `ppas calibrate --probes` to steps of a real server; not to be edited."
    write_cost_model(out, header, config, cost_model(of_steps, of_client), fit, SOURCE)
    held_out = of_steps.errors["held_out"]
    told = ", ".join(f"{kind} {e['mean_abs_error_pct']}%" for kind, e in held_out.items())
    return f"{out.stem}: mean error of held-out steps: {told}"
