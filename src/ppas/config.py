"""Configuration: what Hydra composes from ``conf/``, checked against the schema.

Every mistake surfaces here as a ``ConfigError`` of one line, before anything runs.
"""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from ppas.policies import Policy, make_policy
from ppas.schema import CoefficientsConfig, Config, CostModelConfig, EngineConfig, SchedulerConfig
from ppas.sizing import kv_blocks
from ppas.workload import parse_phases

ROOT = Path(os.environ.get("PPAS_ROOT", Path(__file__).parents[2]))
CONF = ROOT / "conf"
MIXES = ("homogeneous", "stratified")
FIRST_TOKENS = ("tokens", "text")
WEIGHTS = ("hub", "dummy")
GROUPS = ("model", "hardware", "workload", "cost_model")
ZERO_SHOT = "zero_shot"  # the cost model of pairs that have none
SIMULATED_SOURCES = ("simulated", "simulated-probes", "uncalibrated")  # by what they rest on


class ConfigError(ValueError):
    """A mistake in the configuration, told in one line: file, key and what is allowed."""


def experiments() -> list[str]:
    """Names of all experiments in ``conf/experiment``."""
    return sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))


def pair_name(config: Config) -> str:
    """The file of its measured cost model: those of model and hardware, as in ``x_3b_h200``."""
    names = {"model": config.model.name, "hardware": config.hardware.name}
    return "_".join(_file_of(CONF / group, name) for group, name in names.items())


def _file_of(folder: Path, name: str) -> str:
    for path in sorted(folder.glob("*.yaml")):
        if OmegaConf.load(path)["name"] == name:
            return path.stem
    raise ConfigError(f"{folder}: no file is named {name}")


def cost_model_of(model: str, hardware: str) -> str:
    """The file of ``conf/cost_model`` for a pair, by their names; zero-shot if it has none."""
    for path in sorted((CONF / "cost_model").glob("*.yaml")):
        file = OmegaConf.load(path)
        if (file.get("model"), file.get("hardware")) == (model, hardware):
            return path.stem
    return ZERO_SHOT


def fitted_pairs() -> list[str]:
    """The files of ``conf/cost_model`` that are fitted to published rows, and can be again."""
    files = sorted((CONF / "cost_model").glob("*.yaml"))
    return [path.stem for path in files if "cells" in OmegaConf.load(path).get("fit", {})]


def load(overrides: Sequence[str]) -> Config:
    """Compose and check a configuration from Hydra overrides such as ``experiment=NAME``.

    Raises:
        ConfigError: one line naming file, key and what is allowed.
    """
    composed, choices = _compose(tuple(overrides))
    try:
        config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), composed))
    except OmegaConfBaseException as error:
        raise _schema_error(error, choices, overrides) from None
    config.experiment = choices.get("experiment") or ""
    try:
        _complete_cost_model(config)
        validate(config)
    except ValueError as error:
        key = str(error).partition(":")[0]
        raise ConfigError(f"{_origin(key, choices, overrides)}: {error}") from None
    return config


def _compose(overrides: tuple[str, ...]) -> tuple[DictConfig, dict[str, str]]:
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONF), version_base=None, job_name="ppas"):
            composed = hydra_compose("config", list(overrides), return_hydra_config=True)
    except MissingConfigException as error:
        raise ConfigError(_missing_option(error)) from None
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise _override_error(error) from None
    choices = dict(composed.hydra.runtime.choices)
    with_hydra = OmegaConf.to_container(composed)
    with_hydra.pop("hydra")
    return OmegaConf.create(with_hydra), choices


def _override_error(error: Exception) -> ConfigError:
    match = re.match(r"Could not override '([\w.]+)'", str(error))
    if match is None:
        return ConfigError(f"command line: {_first_line(error)}")
    return ConfigError(f"command line: {match[1]}: unknown key; {_allowed(match[1])}")


def _allowed(key: str) -> str:
    """The keys that may stand where ``key`` does."""
    kind: type = Config
    for part in key.split(".")[:-1]:
        kind = next((f.type for f in fields(kind) if f.name == part), kind)
        kind = next((k for k in get_args(kind) if is_dataclass(k)), kind)
        if not is_dataclass(kind):
            return "see its file in conf/"
    return f"allowed: {', '.join(f.name for f in fields(kind))}"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _missing_option(error: MissingConfigException) -> str:
    match = re.search(r"'?(\w+)/([\w.-]+)'?", str(error))
    if match is None:
        return f"conf: {_first_line(error)}"
    group, option = match.groups()
    known = ", ".join(sorted(path.stem for path in (CONF / group).glob("*.yaml")))
    return f"conf/{group}: {group}: no file {option}.yaml; available: {known}"


