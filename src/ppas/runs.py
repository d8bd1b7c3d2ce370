"""Runs: one scheduler serving one trace, enumerated from a configuration and named by content."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ppas.config import scheduler_policy, schedulers
from ppas.digest import code_digest, content_digest
from ppas.policies import Policy
from ppas.schema import Config, SchedulerConfig, WorkloadConfig
from ppas.workload import BURST, Trace, format_phases, make_trace, parse_phases

# What decides a simulated number; a change to any of them makes results stale.
SIMULATION_CODE = (
    "workload.py",
    "policies.py",
    "work.py",
    "sizing.py",
    "simulator/cost_model.py",
    "simulator/engine.py",
    "simulator/runner.py",
)
VLLM = "vllm"  # the backend that measures
DUMMY = "dummy"  # weights that vLLM makes up, for a model of the configured shape
# What only a server is told, and so decides no simulated number.
SERVED_MODEL = ("vocab_size", "weights", "serve_options")
SERVED_HARDWARE = ("device", "serve_options", "environment")
PROTOCOL = 1  # of measuring; raise it when the client or the session measures something else


@dataclass(frozen=True)
class Run:
    """One scheduler serving one trace; ``run_id`` is the hash of all that decides its result."""

    experiment: str
    slug: str  # the scheduler's file in conf/scheduler
    scheduler: SchedulerConfig
    phases: str
    burst_rate: float
    prompt_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]
    seed: int
    run_id: str

    @property
    def policy(self) -> Policy:
        """The validated policy of the run's scheduler."""
        return scheduler_policy(self.scheduler)

    @property
    def trace(self) -> Trace:
        """The run's requests: the same for every scheduler."""
        phases = parse_phases(self.phases)
        return make_trace(phases, self.seed, self.prompt_tokens, self.output_tokens)


def enumerate_runs(config: Config) -> list[Run]:
    """Every run of a configuration: schedulers x phases x lengths x burst rates x seeds."""
    workload = config.workload
    seeds = config.seeds if config.seed is None else [config.seed]
    rates = workload.burst_rates if config.burst_rate is None else [config.burst_rate]
    common = _spec(config)
    return [
        _make_run(config, common, slug, scheduler, phases, rate, lengths, seed)
        for slug, scheduler in schedulers(config).items()
        for phases in workload.phases
        for lengths in _lengths(workload)
        for rate in (rates if BURST in phases else [_highest_rate(phases)])
        for seed in seeds
    ]


def _lengths(workload: WorkloadConfig) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    if workload.mix == "stratified":
        return [(tuple(workload.prompt_tokens), tuple(workload.output_tokens))]
    return [((p,), (o,)) for p in workload.prompt_tokens for o in workload.output_tokens]


def _highest_rate(phases: str) -> float:
    return max(rate for _, rate in parse_phases(phases))


def _make_run(config, common, slug, scheduler, phases, rate, lengths, seed) -> Run:
    text = format_phases(parse_phases(phases, burst_rate=rate))
    own = {
        "scheduler": vars(scheduler),
        "phases": text,
        "burst_rate": rate,
        "lengths": lengths,
        "seed": seed,
    }
    return Run(
        experiment=config.experiment,
        slug=slug,
        scheduler=scheduler,
        phases=text,
        burst_rate=rate,
        prompt_tokens=lengths[0],
        output_tokens=lengths[1],
        seed=seed,
        run_id=content_digest(common | own),
    )


def _spec(config: Config) -> dict[str, Any]:
    """What all runs of a configuration share and what decides their results."""
    return _measured_spec(config) if config.backend.name == VLLM else _simulated_spec(config)


def _simulated_spec(config: Config) -> dict[str, Any]:
    model, hardware = vars(config.model), vars(config.hardware)
    return {
        "model": {key: value for key, value in model.items() if key not in SERVED_MODEL},
        "hardware": {key: value for key, value in hardware.items() if key not in SERVED_HARDWARE},
        "engine": vars(config.engine),
        "backend": config.backend.name,
        "coefficients": vars(config.cost_model.coefficients),
        "code": simulation_code(),
    }


def _measured_spec(config: Config) -> dict[str, Any]:
    """No code: hours on a GPU must outlive an edit of the client. ``PROTOCOL`` stands for it."""
    model, hardware = vars(config.model), vars(config.hardware)
    shape = {key: value for key, value in model.items() if isinstance(value, int)}
    return {
        "protocol": PROTOCOL,
        "model": {key: model[key] for key in ("repository", "max_model_len", *SERVED_MODEL)}
        | (shape if config.model.weights == DUMMY else {}),
        "hardware": {key: hardware[key] for key in ("name", *SERVED_HARDWARE)},
        "engine": vars(config.engine),
        "backend": [config.backend.name, config.backend.first_token],
    }


@cache
def simulation_code() -> str:
    """Hash of the code that simulates; comments and docstrings do not count."""
    return code_digest(Path(__file__).parent / name for name in SIMULATION_CODE)


def experiment_digest(config: Config) -> str:
    """Hash of all runs of a configuration, whatever their order."""
    runs = sorted((run.slug, run.run_id) for run in enumerate_runs(config))
    return content_digest({"runs": runs, "log_steps": config.log_steps})
