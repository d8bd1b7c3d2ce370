"""Profiles on disk: tidy rows in ``results/measured/<hardware>/profiles/*.csv``.

One row per model, hardware, scheduler and metric, as the paper's tables are kept, and what it was
measured with. Metrics: ``prefill_ms`` and ``wall_ms`` are of a whole prompt, ``*_ms`` of kernels
per decoder layer over the whole prompt, ``*_pct`` of the hardware's sustained peak or of accesses.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ppas.results import replacing

MEASURED = "measured"
KEYS = ("model", "hardware", "prompt_tokens", "scheduler", "metric")
COLUMNS = (
    "model", "hardware", "prompt_tokens", "output_tokens", "burst", "scheduler", "metric",
    "value", "std", "source", "tool", "device", "vllm",
)  # fmt: skip
TYPES = dict.fromkeys(COLUMNS, "str") | {
    "prompt_tokens": "Int64", "output_tokens": "Int64", "value": "float", "std": "float",
}  # fmt: skip


class Row(NamedTuple):
    """One number; ``std`` is its sample standard deviation where there are several."""

    metric: str
    value: float
    std: float | None
    tool: str


def profile_path(results: Path, hardware: str, name: str) -> Path:
    """Where a profile of one GPU lies; ``hardware`` is a file of ``conf/hardware``."""
    return results / MEASURED / hardware / "profiles" / f"{name}.csv"


def write_rows(rows: Iterable[Row], setting: dict[str, object], path: Path) -> None:
    """Write rows that share a setting (model, hardware, ...), whole or not at all."""
    frame = pd.DataFrame(rows, columns=Row._fields).assign(**setting, source=MEASURED)
    with replacing(path) as temporary:
        frame.reindex(columns=list(COLUMNS)).to_csv(temporary, index=False, float_format="%.6g")


def read_rows(results: Path) -> pd.DataFrame:
    """The rows of every profile, columns ``COLUMNS``; empty where none was made.

    Raises:
        ValueError: a file is no profile, or two give the same number.
    """
    paths = sorted(results.glob(f"{MEASURED}/*/profiles/*.csv"))
    frames = [_read(path) for path in paths]
    if not frames:
        return pd.DataFrame(columns=list(COLUMNS)).astype(TYPES | {"burst": "object"})
    rows = pd.concat(frames, ignore_index=True)
    twice = rows[rows.duplicated(list(KEYS))]
    if len(twice):
        cell = ", ".join(map(str, twice.iloc[0][list(KEYS)]))
        raise ValueError(f"{paths[0].parents[2]}: two profiles of {cell}; remove one")
    return rows


def _read(path: Path) -> pd.DataFrame:
    try:
        rows = pd.read_csv(path, dtype=TYPES)
    except ValueError as error:
        raise ValueError(f"{path}: not a profile: {str(error).splitlines()[0]}") from None
    if list(rows.columns) != list(COLUMNS) or rows.empty or set(rows["source"]) != {MEASURED}:
        raise ValueError(f"{path}: not a profile of `ppas profile`; make it again or remove it")
    return rows.assign(burst=None)  # none arrives; the paper's tables have the column