def _schema_error(
    error: OmegaConfBaseException, choices: dict[str, str], overrides: Sequence[str]
) -> ConfigError:
    key = str(error.full_key or error.key or "")
    if isinstance(error, ConfigKeyError):
        problem = f"unknown key; {_allowed(key)}"
    else:
        problem = _first_line(error)
    return ConfigError(f"{_origin(key, choices, overrides)}: {key}: {problem}")


def _origin(key: str, choices: dict[str, str], overrides: Sequence[str]) -> str:
    """Where a key was set: the command line, the experiment, its group's file or the root."""
    plain = re.sub(r"\[.*", "", key)
    if any(o.lstrip("+~").startswith((f"{plain}=", f"{plain}.")) for o in overrides):
        return "command line"
    group, _, rest = plain.partition(".")
    experiment = Path("conf/experiment") / f"{choices.get('experiment')}.yaml"
    if (ROOT / experiment).is_file():
        text = OmegaConf.load(ROOT / experiment)
        if OmegaConf.select(text, plain, throw_on_missing=False) is not None:
            return str(experiment)
    if group == "schedulers":
        return f"conf/scheduler/{choices.get('scheduler@' + '.'.join(plain.split('.')[:2]))}.yaml"
    if rest and choices.get(group):
        return f"conf/{group}/{choices[group]}.yaml"
    return str(experiment) if group in (*GROUPS, "schedulers") else "conf/config.yaml"


def _complete_cost_model(config: Config) -> None:
    """Derive the coefficients of a pair that has no fit from its datasheet."""
    if config.model is None or config.hardware is None:
        return  # which `validate` refuses
    if config.cost_model is None:
        file = OmegaConf.load(CONF / "cost_model" / f"{ZERO_SHOT}.yaml")
        typed = OmegaConf.merge(OmegaConf.structured(CostModelConfig), file)
        config.cost_model = OmegaConf.to_object(typed)
    if config.cost_model.coefficients is None:
        if config.cost_model.over_peak is None:
            raise ValueError("cost_model.coefficients: none, nor over_peak to derive them from")
        from ppas.simulator import zero_shot  # brings a compiler, which planning does without

        derived = zero_shot.coefficients(config)
        config.cost_model.coefficients = CoefficientsConfig(**derived._asdict())


def validate(config: Config) -> None:
    """Check what types cannot say.

    Raises:
        ValueError: ``key: problem``, in one line.
    """
    if not config.experiment:
        raise ValueError(f"experiment: none chosen; available: {', '.join(experiments())}")
    for group in GROUPS:
        if getattr(config, group) is None:
            raise ValueError(f"{group}: the experiment chooses none")
    _check_workload(config)
    _check_engine(config.engine)
    _check_backend(config)
    _check_cost_model(config)
    if not config.seeds or len(set(config.seeds)) < len(config.seeds):
        raise ValueError(f"seeds: {config.seeds}; give at least one, each once")
    if config.seed is not None:
        _check_number("seed", config.seed, at_least=0)
    if config.burst_rate is not None:
        _check_number("burst_rate", config.burst_rate, at_least=0)
    chosen = schedulers(config)
    if not chosen:
        raise ValueError("schedulers: the experiment lists none")
    names = [scheduler.name for scheduler in chosen.values()]
    if len(set(names)) < len(names):
        raise ValueError(f"schedulers: names {names} are not unique")
    for slug, scheduler in chosen.items():
        _check_scheduler(config, slug, scheduler)


def _check_number(key: str, value: float, at_least: float, below: float = math.inf) -> None:
    if not (math.isfinite(value) and at_least <= value < below):
        limit = f" and < {below:g}" if below < math.inf else ""
        raise ValueError(f"{key}: {value} is not allowed; a finite number >= {at_least:g}{limit}")


