"""Profile one prefill with the tool at hand, and turn what it exports into rows.

What the tools write stays in the job's folder, so that a number can be traced to its kernels.
"""

import json
import os
import shutil
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ppas.profiling import ncu, nsys, torch_profiler
from ppas.profiling.kernels import Kernel, ProfileError, label, per_layer_ms, span_ms
from ppas.profiling.prefill import CUDA, RESULT, TORCH
from ppas.profiling.rows import Row
from ppas.schema import ModelConfig

CLOCK = "clock"
MS_PER_S = 1000
SOURCE = Path(__file__).parents[2]


class Job(NamedTuple):
    """One prompt's prefill in chunks of ``budget`` tokens."""

    python: str  # that has vLLM
    model: ModelConfig
    budget: int  # tokens
    prompt_tokens: int
    repeats: int  # timed prefills
    engine: str  # JSON: more arguments of vllm.LLM
    folder: Path  # for what the tools write

    @property
    def chunks(self) -> int:
        """Steps of the prefill."""
        return -(-self.prompt_tokens // self.budget)

    def command(self, record: str) -> list[str]:
        """What prefills, for a profiler to run."""
        return [
            self.python, "-m", "ppas.profiling.prefill", "--model", self.model.repository,
            "--budget", str(self.budget), "--prompt-tokens", str(self.prompt_tokens),
            "--repeats", str(self.repeats), "--record", record,
            "--out", str(self.folder), "--engine", self.engine,
        ]  # fmt: skip

    def result(self) -> dict[str, Any]:
        """What the prefill wrote about itself."""
        path = self.folder / RESULT
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError):
            raise ProfileError(f"{path}: not written; the prefill did not finish") from None


def choose_tool() -> str:
    """Nsight Systems where it is installed, as in the paper; else PyTorch's profiler."""
    return nsys.TOOL if shutil.which(nsys.TOOL) else torch_profiler.TOOL


def times(job: Job, tool: str | None = None) -> list[Row]:
    """Milliseconds of the whole prefill, and of its kernels per layer.

    Raises:
        ProfileError: the tool failed, or its export is not that of one prefill.
    """
    tool = tool or choose_tool()
    _empty(job.folder)
    kernels = _by_nsys(job) if tool == nsys.TOOL else _by_torch(job)
    labels = label(kernels, job.model, job.chunks)
    wall = _wall(job.result()["seconds"])
    # As in the paper: under Nsight Systems, from the first kernel to the last. PyTorch's profiler
    # slows launches down, so that the clock around unrecorded prefills is closer.
    whole = Row("prefill_ms", span_ms(kernels), None, tool) if tool == nsys.TOOL else wall
    per_layer = per_layer_ms(kernels, labels, job.model.layers)
    return [
        whole._replace(metric="prefill_ms"),
        wall,
        *(Row(f"{name}_ms", duration, None, tool) for name, duration in per_layer.items()),
    ]


def counters(job: Job) -> list[Row]:
    """Counters of the gate-up projection, in percent.

    Raises:
        ProfileError: Nsight Compute is missing or failed, or its export lacks a counter.
    """
    _empty(job.folder)
    report, export = job.folder / "prefill.ncu-rep", job.folder / "raw.csv"
    job = job._replace(repeats=1)  # no clock is read
    execute(ncu.capture_command(report, job.command(CUDA)))
    with export.open("w") as file:
        execute(ncu.export_command(report), stdout=file)
    found = ncu.read_counters(export, job.model.layers)
    return [Row(metric, *counter, ncu.TOOL) for metric, counter in found.items()]


def _by_nsys(job: Job) -> list[Kernel]:
    report = job.folder / "prefill.nsys-rep"
    execute(nsys.capture_command(report, job.command(CUDA)))
    execute(nsys.stats_command(report))
    return nsys.read_kernels(*nsys.exports(report))


def _by_torch(job: Job) -> list[Kernel]:
    execute(job.command(TORCH))
    path = torch_profiler.find_trace(job.folder)
    trace = torch_profiler.read_trace(path)
    device = job.result()["device"]
    if trace.device == torch_profiler.CPU != device:
        raise ProfileError(f"{path}: no GPU kernels, though vLLM ran on {device}; check CUPTI")
    return trace.kernels


def _wall(seconds: Sequence[float]) -> Row:
    """Mean and sample SD of the unrecorded prefills."""
    spread = statistics.stdev(seconds) * MS_PER_S if len(seconds) > 1 else None
    return Row("wall_ms", statistics.mean(seconds) * MS_PER_S, spread, CLOCK)


def _empty(folder: Path) -> None:
    """An earlier profile must not be taken for this one."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def execute(command: Sequence[str], **streams: Any) -> None:
    """Run a command with this package on its path.

    Raises:
        ProfileError: it is not installed, or failed; its own output says why.
    """
    path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path, "VLLM_NO_USAGE_STATS": "1"}
    try:
        done = subprocess.run(command, env=environment, check=False, **streams)
    except FileNotFoundError:
        raise ProfileError(f"{command[0]}: not found; install it or put it on PATH") from None
    if done.returncode:
        name = Path(command[0]).name
        raise ProfileError(f"{name}: exit status {done.returncode}; its output is above")
