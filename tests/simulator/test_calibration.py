"""Calibration: finds what made the data, sees static rows only, and is what is committed."""

import numpy as np
import pytest
import yaml

from ppas.config import CONF, ROOT, ConfigError, load
from ppas.simulator import calibration
from ppas.simulator.calibration import Cell, datasheet_start, fit, predict, published_cells
from ppas.simulator.cost_model import CostModel, Work, step_time

PRIMARY = "experiment=rtx5090_primary"
STATIC = [{"table": "9", "schedulers": ["MBT 1k", "MBT 2k", "MBT 4k", "MBT 8k", "MBT 16k"]}]


@pytest.fixture(scope="module")
def config():
    return load([PRIMARY])


def test_fit_recovers_the_cost_model_that_made_the_data(config):
    start = datasheet_start(config)
    true = CostModel(*(value * factor for value, factor in
                       zip(start, (1.2, 0.7, 0.8, 1.2, 1.3, 1.3, 1.2, 0.8, 1.1, 1.2),
                           strict=True)))  # fmt: skip
    wanted = [{"table": "9", "schedulers": ["MBT 2k", "MBT 16k"]}]
    cells = published_cells(config, wanted)
    made = [cell._replace(published=predict(cell, true)) for cell in cells]
    found, errors = fit(made, start, progress=lambda line: None)
    assert np.abs(errors).max() < 0.02
    # With one prompt length, per-token and attention cost can trade; a prefill's time cannot.
    alone = Work(16384, 16384, 16384**2 / 2, 0, 0, 0)
    assert step_time(start, alone) != pytest.approx(step_time(true, alone), rel=0.05)
    assert step_time(found, alone) == pytest.approx(step_time(true, alone), rel=0.02)


def test_committed_cost_models_never_saw_an_adaptive_row():
    for path in sorted((CONF / "cost_model").glob("*.yaml")):
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


def test_error_recorded_with_the_coefficients_is_true(config):
    recorded = config.cost_model.fit["errors"]
    cost = CostModel(**vars(config.cost_model.coefficients))
    cells = published_cells(config, STATIC)
    errors = np.array([abs(predict(c, cost) / c.published - 1) for c in cells])
    assert 100 * errors[:, 0].mean() == pytest.approx(
        recorded["mean_abs_error_pct"]["e2e_mean_s"], abs=0.01
    )
    assert 100 * errors[:, 0].max() == pytest.approx(recorded["worst_e2e_error_pct"], abs=0.01)


def test_unpublished_runs_are_refused(config):
    with pytest.raises(ConfigError, match=r"MBT 2k at burst 1\.6 is not a run of rtx5090_primary"):
        published_cells(config, [{"table": "10", "schedulers": ["MBT 2k"]}])


def test_table_5_prefill_is_predicted(config):
    """A check outside the fit: one 16k prefill on an idle GPU (Table 5)."""
    cost = CostModel(**vars(config.cost_model.coefficients))
    tokens = 16384
    rows = (ROOT / "data/published/table05.csv").read_text().splitlines()
    published = next(
        float(row.split(",")[-2]) for row in rows if "Qwen2.5-3B" in row and "MBT16k" in row
    )
    alone = 1000 * step_time(cost, Work(tokens, tokens, tokens**2 / 2, 0, 0, 0))
    assert alone == pytest.approx(published, rel=0.1)


def test_written_file_is_read_back(config, tmp_path):
    path = tmp_path / "pair.yaml"
    cost = CostModel(*np.linspace(1e-9, 1e-3, 10).tolist())
    spec = {"experiment": "rtx5090_primary", "cells": STATIC}
    calibration.write_cost_model(path, spec, cost, {"cells": 30})
    data = yaml.safe_load(path.read_text())
    assert data["coefficients"] == pytest.approx(cost._asdict(), rel=1e-3)
    assert data["fit"]["cells"] == STATIC
    assert "s/token" in path.read_text()


def test_prediction_is_a_mean_over_runs(config):
    cell = published_cells(config, [{"table": "9", "schedulers": ["MBT 16k"]}])[0]
    cost = CostModel(**vars(config.cost_model.coefficients))
    single = [predict(Cell(cell.scheduler, cell.burst, cell.published, [run]), cost)
              for run in cell.runs]  # fmt: skip
    np.testing.assert_allclose(predict(cell, cost), np.mean(single, axis=0))
