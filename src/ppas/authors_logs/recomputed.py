"""The paper's tables of latencies, recomputed from imported logs and held against the printed.

The modules of ``paper/tables`` do the work: they read the logs instead of ``results/``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import import_module
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ppas.authors_logs.matching import SOURCE, Imported
from ppas.config import load
from ppas.metrics import CELL_KEYS, METRICS
from ppas.paper import improvement, outputs
from ppas.paper.study import Study
from ppas.paper.tables.render import Layout, digits
from ppas.paper.tidy import KEYS, SD, SETTING, burst_label

CELL_TABLES = (9, 10, 11, 12, 13, 14, 15)
MEAN = "e2e_mean_s"
FAR = 2  # ratio to the printed mean; seeds alone seldom bring as much


class LoggedStudy(Study):
    """A study whose results are imported logs; what they lack is empty."""

    def __init__(self, imported: Imported, published: Path) -> None:
        super().__init__(published=published)
        self.imported = imported

    @property
    def experiments(self) -> list[str]:
        """Experiments that have a run."""
        return sorted(self.imported.runs["experiment"].unique())

    def runs(self, experiment: str) -> pd.DataFrame:
        """The authors' own run values, in seconds."""
        runs = self.imported.runs
        return runs[runs["experiment"] == experiment]

    def _read_records(self, experiment: str) -> pd.DataFrame:
        records = self.imported.records
        return records[records["experiment"] == experiment]

    def _read_config(self, experiment: str) -> dict[str, Any]:
        return asdict(load([f"experiment={experiment}"]))


def tables(study: LoggedStudy) -> tuple[dict[str, pd.DataFrame], dict[str, str]]:
    """Every table of latencies that reads an imported experiment, and why others cannot be made.

    A table has the columns of ``tables/*.csv`` and ``seeds``: how many are behind a row, for an
    improvement at least how many. Rows that no log tells have no value.
    """
    made, lacking = {}, {}
    for name, needs in _latency_tables(study):
        try:
            _require_conditions(study, name, needs)
            rows = import_module(f"ppas.paper.tables.{name}").build(study)
        except ValueError as error:
            lacking[name] = str(error)
        else:
            made[name] = _with_seeds(rows, pd.concat([study.cells(need) for need in needs]))
    return made, lacking


def _latency_tables(study: LoggedStudy) -> Iterator[tuple[str, Sequence[str]]]:
    latencies = {*METRICS, *improvement.METRICS}
    for name, needs in outputs.tables().items():
        numbered = name.startswith("table") and set(needs) & set(study.experiments)
        if numbered and latencies & set(study.published(_number(name))["metric"]):
            yield name, needs


def _number(name: str) -> int:
    return int(name.removeprefix("table")[:2])


def _require_conditions(study: LoggedStudy, name: str, needs: Sequence[str]) -> None:
    """Where a table averages over all conditions there are, the logs must have all of them.

    Raises:
        ValueError: a scheduler lacks one.
    """
    rows = study.published(_number(name))
    rows = rows[rows["metric"].isin(improvement.METRICS)]
    if all(improvement.burst_rates(label) for label in rows["burst"].unique()):
        return
    for need in needs:
        workload = study.config(need)["workload"]
        wanted = len(workload["phases"]) * len(workload["burst_rates"])
        for scheduler, runs in study.runs(need).groupby("scheduler"):
            have = runs["phases"].nunique()
            if have < wanted:
                raise ValueError(f"{need}: {scheduler} has {have} of {wanted} conditions")


