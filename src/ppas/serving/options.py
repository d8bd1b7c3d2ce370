"""The plugin's options, as `--additional-config '{"ppas": {...}}'` gives them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppas.policies import Policy, make_policy

KEY = "ppas"
TESTED_VLLM = ("0.22.1", "0.27.1", "0.33.0")


@dataclass(frozen=True)
class Options:
    """A policy and where, if anywhere, to log each step."""

    policy: Policy
    step_log: Path | None = None


def read_options(additional_config: Any, budget_limit: int) -> Options:
    """Validate the plugin's part of vLLM's additional config.

    Args:
        additional_config: vLLM's own dictionary; the key `ppas` is ours.
        budget_limit: vLLM's max_num_scheduled_tokens, in tokens.

    Raises:
        ValueError: one line that names the key and what it may be.
    """
    if not isinstance(additional_config, Mapping) or KEY not in additional_config:
        raise ValueError(
            f"--additional-config: {KEY}: missing; for example "
            '\'{"ppas": {"policy": "ppas", "b_cap": 2048}}\''
        )
    given = additional_config[KEY]
    if not isinstance(given, Mapping):
        raise ValueError(f"--additional-config: {KEY}: {given!r} is not a dictionary of options")
    options = dict(given)
    kind = options.pop("policy", None)
    step_log = options.pop("step_log", None)
    if step_log is not None and not isinstance(step_log, str):
        raise ValueError(f"--additional-config: {KEY}.step_log: {step_log!r} is not a file's path")
    try:
        policy = make_policy(kind, budget_limit=budget_limit, **options)
    except ValueError as error:
        key, _, problem = str(error).partition(": ")
        name = "policy" if key == "kind" else key
        raise ValueError(f"--additional-config: {KEY}.{name}: {problem}") from None
    return Options(policy, Path(step_log) if step_log else None)


def version_warning(version: str) -> str | None:
    """What to say of a vLLM version that this package's tests do not cover."""
    if version in TESTED_VLLM:
        return None
    return (
        f"P-PAS is tested with vLLM {', '.join(TESTED_VLLM)}; this is {version}. It goes on: "
        "compare outputs and the step log before relying on it."
    )
