"""PyTorch's profiler: kernel times from the Chrome trace that vLLM's torch profiler writes.

On CUDA a trace has every kernel (category ``kernel``) with the id of the op that launched it, and
that op (``cpu_op``) with its input shapes. On a CPU there are no kernels; attention and GEMM ops
stand in for them, with the times of the CPU (``device`` says which). The profiler knows times
only, no hardware counters.
"""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ppas.profiling.kernels import FLASH_ATTENTION, GEMM, Kernel, ProfileError, family

TOOL = "torch"
CUDA, CPU = "cuda", "cpu"
PATTERN = "*.pt.trace.json*"
MS_PER_US = 1e-3
MATRIX = 2  # dimensions


class Trace(NamedTuple):
    """What ran, in order of execution, and where."""

    device: str  # cuda or cpu
    kernels: list[Kernel]


def find_trace(folder: Path) -> Path:
    """The one trace in a folder; several mean several workers or runs.

    Raises:
        ProfileError: there is none, or more than one.
    """
    found = sorted(folder.glob(PATTERN))
    if len(found) != 1:
        raise ProfileError(f"{folder}: {len(found)} files {PATTERN}, not one; profile on one GPU")
    return found[0]


def read_trace(path: Path) -> Trace:
    """Kernels of a trace, gzipped or not, with the shapes of their ops where it has them.

    Raises:
        ProfileError: the file is no trace, or holds neither kernels nor attention and GEMM ops.
    """
    events = [event for event in _events(path) if event.get("ph") == "X"]
    ops = [event for event in events if event.get("cat") == "cpu_op"]
    try:
        if any(event.get("cat") == "kernel" for event in events):
            shapes = {event["args"].get("External id"): _shapes(event) for event in ops}
            launched = (event for event in events if event.get("cat") == "kernel")
            made = [_kernel(e, shapes.get(e["args"].get("External id"), ())) for e in launched]
            return Trace(CUDA, sorted(made, key=lambda kernel: kernel.start_ms))
        made = [_kernel(event, _shapes(event)) for event in _outermost(ops)]
    except (KeyError, TypeError, ValueError) as error:
        raise ProfileError(f"{path}: an event without {error}; profile again") from None
    if not made:
        raise ProfileError(f"{path}: neither GPU kernels nor attention and GEMM ops")
    return Trace(CPU, made)


def _events(path: Path) -> list[dict[str, Any]]:
    try:
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        events = json.loads(text)["traceEvents"]
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror or error}; profile again") from None
    except (EOFError, ValueError, KeyError, TypeError):
        raise ProfileError(f"{path}: not a Chrome trace of torch.profiler") from None
    if not events:
        raise ProfileError(f"{path}: no events; was the prefill profiled?")
    return events


def _kernel(event: dict[str, Any], shapes: tuple[tuple[int, int], ...]) -> Kernel:
    start, duration = (event[key] * MS_PER_US for key in ("ts", "dur"))
    return Kernel(event["name"], start, duration, shapes)


def _shapes(op: dict[str, Any]) -> tuple[tuple[int, int], ...]:
    """An op's two-dimensional inputs; lists of tensors, vectors and scalars are left out."""
    inputs = op["args"].get("Input Dims", [])
    return tuple(
        tuple(dims)
        for dims in inputs
        if len(dims) == MATRIX and all(isinstance(size, int) for size in dims)
    )


def _outermost(ops: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Attention and GEMM ops that no other one contains, in order."""
    end = 0.0
    wanted = (op for op in ops if family(op["name"]) in (FLASH_ATTENTION, GEMM))
    for op in sorted(wanted, key=lambda op: (op["ts"], -op["dur"])):
        if op["ts"] >= end:
            end = op["ts"] + op["dur"]
            yield op