def _with_seeds(rows: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    counts = _labelled(cells).drop_duplicates(KEYS)[[*KEYS, "n"]]
    keys = rows.assign(metric=rows["metric"].str.removesuffix(SD))[KEYS]
    seeds = keys.merge(counts, on=KEYS, how="left")["n"].fillna(cells["n"].min())
    return rows.assign(seeds=seeds.where(rows["source"] == SOURCE).astype("Int64"))


def _labelled(cells: pd.DataFrame) -> pd.DataFrame:
    return cells.assign(burst=cells["burst"].map(burst_label))


def means(study: LoggedStudy) -> pd.DataFrame:
    """Mean E2E in seconds of every imported cell, its seeds and what the paper prints for it.

    ``of`` is how many seeds the experiment has; ``difference`` is in percent of ``published``.
    """
    parts = [
        _labelled(study.cells(name)).assign(of=len(study.config(name)["seeds"]))
        for name in study.experiments
    ]
    cells = pd.concat(parts, ignore_index=True).drop_duplicates([*CELL_KEYS, "metric"])
    cells = cells[cells["metric"] == MEAN].rename(columns={"n": "seeds"})
    both = cells.merge(_printed_means(study), on=KEYS, how="left")
    return both.assign(difference=(both["value"] / both["published"] - 1) * 100)


def _printed_means(study: LoggedStudy) -> pd.DataFrame:
    printed = pd.concat([study.published(number) for number in CELL_TABLES])
    printed = printed[printed["metric"] == MEAN].drop_duplicates(KEYS)
    return printed[[*KEYS, "value"]].rename(columns={"value": "published"})


def report(study: LoggedStudy, made: dict[str, pd.DataFrame], lacking: dict[str, str]) -> str:
    """What was imported, cell by cell, and how far each table is from the printed one."""
    parts = [
        f"{_heading(keys)}\n{_grid(cells)}"
        for keys, cells in means(study).groupby(SETTING, dropna=False, sort=False)
    ]
    lines = [_summary(name, rows) for name, rows in made.items()]
    lines += [f"{name}: not recomputed: {reason}" for name, reason in lacking.items()]
    return "\n\n".join([*parts, "\n".join(lines)])


def _heading(keys: Sequence[Any]) -> str:
    model, hardware, prompt, output = keys
    lengths = f"{prompt}/{output}" if pd.notna(prompt) else "mixed"
    return f"{model}, {hardware}, {lengths} tokens: mean E2E [s], difference [%]"


def _grid(cells: pd.DataFrame) -> str:
    columns = ["scheduler", "burst", "phases", "seeds", "value", "published", "difference"]
    if cells["phases"].nunique() == cells["burst"].nunique():
        columns.remove("phases")
    seeds = [f"{row.seeds} of {row.of}" for row in cells.itertuples()]
    shown = cells.assign(seeds=seeds)[columns]
    formats = {"difference": "{:+.1f}".format}
    return shown.to_string(
        index=False, float_format="{:.3f}".format, formatters=formats, na_rep="-"
    )


def _summary(name: str, rows: pd.DataFrame) -> str:
    both = rows[rows["value"].notna() & rows["published"].notna()]
    wanted = int(rows["published"].notna().sum())
    if both.empty:
        return f"{name}: 0 of {wanted} printed numbers recomputed"
    layout = getattr(import_module(f"ppas.paper.tables.{name}"), "LAYOUT", Layout())
    half = [0.5 * 10 ** -digits(metric, layout.decimals) for metric in both["metric"]]
    difference = (both["value"] - both["published"]).abs()
    same = int((difference <= np.array(half) + 1e-9).sum())
    worst = both.loc[(difference / both["published"].abs()).idxmax()]
    return (
        f"{name}: {len(both)} of {wanted} printed numbers recomputed, {same} to the printed digit "
        f"({both['seeds'].min()} to {both['seeds'].max()} seeds); farthest: {worst['scheduler']}, "
        f"burst {worst['burst']}, {worst['metric']} {worst['value']:.4g}, published "
        f"{worst['published']:.4g}"
    )


def doubts(study: LoggedStudy) -> list[str]:
    """One line per model that fits another GPU's printed means far better than its own."""
    keys = [key for key in KEYS if key != "hardware"]
    mine = means(study).drop(columns="published")
    both = mine.merge(_printed_means(study), on=keys, suffixes=("", "_printed"))
    both["far"] = np.log(both["value"] / both["published"]).abs()
    found = []
    for (model, gpu), cells in both.groupby(["model", "hardware"]):
        far = cells.groupby("hardware_printed")["far"].median()
        nearest = far.idxmin()
        if nearest != gpu and far.get(gpu, 0.0) > log(FAR):
            found.append(
                f"{model}: mean E2E is {np.exp(far[gpu]):.1f} times off the published {gpu}, "
                f"{np.exp(far[nearest]):.1f} times off {nearest}; say which with --hardware"
            )
    return found
