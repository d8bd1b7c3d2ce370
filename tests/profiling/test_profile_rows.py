"""Profiles on disk: tidy, labelled, each number once."""

import pandas as pd
import pytest

from ppas.paper.study import Study
from ppas.profiling.rows import COLUMNS, Row, profile_path, read_rows, write_rows

SETTING = {
    "model": "Qwen2.5-3B",
    "hardware": "H100-SXM",
    "scheduler": "MBT 2k",
    "prompt_tokens": 16384,
    "device": "NVIDIA H100 80GB HBM3",
    "vllm": "0.33.0",
}
ROWS = [Row("prefill_ms", 321.5, None, "nsys"), Row("wall_ms", 330.25, 1.5, "clock")]


@pytest.fixture
def path(tmp_path):
    path = profile_path(tmp_path, "h100_sxm", "qwen2_5_3b_mbt_2k_times")
    write_rows(ROWS, SETTING, path)
    return path


def test_rows_come_back_as_written(tmp_path, path):
    assert path.relative_to(tmp_path).parts[:3] == ("measured", "h100_sxm", "profiles")
    rows = read_rows(tmp_path)
    assert list(rows.columns) == list(COLUMNS)
    assert rows["value"].tolist() == [321.5, 330.25]
    assert rows["tool"].tolist() == ["nsys", "clock"]
    assert rows["prompt_tokens"].tolist() == [16384, 16384]
    assert set(rows["source"]) == {"measured"}
    assert pd.isna(rows["std"][0])


def test_a_study_gives_the_metrics_of_one_prompt_length(tmp_path, path):
    study = Study(tmp_path)
    assert study.profiles(["wall_ms"], 16384)["value"].tolist() == [330.25]
    assert study.profiles(["wall_ms"], 8192).empty


def test_without_profiles_there_are_no_rows(tmp_path):
    rows = read_rows(tmp_path)
    assert rows.empty
    assert list(rows.columns) == list(COLUMNS)
    assert Study(tmp_path).profiles(["sm_pct"], 16384).empty


def test_the_same_number_twice_is_refused(tmp_path, path):
    write_rows(ROWS[:1], SETTING, path.with_name("again.csv"))
    with pytest.raises(ValueError, match=r"two profiles of Qwen2\.5-3B, H100-SXM, 16384, MBT 2k"):
        read_rows(tmp_path)


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", ",".join(COLUMNS) + "\n"])
def test_a_file_that_is_no_profile_is_named(tmp_path, path, text):
    path.write_text(text)
    with pytest.raises(ValueError, match=r"qwen2_5_3b_mbt_2k_times\.csv: not a profile"):
        read_rows(tmp_path)


def test_simulated_numbers_are_not_taken_for_measured(tmp_path, path):
    path.write_text(path.read_text().replace("measured", "simulated"))
    with pytest.raises(ValueError, match="not a profile"):
        read_rows(tmp_path)
