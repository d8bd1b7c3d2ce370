"""Read access to what was run (``results/``) and to what the paper prints (``data/published/``)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from ppas import metrics

STEP_LOG = "steps.parquet"
MANIFEST = "manifest.json"  # written with the records of an experiment, and their workflow target


class Study:
    """Lazy, cached frames of every experiment: all sources found on disk, each row labelled.

    Experiments are named as in ``conf/experiment/``. A missing file raises a one-line
    FileNotFoundError that says how to make it; a failed request raises ValueError.
    """

    def __init__(
        self,
        results: Path = Path("results"),
        published: Path = Path("data/published"),
        conf: Path = Path("conf"),
    ) -> None:
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

    def _once(self, kind: str, name: str, make: Callable[[str], Any]) -> Any:
        if (kind, name) not in self._cache:
            self._cache[kind, name] = make(name)
        return self._cache[kind, name]

    def _read_records(self, experiment: str) -> pd.DataFrame:
        paths = sorted(self.results_dir.glob(f"*/{experiment}/*.parquet"))
        paths = [path for path in paths if path.name != STEP_LOG]
        if not paths:
            raise _missing(self.results_dir / "simulated" / experiment / MANIFEST)
        records = pd.concat([pd.read_parquet(path) for path in paths], ignore_index=True)
        metrics.require_complete(records)
        metrics.require_paired(records)
        return records

    def _read_steps(self, experiment: str) -> pd.DataFrame:
        paths = sorted(self.results_dir.glob(f"*/{experiment}/{STEP_LOG}"))
        if not paths:
            raise _missing(self.results_dir / "simulated" / experiment / STEP_LOG)
        logs = [_labelled(pd.read_parquet(path), path.parts[-3]) for path in paths]
        return pd.concat(logs, ignore_index=True).assign(experiment=experiment)

    def _read_config(self, experiment: str) -> dict[str, Any]:
        paths = sorted(self.results_dir.glob(f"*/{experiment}/{MANIFEST}"))
        if not paths:
            raise _missing(self.results_dir / "simulated" / experiment / MANIFEST)
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