def _check_cost_model(config: Config) -> None:
    cost_model = config.cost_model
    for name, value in vars(cost_model.coefficients).items():
        _check_number(f"cost_model.coefficients.{name}", value, at_least=0)
    if cost_model.source not in SIMULATED_SOURCES:
        allowed = ", ".join(SIMULATED_SOURCES)
        raise ValueError(f"cost_model.source: {cost_model.source!r} is not one of {allowed}")
    theirs = (cost_model.model, cost_model.hardware)
    ours = (config.model.name, config.hardware.name)
    if config.backend.name == "simulator" and theirs not in (ours, (None, None)):
        raise ValueError(
            f"cost_model: it is of {theirs[0]} on {theirs[1]}, not of {ours[0]} on {ours[1]}; "
            f"choose that pair's, or cost_model={ZERO_SHOT} for one from the datasheet"
        )


def _check_workload(config: Config) -> None:
    workload = config.workload
    for key in ("phases", "burst_rates", "prompt_tokens", "output_tokens"):
        values = getattr(workload, key)
        if not values or len(set(values)) < len(values):
            raise ValueError(f"workload.{key}: {values}; give at least one, each once")
    for rate in workload.burst_rates:
        _check_number("workload.burst_rates", rate, at_least=0)
    for key in ("prompt_tokens", "output_tokens"):
        for tokens in getattr(workload, key):
            _check_number(f"workload.{key}", tokens, at_least=1)
    for phases in workload.phases:
        try:
            parse_phases(phases, burst_rate=workload.burst_rates[0])
        except ValueError as error:
            raise ValueError(f"workload.phases: {error}") from None
    _check_choice("workload.mix", workload.mix, MIXES)
    longest = max(workload.prompt_tokens) + max(workload.output_tokens)
    if longest > max_model_len(config):
        raise ValueError(
            f"workload.prompt_tokens: the longest request has {longest} tokens; "
            f"{config.model.name} takes {max_model_len(config)} here (prompt and output)"
        )


def _check_engine(engine: EngineConfig) -> None:
    _check_number("engine.max_num_seqs", engine.max_num_seqs, at_least=1)
    _check_number("engine.block_size", engine.block_size, at_least=1)
    _check_number("engine.watermark", engine.watermark, at_least=0, below=1)
    _check_number("engine.gpu_memory_utilization", engine.gpu_memory_utilization, 0.1, 1.0001)


def _check_backend(config: Config) -> None:
    backend, weights = config.backend, config.model.weights
    _check_choice("backend.first_token", backend.first_token, FIRST_TOKENS)
    _check_choice("model.weights", weights, WEIGHTS)
    _check_number("backend.start_timeout_s", backend.start_timeout_s, at_least=1)
    _check_number("backend.request_timeout_s", backend.request_timeout_s, at_least=1)


def _check_choice(key: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{key}: {value!r} is not one of {', '.join(allowed)}")


def _check_scheduler(config: Config, slug: str, scheduler: SchedulerConfig) -> None:
    key = f"schedulers.{slug}" if config.scheduler is None else "scheduler"
    _check_number(f"{key}.max_num_batched_tokens", scheduler.max_num_batched_tokens, 1)
    if scheduler.max_num_batched_tokens < config.engine.max_num_seqs:
        raise ValueError(
            f"{key}.max_num_batched_tokens: {scheduler.max_num_batched_tokens} is below "
            f"max_num_seqs ({config.engine.max_num_seqs}), which vLLM refuses"
        )
    try:
        scheduler_policy(scheduler)
    except ValueError as error:
        raise ValueError(f"{key}.policy.{error}") from None
    kv_blocks(config, scheduler)


def scheduler_policy(scheduler: SchedulerConfig) -> Policy:
    """Build a scheduler's policy; its ``kind`` is required.

    Raises:
        ValueError: ``option: problem``, in one line.
    """
    options = dict(scheduler.policy)
    kind = options.pop("kind", None)
    return make_policy(str(kind), budget_limit=scheduler.max_num_batched_tokens, **options)


def max_model_len(config: Config) -> int:
    """Tokens of prompt and output that one request may have."""
    return config.engine.max_model_len or config.model.max_model_len


def hardware_slug(config: Config) -> str:
    """The hardware's name as files spell it, such as ``a100_sxm``."""
    return _slug(config.hardware.name)


def _slug(name: str) -> str:
    return re.sub(r"\W+", "_", name.lower()).strip("_")


def schedulers(config: Config) -> dict[str, SchedulerConfig]:
    """The schedulers to compare by slug, or the one chosen with ``scheduler=``."""
    if config.scheduler is None:
        return config.schedulers
    return {_slug(config.scheduler.name): config.scheduler}
