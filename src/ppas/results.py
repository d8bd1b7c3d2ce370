"""Results on disk: per-request records, step logs and their manifest.

Everything is written under a temporary name and moved into place, so that a killed process
leaves either the old file or the new one; the manifest comes last and vouches for the rest.
"""

import json
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ppas import __version__
from ppas.config import ROOT
from ppas.runs import Run, enumerate_runs, experiment_digest
from ppas.schema import Config

SIMULATED = "simulated"  # the folder of all simulated results; each row says what it rests on
RECORD_COLUMNS = (
    "experiment", "model", "hardware", "scheduler", "run_id", "seed", "burst_rate",
    "request_id", "arrival_s", "submitted_s", "prompt_tokens", "output_tokens", "first_token_s",
    "last_token_s", "completed_s", "ttft_s", "tpot_s", "e2e_s", "error", "preemptions", "phases",
    "source",
)  # fmt: skip
PACKAGES = ("numpy", "numba", "pandas", "pyarrow")


def experiment_dir(root: Path, source: str, experiment: str) -> Path:
    """Where an experiment's results of one source live."""
    return root / source / experiment


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place when the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write a Parquet file, whole or not at all."""
    with replacing(path) as temporary:
        frame.to_parquet(temporary, index=False)


def write_json(value: Any, path: Path) -> None:
    """Write a JSON file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")


def records(
    config: Config, outcomes: list[tuple[Run, dict[str, np.ndarray]]], source: str
) -> pd.DataFrame:
    """One row per request of some runs, in the columns of RECORD_COLUMNS.

    Columns are joined before they become a frame: a frame per run would cost more than the run.
    """
    sizes = [len(columns["request_id"]) for _, columns in outcomes]
    frame = {
        name: np.concatenate([columns[name] for _, columns in outcomes])
        for name in (outcomes[0][1] if outcomes else ())
    }
    for name in ("experiment", "run_id", "seed", "burst_rate", "phases"):
        frame[name] = np.repeat([getattr(run, name) for run, _ in outcomes], sizes)
    frame["scheduler"] = np.repeat([run.scheduler.name for run, _ in outcomes], sizes)
    frame |= {"model": config.model.name, "hardware": config.hardware.name, "source": source}
    return pd.DataFrame(frame, columns=list(RECORD_COLUMNS)).astype({"error": "string"})


def kept_runs(path: Path, wanted: set[str]) -> pd.DataFrame:
    """Rows of an earlier result whose runs are still wanted; empty if there is none."""
    try:
        frame = pd.read_parquet(path)
    except FileNotFoundError:
        return pd.DataFrame(columns=list(RECORD_COLUMNS))
    return frame[frame["run_id"].isin(wanted)]


def simulate_experiment(
    config: Config, root: Path, progress: Callable[[list[Run]], Any] = iter
) -> tuple[int, int]:
    """Simulate what is missing of an experiment and write its files.

    Runs whose content hash an earlier result already holds are kept. ``progress`` wraps the
    list of runs to do, such as tqdm.

    Returns:
        (runs simulated, runs kept)
    """
    from ppas.simulator.runner import simulate_run

    folder = experiment_dir(root, SIMULATED, config.experiment)
    by_slug: dict[str, list[Run]] = {}
    for run in enumerate_runs(config):
        by_slug.setdefault(run.slug, []).append(run)
    old = {
        slug: kept_runs(folder / f"{slug}.parquet", {run.run_id for run in runs})
        for slug, runs in by_slug.items()
    }
    known = set() if config.log_steps else {i for frame in old.values() for i in frame["run_id"]}
    missing = [run for runs in by_slug.values() for run in runs if run.run_id not in known]
    new: dict[str, list[tuple[Run, dict[str, np.ndarray]]]] = {slug: [] for slug in by_slug}
    steps = []
    for run in progress(missing):
        outcome = simulate_run(config, run)
        new[run.slug].append((run, outcome.records))
        if config.log_steps:
            labels = {"scheduler": run.scheduler.name, "seed": run.seed}
            labels |= {"burst_rate": run.burst_rate, "source": config.cost_model.source}
            steps.append(pd.DataFrame(outcome.steps).assign(**labels))
    for slug, runs in by_slug.items():
        kept = old[slug][old[slug]["run_id"].isin(known)]
        made = records(config, new[slug], config.cost_model.source)
        parts = [part for part in (kept, made) if len(part)]
        frame = _in_order(pd.concat(parts), runs) if parts else kept
        write_frame(frame, folder / f"{slug}.parquet")
    if config.log_steps:
        write_frame(pd.concat(steps), folder / "steps.parquet")
    write_json(manifest(config), folder / "manifest.json")
    total = sum(map(len, by_slug.values()))
    return len(missing), total - len(missing)


def _in_order(frame: pd.DataFrame, runs: list[Run]) -> pd.DataFrame:
    order = {run.run_id: k for k, run in enumerate(runs)}
    return frame.sort_values(
        ["run_id", "request_id"], key=lambda c: c.map(order) if c.name == "run_id" else c
    )


def manifest(config: Config) -> dict[str, Any]:
    """What was run and with what: resolved configuration, content hashes, versions, source."""
    return {
        "source": config.cost_model.source,
        "digest": experiment_digest(config),
        "config": asdict(config),
        "runs": {
            run.run_id: f"{run.slug} burst={run.burst_rate:g} seed={run.seed}"
            for run in enumerate_runs(config)
        },
        "versions": {"ppas": __version__, "python": platform.python_version()}
        | {name: version(name) for name in PACKAGES},
    }


def default_root() -> Path:
    """The results folder of this checkout, whatever the working directory."""
    return ROOT / "results"
