"""Nsight Systems: kernel times of one prefill (Table 5, Figure 5).

The commands and exports are those of NVIDIA's Nsight Systems user guide: ``nsys profile`` records
between cudaProfilerStart and cudaProfilerStop, ``nsys stats`` exports the reports cuda_gpu_trace
(every kernel and copy) and cuda_gpu_kern_sum (totals by kernel name). Neither was run here: this
needs an NVIDIA GPU.
"""

from collections.abc import Sequence
from pathlib import Path

from ppas.profiling.exports import numbers, read_table
from ppas.profiling.kernels import Kernel, ProfileError

TOOL = "nsys"
TRACE, SUMS = "cuda_gpu_trace", "cuda_gpu_kern_sum"
MS_PER_NS = 1e-6
CLOSE = 1e-3  # how far the two reports' totals may differ; both are of whole nanoseconds


def capture_command(report: Path, target: Sequence[str]) -> list[str]:
    """Record what ``target`` runs between cudaProfilerStart and cudaProfilerStop.

    Kernels within CUDA graphs are recorded one by one; CPU sampling is off.
    """
    return [
        TOOL, "profile", "--trace=cuda", "--sample=none", "--cpuctxsw=none",
        "--cuda-graph-trace=node", "--capture-range=cudaProfilerApi", "--capture-range-end=stop",
        "--force-overwrite=true", f"--output={report.with_suffix('')}", *target,
    ]  # fmt: skip


def stats_command(report: Path) -> list[str]:
    """Export both reports beside ``report``; ``exports`` names the files."""
    return [
        TOOL, "stats", f"--report={TRACE},{SUMS}", "--format=csv", "--force-export=true",
        "--force-overwrite=true", f"--output={report.with_suffix('')}", str(report),
    ]  # fmt: skip


def exports(report: Path) -> tuple[Path, Path]:
    """The files that ``stats_command`` writes: the trace and the sums."""
    trace, sums = (report.with_name(f"{report.stem}_{kind}.csv") for kind in (TRACE, SUMS))
    return trace, sums


def read_trace(path: Path) -> list[Kernel]:
    """The kernels of a cuda_gpu_trace export in order of execution, without copies and fills.

    Raises:
        ProfileError: the file is no such export, or has no kernel.
    """
    columns = ["Start (ns)", "Duration (ns)", "GrdX", "Name"]
    table = read_table(path, columns)
    kernels = table[table["GrdX"] != ""]
    if kernels.empty:
        raise ProfileError(f"{path}: no kernels, only memory operations")
    starts = numbers(path, kernels["Start (ns)"]) * MS_PER_NS
    durations = numbers(path, kernels["Duration (ns)"]) * MS_PER_NS
    rows = zip(kernels["Name"], starts, durations, strict=True)
    return sorted((Kernel(*row) for row in rows), key=lambda kernel: kernel.start_ms)


def read_sums(path: Path) -> dict[str, float]:
    """Total milliseconds by kernel name of a cuda_gpu_kern_sum export.

    Raises:
        ProfileError: the file is no such export, or has no kernel.
    """
    table = read_table(path, ["Total Time (ns)", "Instances", "Name"])
    totals = numbers(path, table["Total Time (ns)"]) * MS_PER_NS
    return dict(zip(table["Name"], totals, strict=True))


def read_kernels(trace: Path, sums: Path) -> list[Kernel]:
    """The kernels of a trace, of which none may be missing by the sums of the same profile.

    Raises:
        ProfileError: a file is no such export, or the two disagree.
    """
    kernels = read_trace(trace)
    found = sum(kernel.duration_ms for kernel in kernels)
    total = sum(read_sums(sums).values())
    if abs(found - total) > CLOSE * total:
        raise ProfileError(
            f"{trace}: kernels of {found:.3f} ms, but {sums.name} says {total:.3f} ms; export again"
        )
    return kernels
