"""Tables: exact columns, the paper's numbers beside ours, the same bytes every time."""

import shutil

import pandas as pd
import pytest

from ppas.paper import outputs
from ppas.paper.study import Study
from ppas.paper.tables import calibration, render, table01_primary_improvement, table09_primary
from ppas.paper.tidy import COLUMNS

CALIBRATION = "calibration"
PAPER_TABLES = sorted(set(outputs.tables()) - {CALIBRATION})


def read(path) -> pd.DataFrame:
    return pd.read_csv(path, dtype={"burst": str})


@pytest.mark.parametrize("name", PAPER_TABLES)
def test_tidy_csv(study, tmp_path, name):
    paths = outputs.build_table(name, study, tmp_path)
    assert [path.name for path in paths] == [f"{name}.{kind}" for kind in ("csv", "md", "tex")]
    table = read(paths[0])
    expected = "table,model,hardware,prompt_tokens,output_tokens,burst,scheduler,metric,"
    assert ",".join(table.columns) == expected + "published,value,std,source"
    assert len(table) == len(study.published(name[5:7]))
    assert (table["source"] == "simulated").all()
    assert not table[["published", "value", "prompt_tokens"]].isna().any(axis=None)
    assert "simulated" in paths[1].read_text()
    assert "published" in paths[2].read_text()


def test_results_equal_to_the_papers_give_the_papers_numbers(study):
    table = table09_primary.build(study)
    assert (table["published"] - table["value"]).abs().max() < 1e-9
    improvements = table01_primary_improvement.build(study)
    assert (improvements["published"] - improvements["value"]).abs().max() < 0.12


def test_rows_follow_the_paper(study):
    table = table09_primary.build(study)
    assert table["burst"].drop_duplicates().tolist() == ["0.4", "0.6", "0.8", "1.0", "1.2", "1.4"]
    published = study.published(9)
    assert table["scheduler"].tolist() == published["scheduler"].tolist()
    assert table["metric"].tolist() == published["metric"].tolist()


@pytest.mark.parametrize("name", sorted(outputs.tables()))
def test_two_builds_are_byte_identical(results, study, conf, tmp_path, name):
    first = outputs.build_table(name, study, tmp_path / "a")
    again = outputs.build_table(name, Study(results, study.published_dir, conf), tmp_path / "b")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in again]


def test_lowest_is_bold_as_in_the_paper(study):
    markdown = render.to_markdown(table09_primary.build(study), "T", render.Layout())
    row = next(
        line for line in markdown.splitlines() if line.startswith("| 0.4 ") and "16k" in line
    )
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2:4] == ["2.761", "2.761"]  # P-PAS is lower
    assert cells[4:6] == ["**4.502**", "**4.502**"]
    latex = render.to_latex(table09_primary.build(study), "T", render.Layout())
    assert r"\textbf{4.502}" in latex


def test_a_new_scheduler_and_rate_show_up_without_a_published_number(
    study, conf, results, tmp_path
):
    shutil.copytree(results, tmp_path / "results")
    folder = tmp_path / "results/simulated/rtx5090_primary"
    records = pd.read_parquet(folder / "mbt_1k.parquet")
    records["scheduler"] = "Mine"
    records["run_id"] = "mine-" + records["run_id"]
    records.to_parquet(folder / "mine.parquet")
    table = table09_primary.build(Study(tmp_path / "results", study.published_dir, conf))
    mine = table[table["scheduler"] == "Mine"]
    assert len(mine) == 30
    assert mine["published"].isna().all()
    assert table.columns.tolist() == COLUMNS
    assert "Mine" in render.to_markdown(table, "T", render.Layout())


def test_calibration_tells_fitted_from_held_out(study, tmp_path):
    csv, md = outputs.build_table(CALIBRATION, study, tmp_path)
    table = read(csv)
    cells = table[table["row"] == "cell"]
    assert len(cells) == 180 + 6
    fitted = cells[cells["group"] == calibration.FITTED]
    assert len(fitted) == 150
    assert "P-PAS" not in set(fitted["scheduler"])
    assert set(fitted["table"]) == {9}
    assert cells["error_pct"].abs().max() < 0.01
    assert "held out: P-PAS" in md.read_text()


def test_calibration_summary(study):
    table = calibration.build(study)
    summary = table[table["row"] != "cell"]
    held_out = summary[
        (summary["group"] == "held out: P-PAS") & (summary["metric"] == "e2e_mean_s")
    ]
    assert held_out["row"].tolist() == ["mean", "worst"]
    assert held_out["n"].tolist() == [7, 7]
