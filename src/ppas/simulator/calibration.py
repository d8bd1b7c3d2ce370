"""Fit a cost model to the published static rows of one (model, GPU) pair.

The fit sees nothing but the cells its file names under ``fit.cells``, never a P-PAS row. It starts
from the datasheet, or from a neighbouring pair's fit scaled by the two datasheets, and is pulled
back towards its start: a pair has 4 to 30 cells of one prompt and one output length, which leave
some coefficients open.

No P-PAS cell enters a fit, but the constants below, and what some files fix under ``given`` or
``start``, were picked among a few variants with the errors on P-PAS cells and on Tables 3 and 8 in
view. Those errors are therefore held out, not blind.
"""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml
from scipy.optimize import least_squares

from ppas.config import CONF, ROOT, ZERO_SHOT, ConfigError, load
from ppas.policies import Policy
from ppas.results import SIMULATED, replacing
from ppas.runs import Run, enumerate_runs
from ppas.schema import Config
from ppas.simulator.cost_model import CostModel
from ppas.simulator.engine import EngineOptions, simulate
from ppas.simulator.runner import engine_options, engine_requests, request_times
from ppas.simulator.zero_shot import calibrated_pairs, over_peak, times_peak
from ppas.workload import Trace

METRICS = ("e2e_mean_s", "e2e_p95_s", "ttft_mean_s", "tpot_mean_s", "makespan_s")
WEIGHTS = (2, 1, 1, 1, 1)  # mean E2E is what schedulers are compared by
F_SCALE = 0.05  # relative error beyond which a cell counts as an outlier (soft L1)
REACH = 30.0  # how far a coefficient may move from its start, as a factor
PULL = 0.06  # a coefficient e times its start counts as much as a cell that is 6% off
STEP = 0.01  # of the numerical derivative, relative: schedules jump, so smaller ones see noise
# Where a fit starts, over the datasheet's peak: compute reaches 80% of it and bandwidth 50%, and a
# prefill makes decodes' reads slower still. A chunk meets the context before it far slower than
# memory could deliver it: Figure 5's eight 2k chunks against one of 16k (7.21 and 5.83 ms per
# layer) make it 21 times a read of the same KV. The client's are in seconds.
ASSUMED_OVER_PEAK = CostModel(
    t_decode=2, kv_decode=2, t_mixed=2, per_token=1.25, attention=1.25, kv_reload=40, kv_mixed=4,
    kv_tail=10, client_submit=0.02, client_complete=0.03,
)  # fmt: skip


class Cell(NamedTuple):
    """A published row and the runs that reproduce it."""

    scheduler: str
    burst: float
    published: np.ndarray  # METRICS, in seconds
    runs: list[tuple[Trace, Policy, EngineOptions]]


def datasheet_start(config: Config) -> CostModel:
    """Coefficients from the GPU's datasheet and the model's shape, before any fit."""
    return times_peak(config, ASSUMED_OVER_PEAK)


def starting_point(config: Config, spec: dict[str, Any]) -> CostModel:
    """Where a fit starts, from its file's ``fit`` block.

    ``prior`` names a neighbouring pair whose fit is scaled by the two datasheets; ``start`` and
    ``given`` replace single coefficients.
    """
    start = datasheet_start(config)
    if "prior" in spec:
        path = CONF / "cost_model" / f"{spec['prior']}.yaml"
        file = yaml.safe_load(path.read_text())
        near = load([f"experiment={file['fit']['experiment']}", f"cost_model={path.stem}"])
        scale = np.array(CostModel(**file["coefficients"])) / np.array(datasheet_start(near))
        start = CostModel(*(scale * start).tolist())
    return start._replace(**spec.get("start", {}), **spec.get("given", {}))


def published_rows(config: Config, table: int | str) -> pd.DataFrame:
    """A published table's rows on the model and GPU of ``config``, with numeric burst rates."""
    rows = pd.read_csv(ROOT / "data" / "published" / f"table{int(table):02d}.csv")
    rows = rows[rows["model"].eq(config.model.name) & rows["hardware"].eq(config.hardware.name)]
    return rows.assign(burst=rows["burst"].astype(float))


