"""Calibration: finds what made the data, sees static rows only, and is what is committed."""

import numpy as np
import pandas as pd
import pytest
import yaml

from ppas.config import CONF, ROOT, ConfigError, fitted_pairs, load
from ppas.simulator import calibration
from ppas.simulator.calibration import (
    Cell,
    datasheet_start,
    fit,
    leave_one_rate_out,
    predict,
    published_cells,
    relative_errors,
    starting_point,
    summary,
)
from ppas.simulator.cost_model import CostModel, Work, step_time

PRIMARY = "experiment=rtx5090_primary"
PAIRS = fitted_pairs()
STATIC = [{"table": "9", "schedulers": ["MBT 1k", "MBT 2k", "MBT 4k", "MBT 8k", "MBT 16k"]}]


@pytest.fixture(scope="module")
def config():
    return load([PRIMARY])


def test_fit_recovers_the_cost_model_that_made_the_data(config, monkeypatch):
    # The step in use is wide for the sake of noisy data and stops 2% short; these have no noise.
    monkeypatch.setattr(calibration, "STEP", 1e-3)
    start = datasheet_start(config)
    true = CostModel(*(value * factor for value, factor in
                       zip(start, (1.2, 0.7, 0.8, 1.2, 1.3, 1.3, 1.2, 0.8, 1.1, 1.2),
                           strict=True)))  # fmt: skip
    wanted = [{"table": "9", "schedulers": ["MBT 2k", "MBT 16k"]}]
    cells = published_cells(config, wanted)
    made = [cell._replace(published=predict(cell, true)) for cell in cells]
    found = fit(made, start, progress=lambda line: None)
    assert np.abs(relative_errors(made, found)).max() < 0.02
    # With one prompt length, per-token and attention cost can trade; a prefill's time cannot.
    alone = Work(16384, 16384, 16384**2 / 2, 0, 0, 0)
    assert step_time(start, alone) != pytest.approx(step_time(true, alone), rel=0.05)
    assert step_time(found, alone) == pytest.approx(step_time(true, alone), rel=0.02)


def test_committed_cost_models_never_saw_an_adaptive_row():
    assert len(PAIRS) == 8
    for pair in PAIRS:
        path = CONF / "cost_model" / f"{pair}.yaml"
        fitted = yaml.safe_load(path.read_text())["fit"]
        names = [name for part in fitted["cells"] for name in part["schedulers"]]
        assert names
        assert all(name.startswith("MBT ") for name in names), path


def test_cells_are_the_published_means(config):
    cells = {(c.scheduler, c.burst): c for c in published_cells(config, STATIC)}
    assert len(cells) == 30
    np.testing.assert_allclose(
        cells["MBT 2k", 0.4].published, [3.348, 5.168, 2.079, 0.0409, 39.226]
    )
    assert len(cells["MBT 2k", 0.4].runs) == 5


@pytest.mark.parametrize("pair", PAIRS)
def test_errors_recorded_with_the_coefficients_are_true(pair):
    spec = yaml.safe_load((CONF / "cost_model" / f"{pair}.yaml").read_text())["fit"]
    config = load([f"experiment={spec['experiment']}"])
    cost = CostModel(**vars(config.cost_model.coefficients))
    recorded = {key: value for key, value in spec["errors"].items() if key != "left_out"}
    assert summary(relative_errors(published_cells(config, spec["cells"]), cost)) == recorded


def test_given_coefficients_are_kept_and_come_from_figure_5_and_the_datasheet(config):
    given = config.cost_model.fit["given"]
    fitted = vars(config.cost_model.coefficients)
    assert {name: fitted[name] for name in given} == given
    tokens, chunks, layers = 16384, 8, config.model.layers
    in_one, in_eight = 5.83e-3, 7.21e-3  # s per layer, section 6.1
    assert given["attention"] == pytest.approx(layers * in_one / (tokens**2 / 2), rel=1e-3)
    found_computed = sum(k * tokens / chunks for k in range(chunks))
    reload = layers * (in_eight - in_one) / found_computed
    assert given["kv_reload"] == pytest.approx(reload, rel=1e-3)
    sheet = datasheet_start(config)
    assert given["kv_decode"] == pytest.approx(sheet.kv_decode, rel=1e-3)
    assert given["kv_mixed"] == pytest.approx(sheet.kv_mixed, rel=1e-3)


def test_a_neighbour_is_scaled_by_the_datasheets(config):
    smaller = load(["experiment=rtx5090_models_qwen2_5_0_5b"])
    start = starting_point(smaller, {"prior": "qwen2_5_3b_rtx5090", "start": {"kv_tail": 1.0}})
    ratio = smaller.model.weight_gib / config.model.weight_gib
    near = config.cost_model.coefficients
    assert start.per_token == pytest.approx(near.per_token * ratio)
    assert start.client_submit == pytest.approx(near.client_submit)
    assert start.kv_tail == 1.0


