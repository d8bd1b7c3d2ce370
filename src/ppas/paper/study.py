"""Read access to what was run (``results/``) and to what the paper prints (``data/published/``)."""

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ppas import metrics
from ppas.profiling.rows import read_rows

STEP_LOG = "steps.parquet"
MANIFEST = "manifest.json"  # written with the records of an experiment, and their workflow target


class Study:
    """Lazy, cached frames of every experiment, each row labelled with its source.

    Experiments are named as in ``conf/experiment/``. Those in ``measured`` are read from that
    folder of ``results/measured``, such as ``cpu/cpu_demo``; all others are simulated. A missing
    file raises a one-line FileNotFoundError that says how to make it; a failed request raises
    ValueError.
    """

    def __init__(
        self,
        results: Path = Path("results"),
        published: Path = Path("data/published"),
        conf: Path = Path("conf"),
        measured: Mapping[str, str] | None = None,
    ) -> None:
        self.measured = dict(measured or {})
        self.results_dir, self.published_dir, self.conf_dir = map(Path, (results, published, conf))
        self._cache: dict[tuple[str, str], Any] = {}

    def records(self, experiment: str) -> pd.DataFrame:
        """One row per request (times in seconds, lengths in tokens), every request complete."""
        return self._once("records", experiment, self._read_records)

    def runs(self, experiment: str) -> pd.DataFrame:
        """One row per run, in seconds: ``metrics.run_metrics``."""
        return self._once("runs", experiment, lambda e: metrics.run_metrics(self.records(e)))

    def cells(self, experiment: str) -> pd.DataFrame:
        """Tidy means and sample SDs over seeds, in seconds: ``metrics.cells``."""
        return self._once("cells", experiment, lambda e: metrics.cells(self.runs(e)))

    def steps(self, experiment: str) -> pd.DataFrame:
        """One row per scheduler step (seconds, tokens), with ``source`` and ``experiment``."""
        return self._once("steps", experiment, self._read_steps)

    def config(self, experiment: str) -> dict[str, Any]:
        """The configuration that an experiment was run with, as its manifest keeps it."""
        return self._once("config", experiment, self._read_config)

    def published(self, table_id: int | str) -> pd.DataFrame:
        """The paper's table as printed, tidy; ``burst`` and ``table`` are strings.

        A number names a table; ``text`` and ``fig05`` what the text and that figure print.
        """
        number = str(table_id)
        name = f"table{int(number):02d}.csv" if number.isdecimal() else f"{number}.csv"
        return self._once("published", name, self._read_published)

    def profiles(self, metrics: Collection[str], prompt_tokens: int) -> pd.DataFrame:
        """What profilers measured of some metrics with prompts of one length: ``profiling.rows``.

        Tidy, ``value`` and ``std`` in the metric's unit, ``source`` is ``measured``; empty where
        nothing was profiled. Raises ValueError for a file that is no profile.
        """
        rows = self._once("profiles", "", lambda _: read_rows(self.results_dir))
        return rows[rows["metric"].isin(metrics) & (rows["prompt_tokens"] == prompt_tokens)]

    def _once(self, kind: str, name: str, make: Callable[[str], Any]) -> Any:
        if (kind, name) not in self._cache:
            self._cache[kind, name] = make(name)
        return self._cache[kind, name]

    def folder(self, experiment: str) -> Path:
        """Where an experiment's results are read from."""
        if experiment in self.measured:
            return self.results_dir / "measured" / self.measured[experiment]
        return self.results_dir / "simulated" / experiment

    def _read_records(self, experiment: str) -> pd.DataFrame:
        folder = self.folder(experiment)
        paths = [path for path in sorted(folder.glob("*.parquet")) if path.name != STEP_LOG]
        if not paths:
            raise _missing(folder / MANIFEST)
        records = pd.concat([pd.read_parquet(path) for path in paths], ignore_index=True)
        metrics.require_complete(records)
        metrics.require_paired(records)
        return records

    def _read_steps(self, experiment: str) -> pd.DataFrame:
        path = self.folder(experiment) / STEP_LOG
        if not path.exists():
            raise _missing(path)
        source = path.relative_to(self.results_dir).parts[0]
        return _labelled(pd.read_parquet(path), source).assign(experiment=experiment)

    def _read_config(self, experiment: str) -> dict[str, Any]:
        folder = self.folder(experiment)
        paths = sorted(folder.glob("*.json"))  # a manifest, or the provenance of each scheduler
        if not paths:
            raise _missing(folder / MANIFEST)
        return json.loads(paths[0].read_text(encoding="utf-8"))["config"]

    def _read_published(self, name: str) -> pd.DataFrame:
        text = dict.fromkeys(("table", "model", "hardware", "burst", "scheduler", "metric"), str)
        tokens = dict.fromkeys(("prompt_tokens", "output_tokens"), "Int64")
        return pd.read_csv(self.published_dir / name, dtype={**text, **tokens})


def _labelled(steps: pd.DataFrame, folder: str) -> pd.DataFrame:
    """A step log with its source: its own, else the folder's."""
    return steps.assign(source=steps.get("source", folder))


def _missing(path: Path) -> FileNotFoundError:
    return FileNotFoundError(f"{path} is missing; make it with: snakemake --cores 1 {path}")
