"""Measured results on disk: what a server session has finished, and what it publishes.

A session keeps each finished run at once in a journal, ``results/journal/...``, which survives any
kill. Once no run is missing, it writes ``results/measured/<hardware>/<experiment>/<scheduler>``
as one Parquet file of records and one JSON file of provenance. The workflow only ever reads those.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ppas.config import hardware_slug
from ppas.digest import content_digest
from ppas.results import records, write_frame, write_json
from ppas.runs import Run, enumerate_runs
from ppas.schema import Config

MEASURED = "measured"
JOURNAL = "journal"


class MeasuringFailed(RuntimeError):
    """A session could not measure everything; the message says what is wrong and what is kept."""


@dataclass(frozen=True)
class Store:
    """Where the measured runs of one (experiment, scheduler) live."""

    root: Path  # the results folder
    hardware: str
    experiment: str
    slug: str

    @property
    def records_path(self) -> Path:
        """The published records, one row per request."""
        return self.root / MEASURED / self.hardware / self.experiment / f"{self.slug}.parquet"

    @property
    def provenance_path(self) -> Path:
        """What vouches for the records: their hash, the runs, the sessions they came from."""
        return self.records_path.with_suffix(".json")

    @property
    def logs(self) -> Path:
        """Where servers' logs are kept, and the models that they are started from."""
        return self.root / JOURNAL / self.hardware / self.experiment / self.slug

    @property
    def runs(self) -> Path:
        """The journal's folder of runs that are finished but not yet published."""
        return self.logs / "runs"

    @property
    def sessions(self) -> Path:
        """The journal's folder of what those runs' servers ran on."""
        return self.logs / "sessions"

    def published(self) -> Mapping[str, Any]:
        """The provenance; empty if it does not vouch for the records beside it."""
        try:
            provenance = json.loads(self.provenance_path.read_text())
            if provenance["sha256"] == file_hash(self.records_path):
                return provenance
        except (OSError, ValueError, KeyError):
            pass  # nothing that can be trusted is published
        return {"runs": {}, "sessions": {}}

    def complete(self, runs: Iterable[Run]) -> bool:
        """Whether all of the runs are published."""
        return {run.run_id for run in runs} <= self.published()["runs"].keys()

    def missing(self, runs: Iterable[Run]) -> list[Run]:
        """The runs that neither the journal nor the published files hold."""
        known = self.published()["runs"].keys() | _facts(self.runs).keys()
        return [run for run in runs if run.run_id not in known]

    def keep(self, run: Run, frame: pd.DataFrame, facts: Mapping[str, Any]) -> None:
        """Add a finished run to the journal; its facts come last and vouch for its records."""
        write_frame(frame, self.runs / f"{run.run_id}.parquet")
        write_json(facts, self.runs / f"{run.run_id}.json")

    def keep_session(self, name: str, facts: Mapping[str, Any]) -> None:
        """Note what a server ran on, and once more when it ends, with its times."""
        write_json(facts, self.sessions / f"{name}.json")

    def publish(self, config: Config, runs: Sequence[Run]) -> None:
        """Write the records and the provenance of all runs, then drop the journal but the logs.

        Raises:
            ValueError: a run is missing.
        """
        if missing := self.missing(runs):
            raise ValueError(f"{len(missing)} runs of {self.slug} are not measured yet")
        self._unpublish(runs)
        facts, sessions = _facts(self.runs), _facts(self.sessions)
        frames = [pd.read_parquet(self.runs / f"{run.run_id}.parquet") for run in runs]
        write_frame(pd.concat(frames, ignore_index=True), self.records_path)
        used = {facts[run.run_id]["session"] for run in runs}
        provenance = {
            "source": MEASURED,
            "sha256": file_hash(self.records_path),
            "config": asdict(config),
            "runs": {run.run_id: facts[run.run_id] for run in runs},
            "sessions": {name: sessions[name] for name in sorted(used)},
        }
        write_json(provenance, self.provenance_path)
        for folder in (self.runs, self.sessions):
            shutil.rmtree(folder, ignore_errors=True)

    def _unpublish(self, runs: Iterable[Run]) -> None:
        """Copy what was published into the journal: a kill while publishing loses nothing."""
        before = self.published()
        known = _facts(self.runs)
        wanted = [r for r in runs if r.run_id in before["runs"] and r.run_id not in known]
        if not wanted:
            return
        frame = pd.read_parquet(self.records_path)
        for name, facts in before["sessions"].items():
            self.keep_session(name, facts)
        for run in wanted:
            self.keep(run, frame[frame["run_id"].eq(run.run_id)], before["runs"][run.run_id])


def stores(config: Config, root: Path) -> dict[Store, list[Run]]:
    """The stores of a configuration's schedulers and the runs that each must hold."""
    found: dict[Store, list[Run]] = {}
    for run in enumerate_runs(config):
        store = Store(root, hardware_slug(config), config.experiment, run.slug)
        found.setdefault(store, []).append(run)
    return found


def session_digest(runs: Iterable[Run]) -> str:
    """Hash of all runs of a session, whatever their order."""
    return content_digest(sorted(run.run_id for run in runs))


def _facts(folder: Path) -> dict[str, dict[str, Any]]:
    """What a journal's folder says, by the names of its files."""
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


def run_frame(config: Config, run: Run, columns: Mapping[str, Any]) -> pd.DataFrame:
    """A run's records, labelled as measured."""
    return records(config, [(run, dict(columns))], MEASURED)


def file_hash(path: Path) -> str:
    """SHA-256 of a file, in hex digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
