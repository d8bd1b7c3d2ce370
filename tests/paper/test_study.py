"""Reading results and published numbers: labelled, complete, or refused."""

import shutil

import pandas as pd
import pytest

from ppas.paper.study import Study

PRIMARY = "rtx5090_primary"


@pytest.fixture
def copy(study, results, conf, tmp_path) -> Study:
    shutil.copytree(results, tmp_path / "results")
    return Study(tmp_path / "results", study.published_dir, conf)


def edit(study: Study, change) -> None:
    path = study.results_dir / "simulated" / PRIMARY / "p-pas.parquet"
    change(pd.read_parquet(path)).to_parquet(path)


def test_cells_are_the_published_ones(study):
    cells = study.cells(PRIMARY)
    published = study.published("09").astype({"burst": float})
    both = cells.merge(published, on=["burst", "scheduler", "metric"], suffixes=("", "_paper"))
    assert len(both) == len(published) == len(cells)
    # E2E is printed with three digits, TPOT with four: TTFT carries the difference.
    assert (both["value"] - both["value_paper"]).abs().max() < 1e-9
    assert (both["n"] == 2).all()


def test_frames_are_read_once(study):
    assert study.cells(PRIMARY) is study.cells(PRIMARY)


def test_missing_results_say_how_to_make_them(study):
    for read in (study.records, study.runs, study.cells, study.steps):
        with pytest.raises(FileNotFoundError, match=r"nowhere.*snakemake --cores 1 .*nowhere"):
            read("nowhere")


def test_a_step_log_is_not_a_record_file(copy):
    shutil.copy(
        copy.results_dir / "simulated/rtx5090_primary_timeline/steps.parquet",
        copy.results_dir / "simulated" / PRIMARY,
    )
    assert "step" not in copy.records(PRIMARY)
    assert copy.steps(PRIMARY)["source"].unique().tolist() == ["simulated"]


def test_a_failed_request_stops_every_reader(copy):
    def fail(records):
        records.loc[records.index[3], "error"] = "connection reset"
        return records

    edit(copy, fail)
    for read in (copy.records, copy.runs, copy.cells):
        with pytest.raises(ValueError, match=r"run .*P-PAS-0 .*, request \d+: connection reset"):
            read(PRIMARY)


def test_a_missing_request_or_seed_stops_every_reader(copy):
    edit(copy, lambda records: records.iloc[1:])
    with pytest.raises(ValueError, match=r"P-PAS at burst rate 0\.4, seed 0 has 20 of 21 requests"):
        copy.cells(PRIMARY)
    edit(copy, lambda records: records[(records["seed"] == 1) | (records["burst_rate"] > 0.5)])
    with pytest.raises(ValueError, match=r"P-PAS at burst rate 0\.4 has 1 of 2 seeds"):
        copy.cells(PRIMARY)


def test_a_measured_experiment_is_read_alone_and_labelled(copy):
    """Never beside simulated runs of the same experiment."""
    target = copy.results_dir / "measured" / "h200" / PRIMARY
    target.mkdir(parents=True)
    for path in (copy.results_dir / "simulated" / PRIMARY).glob("*.parquet"):
        pd.read_parquet(path).assign(source="measured").to_parquet(target / path.name)
    measured = Study(copy.results_dir, copy.published_dir, measured={PRIMARY: f"h200/{PRIMARY}"})
    assert set(measured.cells(PRIMARY)["source"]) == {"measured"}
    assert set(copy.cells(PRIMARY)["source"]) == {"simulated"}
