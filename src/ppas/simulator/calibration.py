"""Fit a cost model to the published static rows of one (model, GPU) pair.

The fit sees nothing but the cells its file names under ``fit.cells``, never a P-PAS row. It
starts from the datasheet, so that the same inputs always give the same coefficients.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml
from scipy.optimize import least_squares

from ppas.config import CONF, ROOT, ConfigError, load
from ppas.policies import Policy
from ppas.results import replacing
from ppas.runs import Run, enumerate_runs
from ppas.schema import Config
from ppas.simulator.cost_model import CostModel
from ppas.simulator.engine import EngineOptions, simulate
from ppas.simulator.runner import engine_options, engine_requests, request_times
from ppas.sizing import kv_bytes_per_token
from ppas.workload import Trace

METRICS = ("e2e_mean_s", "e2e_p95_s", "ttft_mean_s", "tpot_mean_s", "makespan_s")
F_SCALE = 0.05  # relative error beyond which a cell counts as an outlier (soft L1)
REACH = 30.0  # how far a coefficient may move from its start, as a factor
# Where the datasheet start assumes efficiencies: achieved over peak.
COMPUTE_EFFICIENCY, BANDWIDTH_EFFICIENCY = 0.8, 0.5
FP4_BYTES = 4.5 / 8  # of a weight in 4 bits, with its share of an 8-bit scale per 16


class Cell(NamedTuple):
    """A published row and the runs that reproduce it."""

    scheduler: str
    burst: float
    published: np.ndarray  # METRICS, in seconds
    runs: list[tuple[Trace, Policy, EngineOptions]]


def datasheet_start(config: Config) -> CostModel:
    """Coefficients from the GPU's datasheet and the model's shape, before any fit.

    A decode step reads the weights that a token meets; a token costs two operations per such
    weight; a prefill token and a context token cost four operations per head dimension, in every
    layer of attention.
    """
    model, hardware = config.model, config.hardware
    bandwidth = hardware.memory_bandwidth_gb_s * 1e9 * BANDWIDTH_EFFICIENCY
    bf16 = hardware.dense_bf16_tflop_s * 1e12 * COMPUTE_EFFICIENCY
    fp4 = hardware.dense_fp4_tflop_s * 1e12 * COMPUTE_EFFICIENCY or bf16
    active = model.active_parameters_b or model.weight_gib * 2**30 / 2 / 1e9
    narrow, wide = model.fp4_parameters_b * 1e9, (active - model.fp4_parameters_b) * 1e9
    read = (2 * wide + FP4_BYTES * narrow) / bandwidth
    kv_read = kv_bytes_per_token(config) / bandwidth
    width = model.attention_heads * model.head_size
    layers = model.layers if model.attention_layers is None else model.attention_layers
    return CostModel(
        t_decode=read,
        kv_decode=kv_read,
        t_mixed=2 * read,
        per_token=2 * wide / bf16 + 2 * narrow / fp4,
        attention=4 * width * layers / bf16,
        kv_reload=3 * kv_read,
        kv_mixed=2 * kv_read,
        kv_tail=5 * kv_read,
        client_submit=0.02,
        client_complete=0.03,
    )


def starting_point(config: Config, prior: str | None) -> CostModel:
    """Where a fit starts: the datasheet, or a neighbouring pair's fit scaled by the datasheets."""
    start = datasheet_start(config)
    if prior is None:
        return start
    spec = yaml.safe_load((CONF / "cost_model" / f"{prior}.yaml").read_text())
    neighbour = load([f"experiment={spec['fit']['experiment']}", f"cost_model={prior}"])
    fitted = np.array(CostModel(**spec["coefficients"]))
    return CostModel(*(fitted * np.array(start) / np.array(datasheet_start(neighbour))).tolist())


