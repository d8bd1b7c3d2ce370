"""What this host can measure: its GPUs, a Python that has vLLM, and whose turn it is.

Sessions take one device each and never share: an exclusive lock on a file per device holds across
processes, checkouts and Snakemake runs, and falls when its holder does.
"""

import fcntl
import glob
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import pynvml

from ppas.config import ROOT, ConfigError
from ppas.schema import HardwareConfig

WAIT_S = 1.0
VENVS = ".venv-vllm-*/bin/python"
CPU_VENV = ".venv-vllm-cpu"  # as the Makefile names it
CPU_DEVICE = "cpu"


class Device(NamedTuple):
    """Something that one server at a time runs on."""

    name: str  # as NVML says
    lock: str  # unique on this host
    index: str  # for CUDA_VISIBLE_DEVICES; empty for the CPU


def gpus() -> list[Device]:
    """The GPUs that this process may use; none without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        found = [
            Device(pynvml.nvmlDeviceGetName(h), pynvml.nvmlDeviceGetUUID(h), str(index))
            for index, h in enumerate(handles)
        ]
    finally:
        pynvml.nvmlShutdown()
    return visible(found, os.environ.get("CUDA_VISIBLE_DEVICES"))


def visible(devices: list[Device], allowed: str | None) -> list[Device]:
    """The devices that CUDA_VISIBLE_DEVICES, such as a cluster's job has it, leaves."""
    if allowed is None:
        return devices
    wanted = [part.strip() for part in allowed.split(",")]
    return [d for d in devices if d.index in wanted or d.lock in wanted]


def devices_for(device: str) -> list[Device]:
    """The devices of this host whose name has ``device`` in it; its processor for an empty one."""
    if not device:
        return [Device("the CPU", CPU_DEVICE, "")]
    return [found for found in gpus() if device in found.name]


def vllm_python(device: str, given: str | None = None) -> Path | None:
    """The interpreter to serve with on a device; None if this host has none.

    Args:
        given: the user's choice; by default this interpreter, or an environment of the Makefile.
    """
    if given:
        return Path(given)
    if not device:
        python = ROOT / CPU_VENV / "bin" / "python"
        return python if python.exists() else None
    if importlib.util.find_spec("vllm"):
        return Path(sys.executable)
    found = [Path(path) for path in sorted(glob.glob(str(ROOT / VENVS)))]
    return next((path for path in found if CPU_VENV not in path.parts), None)


def require_python(hardware: HardwareConfig, given: str | None = None) -> Path:
    """``vllm_python``, or what to do about there being none.

    Raises:
        ConfigError: this host has no vLLM for the hardware.
    """
    if python := vllm_python(hardware.device, given):
        return python
    raise ConfigError(
        f"--vllm-python: no vLLM for {hardware.name} found; give the Python that has it, or make "
        f"{'.venv-vllm-0.22.1' if hardware.device else CPU_VENV}/.installed"
    )


def can_measure(device: str, given: str | None = None) -> bool:
    """Whether this host has the device and a vLLM for it."""
    return bool(devices_for(device)) and vllm_python(device, given) is not None


@contextmanager
def reserved(device: str, notify: Callable[[str], Any] = print) -> Iterator[dict[str, str]]:
    """Hold one device of that name; yields the environment that binds a server to it.

    Raises:
        ConfigError: this host has no such device.
    """
    devices = devices_for(device)
    if not devices:
        raise ConfigError(
            f"conf/hardware: device: this host has no {device}; "
            "choose another hardware, or backend=simulator"
        )
    with ExitStack() as stack:
        held = _first_free(devices, stack, notify)
        yield {"CUDA_VISIBLE_DEVICES": held.index} if held.index else {}


def _first_free(
    devices: Sequence[Device], stack: ExitStack, notify: Callable[[str], Any]
) -> Device:
    waiting = False
    while True:
        for device in devices:
            path = Path(tempfile.gettempdir()) / f"ppas-{device.lock}.lock"
            handle = stack.enter_context(path.open("a+"))
            if _locked(handle):
                return device
            handle.close()
        if not waiting:
            notify(f"waiting: another session has {' and '.join(d.name for d in devices)}")
            waiting = True
        time.sleep(WAIT_S)


def _locked(handle: IO[str]) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