def published_cells(config: Config, wanted: list[dict[str, Any]]) -> list[Cell]:
    """The cells of ``fit.cells`` with the runs of the experiment that reproduce them.

    Raises:
        ConfigError: a named cell is not published or not in the experiment.
    """
    runs = enumerate_runs(config)
    cells = []
    for part in wanted:
        rows = published_rows(config, part["table"])
        rows = rows[rows["scheduler"].isin(part["schedulers"])]
        for (scheduler, burst), group in rows.groupby(["scheduler", "burst"], sort=False):
            matching = [r for r in runs if (r.scheduler.name, r.burst_rate) == (scheduler, burst)]
            if not matching:
                raise ConfigError(
                    f"conf/cost_model: fit.cells: {scheduler} at burst {burst:g} is not a run of "
                    f"{config.experiment}"
                )
            values = group.set_index("metric")["value"].reindex(METRICS).to_numpy(float)
            cells.append(Cell(scheduler, burst, values, [_prepared(config, r) for r in matching]))
    return cells


def _prepared(config: Config, run: Run) -> tuple[Trace, Policy, EngineOptions]:
    return run.trace, run.policy, engine_options(config, run)


def predict(cell: Cell, cost: CostModel) -> np.ndarray:
    """METRICS of a cell in seconds: per run, then the unweighted mean over seeds."""
    return np.mean([_run_metrics(*run, cost) for run in cell.runs], axis=0)


def _run_metrics(
    trace: Trace, policy: Policy, options: EngineOptions, cost: CostModel
) -> tuple[float, ...]:
    requests = engine_requests(trace, cost)
    simulate(requests, policy, options, cost, False, False)
    times = request_times(trace, requests, cost)
    return (
        times["e2e_s"].mean(),
        np.percentile(times["e2e_s"], 95),
        times["ttft_s"].mean(),
        times["tpot_s"].mean(),
        times["completed_s"].max() - times["arrival_s"].min(),
    )


def fit(
    cells: list[Cell],
    start: CostModel,
    given: Collection[str] = (),
    progress: Callable[[str], Any] = print,
) -> CostModel:
    """Least squares on log ratios; coefficients are bounded logarithms, pulled towards ``start``.

    The coefficients named in ``given`` stay as they are.
    """
    origin = np.log(np.array(start))
    free = np.array([name not in given for name in CostModel._fields])
    published = np.array([cell.published for cell in cells])
    known = np.isfinite(published)

    def model(moved: np.ndarray) -> CostModel:
        logs = origin.copy()
        logs[free] = moved
        return CostModel(*np.exp(logs).tolist())

    def residuals(moved: np.ndarray) -> np.ndarray:
        cost = model(moved)
        predicted = np.array([predict(cell, cost) for cell in cells])
        pulled = PULL * (moved - origin[free])
        ratios = WEIGHTS * np.log(predicted / published)
        return np.concatenate([ratios[known], pulled])

    reach = np.log(REACH)
    solution = least_squares(
        residuals, origin[free], bounds=(origin[free] - reach, origin[free] + reach),
        loss="soft_l1", f_scale=F_SCALE, x_scale=1.0, diff_step=STEP, max_nfev=80,
    )  # fmt: skip
    progress(f"{solution.nfev} evaluations, cost {solution.cost:.5f}: {solution.message}")
    # Four digits, as the file keeps them.
    return CostModel(*(float(f"{value:.4g}") for value in model(solution.x)))


def relative_errors(cells: list[Cell], cost: CostModel) -> np.ndarray:
    """Predicted over published, less one: an array of (cells, METRICS)."""
    return np.array([predict(cell, cost) / cell.published - 1 for cell in cells])


def summary(errors: np.ndarray) -> dict[str, Any]:
    """Mean absolute error per published metric and the worst E2E error, in percent."""
    percent = 100 * np.abs(errors)
    mean = {
        metric: round(float(percent[:, k].mean()), 2)
        for k, metric in enumerate(METRICS)
        if np.isfinite(percent[:, k]).all()
    }
    return {
        "cells": len(errors),
        "mean_abs_error_pct": mean,
        "worst_e2e_error_pct": round(float(percent[:, 0].max()), 2),
    }