def published_cells(config: Config, wanted: list[dict[str, Any]]) -> list[Cell]:
    """The cells of ``fit.cells`` with the runs of the experiment that reproduce them.

    Raises:
        ConfigError: a named cell is not published or not in the experiment.
    """
    runs = enumerate_runs(config)
    cells = []
    for part in wanted:
        rows = pd.read_csv(ROOT / "data" / "published" / f"table{int(part['table']):02d}.csv")
        rows = rows[
            rows["model"].eq(config.model.name) & rows["scheduler"].isin(part["schedulers"])
        ]
        rows = rows.assign(burst=rows["burst"].astype(float))
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
    cells: list[Cell], start: CostModel, progress: Callable[[str], Any] = print
) -> tuple[CostModel, np.ndarray]:
    """Least squares on log ratios, coefficients as bounded logarithms.

    Returns:
        (coefficients, relative errors of shape (cells, METRICS))
    """
    origin = np.log(np.array(start))
    published = np.array([cell.published for cell in cells])
    known = np.isfinite(published)

    def log_ratios(logs: np.ndarray) -> np.ndarray:
        cost = CostModel(*np.exp(logs).tolist())
        predicted = np.array([predict(cell, cost) for cell in cells])
        return np.log(predicted / published)

    def residuals(logs: np.ndarray) -> np.ndarray:
        return log_ratios(logs)[known]

    reach = np.log(REACH)
    solution = least_squares(
        residuals, origin, bounds=(origin - reach, origin + reach), loss="soft_l1",
        f_scale=F_SCALE, x_scale=1.0, diff_step=1e-3, max_nfev=80,
    )  # fmt: skip
    progress(f"{solution.nfev} evaluations, cost {solution.cost:.5f}: {solution.message}")
    rounded = [float(f"{value:.4g}") for value in np.exp(solution.x)]  # as the file keeps them
    return CostModel(*rounded), np.exp(log_ratios(np.log(rounded))) - 1


def calibrate(pair: str, progress: Callable[[str], Any] = print) -> str:
    """Fit ``conf/cost_model/<pair>.yaml`` and write its coefficients and errors back.

    Returns:
        One line on how well it fits.
    """
    path = CONF / "cost_model" / f"{pair}.yaml"
    if not path.is_file():
        raise ConfigError(f"{path.relative_to(ROOT)}: no such cost model")
    spec = yaml.safe_load(path.read_text())["fit"]
    config = load([f"experiment={spec['experiment']}", f"cost_model={pair}"])
    cells = published_cells(config, spec["cells"])
    cost, errors = fit(cells, datasheet_start(config), progress)
    mean = {
        metric: round(100 * float(np.nanmean(np.abs(errors[:, k]))), 2)
        for k, metric in enumerate(METRICS)
    }
    worst = round(100 * float(np.nanmax(np.abs(errors[:, 0]))), 2)
    write_cost_model(path, spec, cost, {"cells": len(cells), "mean_abs_error_pct": mean,
                                        "worst_e2e_error_pct": worst})  # fmt: skip
    return f"{pair}: mean E2E error {mean['e2e_mean_s']}% over {len(cells)} cells, worst {worst}%"


def write_cost_model(path: Path, spec: dict, cost: CostModel, errors: dict) -> None:
    """Write a cost-model file; its comments name each coefficient's unit."""
    lines = [
        f"# Fitted by `snakemake calibrate` ({path.stem}). Edit only `experiment` and `cells`.",
        "# Units and meaning: src/ppas/simulator/cost_model.py.",
        "coefficients:",
    ]
    for name, value in cost._asdict().items():
        number = yaml.safe_dump(value).split()[0]  # readable by every YAML parser, as 1.0e-09
        lines.append(f"  {name}: {number}  # {UNITS[name]}")
    kept = {"experiment": spec["experiment"], "cells": spec["cells"], "errors": errors}
    with replacing(path) as temporary:
        body = yaml.safe_dump({"fit": kept}, sort_keys=False, default_flow_style=None)
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
