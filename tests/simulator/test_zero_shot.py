"""Zero-shot cost models: derived at load, made from the calibrated pairs, labelled everywhere."""

import json
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
import yaml

from ppas import cli
from ppas.config import CONF, ConfigError, load
from ppas.paper.study import Study
from ppas.paper.tables import zero_shot as table
from ppas.paper.tidy import SOURCES
from ppas.results import simulate_experiment
from ppas.simulator import zero_shot
from ppas.simulator.cost_model import CostModel
from ppas.simulator.zero_shot import (
    calibrated_pairs,
    independent_of,
    over_peak,
    peak,
    times_peak,
)

H200 = ("experiment=rtx5090_primary", "hardware=h200", "cost_model=zero_shot")
ONE_RUN = ("scheduler=ppas", "seed=0", "burst_rate=1.0")
ROOT_PAIR = "qwen2_5_3b_rtx5090"


@pytest.fixture(scope="module")
def pairs():
    return calibrated_pairs()


def test_factors_on_file_are_those_of_the_calibrated_pairs(pairs):
    file = yaml.safe_load((CONF / "cost_model" / "zero_shot.yaml").read_text())
    assert file["over_peak"] == over_peak(pairs.values())._asdict(), "ppas calibrate zero_shot"
    assert file["fit"]["pairs"] == list(pairs)


def test_coefficients_are_derived_when_the_configuration_is_loaded():
    config = load(H200)
    factors = CostModel(**vars(config.cost_model.over_peak))
    found = CostModel(**vars(config.cost_model.coefficients))
    np.testing.assert_allclose(np.array(found) / np.array(peak(config)), factors)
    weights = config.model.weight_gib * 2**30 / 4.8e12
    assert found.t_decode == pytest.approx(factors.t_decode * weights)


def test_datasheet_scales_what_it_is_about(pairs):
    config = load(H200)
    config.hardware.memory_bandwidth_gb_s *= 2
    faster = zero_shot.coefficients(config)
    config.hardware.dense_bf16_tflop_s *= 4
    both = zero_shot.coefficients(config)
    before = zero_shot.coefficients(load(H200))
    reads = ("t_decode", "kv_decode", "t_mixed", "kv_reload", "kv_mixed", "kv_tail")
    assert [getattr(before, n) / getattr(faster, n) for n in reads] == pytest.approx([2] * 6)
    assert before.per_token / both.per_token == pytest.approx(4)
    assert before.attention / both.attention == pytest.approx(4)
    assert before.client_submit == both.client_submit


def test_an_experiment_may_choose_no_cost_model(tmp_path, monkeypatch):
    from tests.test_config import copy_conf

    path = copy_conf(tmp_path, monkeypatch) / "conf/experiment/rtx5090_primary.yaml"
    text = path.read_text()
    path.write_text(text.replace("  - override /cost_model: qwen2_5_3b_rtx5090\n", ""))
    config = load(["experiment=rtx5090_primary"])
    assert config.cost_model.source == "uncalibrated"
    expected = zero_shot.coefficients(config)
    assert vars(config.cost_model.coefficients) == expected._asdict()


@pytest.mark.parametrize(
    "override, problem",
    [
        ("hardware=h200", "cost_model: it is of Qwen2.5-3B on RTX5090, not of Qwen2.5-3B on H200"),
        (
            "model=smollm3_3b",
            "not of SmolLM3-3B on RTX5090; choose that pair's, or cost_model=zero",
        ),
        ("cost_model=qwen2_5_3b_a100", "it is of Qwen2.5-3B on A100-SXM, not of Qwen2.5-3B on RTX"),
        ("cost_model.source=measured", "cost_model.source: 'measured' is not one of simulated,"),
        ("cost_model=null", "Config group override must be a string"),
    ],
)
def test_another_pairs_cost_model_is_refused(override, problem):
    with pytest.raises(ConfigError) as caught:
        load(["experiment=rtx5090_primary", override])
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_run_by_hand_is_labelled(capsys):
    cli.main(["run", *H200, *ONE_RUN])
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[-1] == "source"
    assert row.split()[-1] == "uncalibrated"


def test_results_and_step_logs_are_labelled(tmp_path):
    config = load([*H200, *ONE_RUN, "log_steps=true"])
    simulate_experiment(config, tmp_path)
    folder = tmp_path / "simulated" / "rtx5090_primary"
    assert json.loads((folder / "manifest.json").read_text())["source"] == "uncalibrated"
    study = Study(tmp_path)
    for frame in (study.cells, study.runs, study.records, study.steps):
        assert set(frame("rtx5090_primary")["source"]) == {"uncalibrated"}
    assert "uncalibrated" in SOURCES


def test_a_pair_depends_on_the_pairs_it_started_from(pairs):
    assert independent_of(ROOT_PAIR, pairs) == ["nemotron_30b_rtx5090", "qwen3_8_27b_rtx5090"]
    assert "smollm3_3b_a100" not in independent_of("qwen2_5_3b_a100", pairs)
    assert independent_of("smollm3_3b_a100", pairs) == [n for n in pairs if n != "smollm3_3b_a100"]


def test_left_out_pairs_lend_nothing_to_their_own_prediction(pairs):
    """Whatever the left-out pair's fit says, its errors stay the same."""
    rows = pd.DataFrame(table._rows("qwen3_8_27b_rtx5090", pairs))
    spoilt = load(["experiment=rtx5090_homogeneous_qwen3_8_27b"])
    coefficients = spoilt.cost_model.coefficients
    for name, value in asdict(coefficients).items():
        setattr(coefficients, name, 7 * value)
    others = pairs | {"qwen3_8_27b_rtx5090": spoilt}
    pd.testing.assert_frame_equal(rows, pd.DataFrame(table._rows("qwen3_8_27b_rtx5090", others)))
    other = pd.DataFrame(table._rows("nemotron_30b_rtx5090", others))
    same = pd.DataFrame(table._rows("nemotron_30b_rtx5090", pairs))
    assert not np.allclose(other["error_pct"], same["error_pct"])


def test_table_shows_every_pair_and_errors_of_tens_of_percent(pairs):
    rows = table.build(None)
    assert list(rows.columns) == table.COLUMNS
    assert rows[["model", "hardware"]].drop_duplicates().shape[0] == len(pairs) == 8
    e2e = rows[rows["metric"] == "e2e_mean_s"]
    assert len(e2e) == 10  # two pairs have descendants
    assert (e2e["worst_pct"] >= e2e["error_pct"]).all()
    assert (e2e["error_pct"] >= e2e["bias_pct"].abs() - 1e-9).all()
    assert e2e["error_pct"].between(5, 200).all()
    assert (e2e["error_pct"] > e2e["calibrated_pct"]).all()


def test_a_pairs_own_factors_give_its_own_fit(pairs):
    for config in pairs.values():
        again = times_peak(config, over_peak([config]))
        assert again == pytest.approx(CostModel(**vars(config.cost_model.coefficients)), rel=1e-3)
