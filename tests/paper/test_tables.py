"""Tables: exact columns, the paper's numbers beside ours, the same bytes every time."""

import shutil

import pandas as pd
import pytest

from ppas.paper import outputs
from ppas.paper.study import Study
from ppas.paper.tables import (
    calibration,
    comparisons,
    oracle_regret,
    render,
    table01_primary_improvement,
    table05_prefill,
    table08_heterogeneous,
    table09_primary,
    table12_h100,
)
from ppas.paper.tidy import COLUMNS, KEYS, SD

CALIBRATION = "calibration"
PAPER_TABLES = sorted(name for name in outputs.tables() if name.startswith("table"))
QWEN, NEMOTRON = "Qwen3.8-27B-NVFP4", "Nemotron-3.5-Lightning-30B-A3B-NVFP4"
SOURCES = {5: {"simulated", "published"}, 6: {"published"}, 7: {"configured"}, 16: {"configured"}}


def read(path) -> pd.DataFrame:
    return pd.read_csv(path, dtype={"burst": str})


@pytest.mark.parametrize("name", PAPER_TABLES)
def test_tidy_csv(study, tmp_path, name):
    paths = outputs.build_table(name, study, tmp_path)
    assert [path.name for path in paths] == [f"{name}.{kind}" for kind in ("csv", "md", "tex")]
    table = read(paths[0])
    expected = "table,model,hardware,prompt_tokens,output_tokens,burst,scheduler,metric,"
    assert ",".join(table.columns) == expected + "published,value,std,source"
    number = int(name[5:7])
    printed = outputs.printed(number, study)
    expected = len(printed) + printed["std"].notna().sum()  # deviations are rows of their own
    assert table["published"].notna().sum() == expected
    assert set(table["source"]) == SOURCES.get(number, {"simulated"})
    assert table.loc[table["source"] != "published", "value"].notna().all()
    assert not table.duplicated([*KEYS, "source"]).any()
    assert set(table["source"]) <= set(paths[1].read_text().replace(":", " ").split())
    assert "published" in paths[2].read_text()


def test_results_equal_to_the_papers_give_the_papers_numbers(study):
    table = table09_primary.build(study)
    assert (table["published"] - table["value"]).abs().max() < 1e-9
    improvements = table01_primary_improvement.build(study)
    assert (improvements["published"] - improvements["value"]).abs().max() < 0.12


@pytest.mark.parametrize("name", [n for n in PAPER_TABLES if n[5:7] not in ("05", "06", "08")])
def test_every_number_is_where_the_papers_is(study, name):
    table = outputs.table_rows(int(name[5:7]), study).dropna(subset=["published"])
    means = table[~table["metric"].str.endswith(SD)]
    rounding = means["metric"].map(lambda metric: 0.16 if "pct" in metric else 1e-6)
    assert ((means["published"] - means["value"]).abs() <= rounding).all()


def test_mixed_requests_give_table_8_and_the_papers_counts(study):
    table = table08_heterogeneous.build(study)
    improvements = table[table["metric"] == "improvement_pct:e2e_mean"]
    other = improvements[improvements["scheduler"] != "P-PAS+ vs P-PAS"]
    assert len(improvements) == 14
    assert (other["published"] - other["value"]).abs().max() < 0.06
    counts = table[table["metric"] == "matched_requests"].set_index(["model", "burst"])["value"]
    assert counts.to_dict() == {
        (QWEN, "6 conditions"): 525,
        (QWEN, "6 conditions, seeds 0-9"): 488,
        (NEMOTRON, "6 conditions"): 1045,
    }


def test_deviations_stand_beside_their_means(study, tmp_path):
    text = outputs.build_table("table14_qwen3_8_27b", study, tmp_path)[1].read_text()
    assert "4.559 ± 0.000 | 4.559 ± 0.703" in " ".join(text.split())
    assert SD not in text


def test_prefill_times_are_the_cost_models(study):
    table = table05_prefill.build(study).set_index(["model", "scheduler"])["value"]
    cost = study.config("rtx5090_primary")["cost_model"]["coefficients"]
    whole = table05_prefill.PROMPT
    expected = cost["t_mixed"] + cost["per_token"] * whole + cost["attention"] * whole * whole / 2
    assert table["Qwen2.5-3B", "MBT 16k"] == pytest.approx(expected * 1000)
    assert table["Qwen2.5-3B", "MBT 2k"] > table["Qwen2.5-3B", "MBT 16k"]
    assert pd.isna(table["Qwen2.5-7B", "MBT 2k"])


def test_comparisons_are_paired_and_cautious(study):
    table = comparisons.build(study)
    keys = ["model", "hardware", "prompt_tokens", "output_tokens", "phases", "scheduler", "than"]
    assert not table.duplicated(keys).any()
    assert (table["low"] <= table["value"]).all()
    assert (table["value"] <= table["high"]).all()
    small = table["value"].abs() <= 2
    assert table.loc[small, "verdict"].eq("inconclusive").all()
    # Made-up results equal the paper's, so every printed ordering comes out the same way.
    clear = comparisons.orderings(table)
    assert len(clear) > 90
    assert clear["same"].all()
    mixed = table[table["phases"].str.startswith("20:")]
    assert set(mixed["scheduler"]) == {"P-PAS+"}
    assert (mixed["n"] == 11).all()


def test_oracle_regret(study):
    table = oracle_regret.build(study)
    assert oracle_regret.endpoints(study) == ["MBT 1280", "MBT 16384"]
    worst = table.loc[table["regret_pct"].idxmax()]
    assert (worst["output_tokens"], worst["burst"], worst["oracle"]) == (256, "0.8", "MBT 8192")
    assert table["regret_pct"].gt(0).sum() == 1


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


def test_a_row_of_ours_alone_stands_within_its_burst_rate(study):
    text = render.to_markdown(table12_h100.build(study), "T", render.Layout())
    rows = [line.split("|")[1:3] for line in text.splitlines() if line.startswith(("| 1.0", "| 2"))]
    names = [(burst.strip(), name.strip()) for burst, name in rows]
    assert names == [(b, n) for b in ("1.0", "2.0") for n in ("MBT 2k", "MBT 16k", "P-PAS")]


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
    # Table 11 repeats 30 cells of Table 9.
    assert len(cells) == 180 + 6 + (90 - 30) + 20 + 60 + 45 + 48
    fitted = cells[cells["group"] == calibration.FITTED]
    assert not fitted["scheduler"].str.startswith("P-PAS").any()
    assert 10 not in set(fitted["table"])
    assert cells["error_pct"].abs().max() < 0.01
    pairs = cells[["model", "hardware"]].drop_duplicates()
    assert len(pairs) == len(calibration.INPUTS)
    assert "held out: P-PAS" in md.read_text()


def test_calibration_summary(study):
    table = calibration.build(study)
    summary = table[table["row"] != "cell"]
    held_out = (
        summary[(summary["group"] == "held out: P-PAS") & (summary["metric"] == "e2e_mean_s")]
        .set_index(["model", "hardware", "row"])["n"]
        .sort_index()
    )
    assert held_out["Qwen2.5-3B", "RTX5090"].to_dict() == {"mean": 7, "worst": 7}
    assert held_out["all pairs of Tables 9 to 13", ""].to_dict() == {"mean": 15, "worst": 15}
    assert held_out["all pairs of Tables 14 and 15", ""].to_dict() == {"mean": 9, "worst": 9}