def leave_one_rate_out(
    cells: list[Cell], start: CostModel, given: Collection[str] = ()
) -> dict[float, np.ndarray]:
    """Cross-validation: for each burst rate, its cells' errors under a fit to all the others.

    With two rates a fit would see a single one, which says little: empty then.
    """
    rates = sorted({cell.burst for cell in cells})
    errors = {}
    for rate in rates if len(rates) > 2 else ():
        seen = [cell for cell in cells if cell.burst != rate]
        unseen = [cell for cell in cells if cell.burst == rate]
        cost = fit(seen, start, given, progress=lambda line: None)
        errors[rate] = relative_errors(unseen, cost)
    return errors


def calibrate(pair: str, progress: Callable[[str], Any] = print) -> str:
    """Fit ``conf/cost_model/<pair>.yaml`` and write its coefficients and errors back.

    The pair ``zero_shot`` is none: its file is made anew from all the others.

    Returns:
        One line on how well it fits.
    """
    path = CONF / "cost_model" / f"{pair}.yaml"
    if not path.is_file():
        raise ConfigError(f"{path.relative_to(ROOT)}: no such cost model")
    if pair == ZERO_SHOT:
        return write_zero_shot(path)
    spec = yaml.safe_load(path.read_text())["fit"]
    if "cells" not in spec:
        raise ConfigError(
            f"{path.relative_to(ROOT)}: fit.cells: none; it is no fit to published rows. One to "
            "measured probes is made again with `ppas calibrate --probes`"
        )
    config = load([f"experiment={spec['experiment']}", f"cost_model={pair}"])
    cells = published_cells(config, spec["cells"])
    start, given = starting_point(config, spec), spec.get("given", ())
    cost = fit(cells, start, given, progress)
    errors = summary(relative_errors(cells, cost))
    if unseen := leave_one_rate_out(cells, start, given):
        errors["left_out"] = summary(np.concatenate(list(unseen.values())))
    header = f"Fitted by `snakemake calibrate` ({pair}). Edit `fit` only, without its `errors`."
    write_cost_model(path, header, config, cost, spec | {"errors": errors})
    return (
        f"{pair}: mean E2E error {errors['mean_abs_error_pct']['e2e_mean_s']}% over "
        f"{errors['cells']} cells, worst {errors['worst_e2e_error_pct']}%"
    )


def write_zero_shot(path: Path) -> str:
    """Write how far the calibrated pairs stay behind their datasheets; returns one line."""
    pairs = calibrated_pairs()
    factors = over_peak(pairs.values())
    header = "Written by `ppas calibrate zero_shot`, from the other files; not to be edited."
    lines = [
        f"# {header}",
        "# Coefficients over the datasheet's peak: src/ppas/simulator/zero_shot.py.",
        "source: uncalibrated",
        "over_peak:",
        *_listed(factors, {name: "s/request" for name in UNITS if name.startswith("client")}),
    ]
    _write(path, lines, {"source": "datasheet", "pairs": list(pairs)})
    return f"{path.stem}: from {len(pairs)} calibrated pairs"


def write_cost_model(
    path: Path, header: str, config: Config, cost: CostModel, fit: dict, source: str = SIMULATED
) -> None:
    """Write a cost-model file of the model and GPU of ``config``; comments name units.

    ``source`` is what results made with it are called.
    """
    lines = [
        f"# {header}",
        "# Units and meaning: src/ppas/simulator/cost_model.py.",
        f"model: {config.model.name}",
        f"hardware: {config.hardware.name}",
        f"source: {source}",
        "coefficients:",
        *_listed(cost, UNITS),
    ]
    _write(path, lines, fit)


def _listed(values: CostModel, units: dict[str, str]) -> list[str]:
    """One line per coefficient, with its unit as a comment."""
    lines = []
    for name, value in values._asdict().items():
        number = yaml.safe_dump(value).split()[0]  # readable by every YAML parser, as 1.0e-09
        lines.append(f"  {name}: {number}" + (f"  # {units[name]}" if name in units else ""))
    return lines


def _write(path: Path, lines: list[str], fit: dict) -> None:
    body = yaml.safe_dump({"fit": fit}, sort_keys=False, default_flow_style=None, width=95)
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n" + body)


UNITS = {
    "t_decode": "s/step",
    "kv_decode": "s/context token",
    "t_mixed": "s/step",
    "per_token": "s/token",
    "attention": "s/(token x context token)",
    "kv_reload": "s/context token",
    "kv_mixed": "s/context token",
    "kv_tail": "s/context token",
    "client_submit": "s/request",
    "client_complete": "s/request",
}
