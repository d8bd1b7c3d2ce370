"""Nsight Compute: hardware counters of the gate-up projection (Table 6).

``ncu`` replays each kernel several times to count, and by default fixes the GPU's clocks, so its
durations are not those of Nsight Systems. The metrics are those of its sections SpeedOfLight and
MemoryWorkloadAnalysis, by the names of NVIDIA's Nsight Compute documentation; sections, unlike a
list of metrics, hold on every GPU what that GPU can count. Counting the kernels of the first
layers is enough: every gate-up projection of a model has the same shape, and its input's length
is the chunk. None of this was run here: it needs an NVIDIA GPU, and the right to read its counters
(ERR_NVGPUCTRPERM says how to get it).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppas.profiling.exports import numbers, read_table
from ppas.profiling.kernels import (
    ATTENTION_NAMES,
    GATE_UP,
    GEMM,
    GEMM_NAMES,
    Kernel,
    ProfileError,
    by_order,
    family,
)

TOOL = "ncu"
SECTIONS = ("SpeedOfLight", "MemoryWorkloadAnalysis")
LAUNCHES = 64  # attention and GEMMs, tails included, of at least the first six layers
DURATION = "gpu__time_duration.sum"
# Tidy metric -> names of the counter, the first one found is read. GPUs differ in where they count
# DRAM; both are percent of its sustained peak.
COUNTERS = {
    "sm_pct": ("sm__throughput.avg.pct_of_peak_sustained_elapsed",),
    "l2_hit_pct": ("lts__t_sector_hit_rate.pct",),
    "dram_pct": (
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
}
MS_PER = {"ns": 1e-6, "nsecond": 1e-6, "us": 1e-3, "usecond": 1e-3, "ms": 1.0, "msecond": 1.0}


class Counter(NamedTuple):
    """Mean over the counted launches, weighted by their durations, and sample SD, in percent."""

    value: float
    std: float


def capture_command(report: Path, target: Sequence[str]) -> list[str]:
    """Count attention and GEMMs from cudaProfilerStart on; attention shows where layers begin."""
    sections = [word for section in SECTIONS for word in ("--section", section)]
    return [
        TOOL, "--target-processes", "all", "--profile-from-start", "off",
        "--kernel-name-base", "demangled", "--kernel-name", f"regex:{ATTENTION_NAMES}|{GEMM_NAMES}",
        "--launch-count", str(LAUNCHES), *sections, "--force-overwrite",
        "--export", str(report), *target,
    ]  # fmt: skip


def export_command(report: Path) -> list[str]:
    """Print a report as the CSV that ``read_counters`` reads."""
    return [
        TOOL, "--import", str(report), "--csv", "--page", "raw", "--print-units", "base",
        "--print-kernel-base", "demangled",
    ]  # fmt: skip


def read_counters(path: Path, layers: int) -> dict[str, Counter]:
    """Counters of the gate-up projection in a ``--csv --page raw`` export, by tidy metric.

    Args:
        layers: of the model.

    Raises:
        ProfileError: the file is no such export, lacks a counter or has no gate-up projection.
    """
    table = read_table(path, ["ID", "Kernel Name", DURATION])
    units, launches = table[table["ID"] == ""], table[table["ID"] != ""]
    if units.empty or launches.empty:
        raise ProfileError(f"{path}: no row of units before the kernels; export with --page raw")
    unit = units[DURATION].iloc[0]
    if unit not in MS_PER:
        raise ProfileError(f"{path}: {DURATION}: unknown unit {unit!r}")
    durations = numbers(path, launches[DURATION]) * MS_PER[unit]
    kernels = [
        Kernel(name, 0.0, duration)
        for name, duration in zip(launches["Kernel Name"], durations, strict=True)
    ]
    pairs = zip(by_order(kernels, layers), kernels, strict=True)
    chosen = np.array([name == GATE_UP and family(k.name) == GEMM for name, k in pairs])
    if not chosen.any():
        raise ProfileError(f"{path}: no gate-up projection among {len(kernels)} kernels")
    weights = durations[chosen]
    return {
        metric: _mean(numbers(path, _column(path, launches, names)[chosen]), weights)
        for metric, names in COUNTERS.items()
    }


def _column(path: Path, table: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    for name in names:
        if name in table:
            return table[name]
    raise ProfileError(f"{path}: no counter {' or '.join(names)}")


def _mean(values: pd.Series, weights: pd.Series) -> Counter:
    return Counter(float(np.average(values, weights=weights)), float(values.std()))
