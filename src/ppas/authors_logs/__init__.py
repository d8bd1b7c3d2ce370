"""The authors' public text logs, imported as results with the source ``published-raw``.

A log names no GPU, so whoever imports it does. What cannot be used is a problem of one line that
names file, line and remedy, and no mean is taken over it.
"""

from collections.abc import Sequence
from pathlib import Path

from ppas.authors_logs.lines import parse
from ppas.authors_logs.matching import (
    SOURCE,
    Imported,
    assemble,
    known_hardware,
    known_names,
    known_runs,
)
from ppas.config import ConfigError
from ppas.results import experiment_dir, write_frame

__all__ = ["SOURCE", "Imported", "import_logs", "write_results"]


def import_logs(paths: Sequence[Path], hardware: str, pairs: Sequence[str] = ()) -> Imported:
    """Read log files that were recorded on one GPU.

    Args:
        paths: text files in UTF-8, with or without a byte order mark, any line ends.
        hardware: a name or a file of ``conf/hardware``.
        pairs: ``LOGGED=CONF``, a log's name for a file of ``conf/model`` or ``conf/scheduler``.

    Raises:
        ConfigError: one line; a file cannot be read, or a name is not in ``conf/``.
    """
    names, gpu = known_names(pairs), known_hardware(hardware)
    logged, problems = [], []
    for path in paths:
        try:
            with path.open(encoding="utf-8-sig", errors="replace") as lines:
                runs, found = parse(lines, str(path))
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}; give the authors' text logs") from None
        logged += runs
        problems += found
    made = assemble(logged, gpu, names, known_runs() if logged else {})
    return Imported(made.runs, made.records, problems + made.problems)


def write_results(imported: Imported, root: Path) -> list[Path]:
    """Write ``published-raw/<experiment>/runs.parquet``, and ``records.parquet`` where there are
    request rows, under ``root``; return the paths."""
    written = []
    for name, frame in (("runs", imported.runs), ("records", imported.records)):
        for experiment, part in frame.groupby("experiment"):
            written.append(experiment_dir(root, SOURCE, experiment) / f"{name}.parquet")
            write_frame(part, written[-1])
    return written