def test_left_out_errors_recorded_are_true():
    config = load(["experiment=rtx5090_homogeneous_nemotron_30b"])
    spec = config.cost_model.fit
    cells = published_cells(config, spec["cells"])
    unseen = leave_one_rate_out(cells, starting_point(config, spec))
    assert sorted(unseen) == [0.5, 1.0, 1.5, 2.0]
    # Not to the last digit: least squares may stop elsewhere on another machine.
    errors = summary(np.concatenate(list(unseen.values())))["mean_abs_error_pct"]["e2e_mean_s"]
    recorded = spec["errors"]["left_out"]["mean_abs_error_pct"]["e2e_mean_s"]
    assert errors == pytest.approx(recorded, abs=0.5)
    assert leave_one_rate_out(cells[:2], starting_point(config, spec)) == {}


# Mean E2E error in percent of the P-PAS cells, which no fit has seen: on average, at worst.
HELD_OUT = {
    9: ("rtx5090_primary", 4, 10),
    10: ("rtx5090_primary_high_load", 4, 10),
    11: ("rtx5090_models_smollm3_3b", 4, 10),
    13: ("a100_qwen2_5_3b", 4, 10),
    14: ("rtx5090_homogeneous_qwen3_8_27b", 1.5, 4),
    15: ("rtx5090_homogeneous_nemotron_30b", 1.5, 4),
}


@pytest.mark.parametrize("table", HELD_OUT)
def test_adaptive_cells_are_predicted(table):
    experiment, average, worst = HELD_OUT[table]
    config = load([f"experiment={experiment}"])
    cells = published_cells(config, [{"table": table, "schedulers": ["P-PAS"]}])
    cost = CostModel(**vars(config.cost_model.coefficients))
    errors = 100 * np.abs(relative_errors(cells, cost))
    assert errors[:, 0].mean() <= average
    assert errors[:, 0].max() <= worst
    assert errors[:, 4].mean() <= 1.6


def test_unpublished_runs_are_refused(config):
    with pytest.raises(ConfigError, match=r"MBT 2k at burst 1\.6 is not a run of rtx5090_primary"):
        published_cells(config, [{"table": "10", "schedulers": ["MBT 2k"]}])


def test_table_5_prefill_is_predicted(config):
    """A check outside the fit: one 16k prefill on an idle GPU (Table 5)."""
    cost = CostModel(**vars(config.cost_model.coefficients))
    tokens = 16384
    rows = pd.read_csv(ROOT / "data/published/table05.csv")
    chosen = rows["model"].eq("Qwen2.5-3B") & rows["scheduler"].fillna("").str.endswith("16k")
    published = rows.loc[chosen, "value"].item()
    alone = 1000 * step_time(cost, Work(tokens, tokens, tokens**2 / 2, 0, 0, 0))
    assert alone == pytest.approx(published, rel=0.05)


def test_written_file_is_read_back(config, tmp_path):
    path = tmp_path / "pair.yaml"
    cost = CostModel(*np.linspace(1e-9, 1e-3, 10).tolist())
    fit = {"experiment": "rtx5090_primary", "cells": STATIC}
    calibration.write_cost_model(path, "Made by a test.", config, cost, fit)
    data = yaml.safe_load(path.read_text())
    assert path.read_text().startswith("# Made by a test.\n")
    assert data["coefficients"] == pytest.approx(cost._asdict(), rel=1e-3)
    assert data["fit"] == fit
    assert (data["model"], data["hardware"]) == ("Qwen2.5-3B", "RTX5090")
    assert data["source"] == "simulated"
    assert "s/token" in path.read_text()


def test_a_fit_to_measured_probes_is_not_refitted_to_published_rows(tmp_path, monkeypatch, config):
    monkeypatch.setattr(calibration, "CONF", tmp_path)
    monkeypatch.setattr(calibration, "ROOT", tmp_path)
    (tmp_path / "cost_model").mkdir()
    cost = CostModel(**vars(config.cost_model.coefficients))
    path = tmp_path / "cost_model" / "pair.yaml"
    calibration.write_cost_model(path, "", config, cost, {"source": "measured probes"})
    with pytest.raises(ConfigError, match=r"pair\.yaml: fit\.cells: none; .* --probes`$"):
        calibration.calibrate("pair")


def test_prediction_is_a_mean_over_runs(config):
    cell = published_cells(config, [{"table": "9", "schedulers": ["MBT 16k"]}])[0]
    cost = CostModel(**vars(config.cost_model.coefficients))
    single = [predict(Cell(cell.scheduler, cell.burst, cell.published, [run]), cost)
              for run in cell.runs]  # fmt: skip
    np.testing.assert_allclose(predict(cell, cost), np.mean(single, axis=0))
