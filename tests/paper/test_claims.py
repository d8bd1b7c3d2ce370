"""Verdicts: what holds, what a wrong number does to them, and how they are shown."""

import shutil

import pandas as pd
import pytest
import yaml

from ppas.paper import claims, outputs, rules
from ppas.paper.rules import FAILS, HOLDS, INCONCLUSIVE
from ppas.paper.study import Study

IDS = ["C1", *(f"C{n}" for n in range(3, 13)), "C26", "C27", "C41", "C44"]


@pytest.fixture
def copy(study, results, conf, tmp_path) -> Study:
    shutil.copytree(study.published_dir, tmp_path / "published")
    shutil.copytree(results, tmp_path / "results")
    return Study(tmp_path / "results", tmp_path / "published", conf)


def plant(study: Study, table: int, value: float, **where: str) -> None:
    """Write one wrong cell into the published table."""
    path = study.published_dir / f"table{table:02d}.csv"
    rows = pd.read_csv(path, dtype=str)
    chosen = (rows[list(where)] == pd.Series(where)).all(axis=1)
    assert chosen.sum() == 1
    rows.loc[chosen, "value"] = str(value)
    rows.to_csv(path, index=False)


def edit(study: Study, slug: str, change) -> None:
    path = study.results_dir / "simulated/rtx5090_primary" / f"{slug}.parquet"
    change(pd.read_parquet(path)).to_parquet(path)


def verdicts(study: Study) -> dict[str, str]:
    made = claims.evaluate(study)
    return dict(zip(made["id"], made["verdict"], strict=True))


def test_the_papers_own_numbers_bear_its_claims(study):
    made = verdicts(study)
    assert sorted(made) == sorted(IDS)
    # The makespans of P-PAS and MBT 2k differ by 1%: not told apart.
    assert {name for name, verdict in made.items() if verdict != HOLDS} == {"C12"}
    assert made["C12"] == INCONCLUSIVE


CELL = {"metric": "e2e_mean_s"}


@pytest.mark.parametrize(
    ("table", "value", "where", "turned"),
    [
        (1, 18.5, {"scheduler": "P-PAS vs MBT2k", "metric": "improvement_pct:e2e_mean"}, "C8"),
        (1, 3.9, {"scheduler": "P-PAS vs MBT16k", "metric": "improvement_pct:makespan"}, "C12"),
        (1, 8.0, {"scheduler": "P-PAS vs MBT2k", "metric": "improvement_pct:e2e_p95"}, "C9"),
        (1, 18.5, {"scheduler": "P-PAS vs MBT16k", "metric": "improvement_pct:ttft"}, "C10"),
        (1, 63.6, {"scheduler": "P-PAS vs MBT16k", "metric": "improvement_pct:tpot"}, "C11"),
        (9, 3.761, {"burst": "0.4", "scheduler": "MBT 16k", **CELL}, "C3"),
        (9, 3.761, {"burst": "0.4", "scheduler": "MBT 16k", **CELL}, "C4"),
        (9, 5.705, {"burst": "0.8", "scheduler": "P-PAS", **CELL}, "C5"),
        (9, 15.895, {"burst": "1.4", "scheduler": "P-PAS", **CELL}, "C6"),
        (9, 4.214, {"burst": "0.8", "scheduler": "MBT 2k", **CELL}, "C1"),
        (9, 4.505, {"burst": "0.6", "scheduler": "MBT 8k", **CELL}, "C26"),
        (9, 2.3, {"burst": "0.6", "scheduler": "MBT 4k", "metric": "ttft_mean_s"}, "C26"),
        (9, 49.369, {"burst": "1.0", "scheduler": "MBT 8k", "metric": "makespan_s"}, "C26"),
        (9, 16.796, {"burst": "1.0", "scheduler": "P-PAS", "metric": "e2e_p95_s"}, "C9"),
        (10, 18.324, {"scheduler": "P-PAS", **CELL}, "C27"),
    ],
)
def test_one_wrong_published_cell_turns_the_matching_verdict(copy, table, value, where, turned):
    path = copy.published_dir / "claims.yaml"
    only = [claim for claim in claims.load(path) if claim["id"] == turned]
    path.write_text(yaml.safe_dump(only))
    plant(copy, table, value, **where)
    assert verdicts(copy) == {turned: FAILS}  # unplanted, none fails: see the test above


def test_different_arrivals_fail_c41(copy):
    def shift(records):
        records.loc[records.index[0], "arrival_s"] += 1e-9
        return records

    edit(copy, "p-pas", shift)
    made = claims.evaluate(copy).set_index("id")
    assert made.loc["C41", "verdict"] == FAILS
    assert made.loc["C41", "got"].startswith("11 of 12 traces")


def test_two_percent_or_less_is_inconclusive(copy):
    def slower(records):
        factor = 4.900 / 4.705 * 0.99  # P-PAS 1% under MBT 16k at 0.8
        records.loc[records["burst_rate"] == 0.8, "e2e_s"] *= factor
        return records

    edit(copy, "p-pas", slower)
    assert verdicts(copy)["C5"] == INCONCLUSIVE


def test_results_that_contradict_a_claim_fail_it(copy):
    edit(copy, "p-pas", lambda records: records.assign(e2e_s=records["e2e_s"] * 1.2))
    made = verdicts(copy)
    assert [made[name] for name in ("C4", "C5", "C6", "C8", "C26")] == [FAILS] * 5
    assert made["C3"] == made["C7"] == HOLDS


def test_a_missing_scheduler_is_inconclusive_and_named(copy):
    (copy.results_dir / "simulated/rtx5090_primary/mbt_16k.parquet").unlink()
    made = claims.evaluate(copy).set_index("id")
    assert made.loc[["C1", "C3", "C5", "C8", "C26", "C44"], "verdict"].eq(INCONCLUSIVE).all()
    assert "MBT 16k" in made.loc["C3", "got"]
    assert made.loc["C6", "verdict"] == HOLDS


def test_each_source_gets_its_own_verdicts(copy):
    folder = copy.results_dir / "measured" / "rtx5090_primary"
    shutil.copytree(copy.results_dir / "simulated" / "rtx5090_primary", folder)
    for path in folder.glob("*.parquet"):
        pd.read_parquet(path).assign(source="measured").to_parquet(path)
    made = claims.evaluate(copy)
    assert made[made["id"] == "C3"]["source"].tolist() == ["measured", "simulated"]


def test_failures_come_first(copy):
    plant(copy, 10, 18.324, scheduler="P-PAS", metric="e2e_mean_s")
    made = claims.evaluate(copy)
    assert made["verdict"].map(claims.ORDER.index).is_monotonic_increasing
    assert list(made.columns) == claims.COLUMNS
    assert made["id"].iloc[0] == "C27"


def test_files_are_byte_identical_and_readable(study, results, conf, tmp_path):
    first = outputs.build_claims(study, tmp_path / "a")
    again = outputs.build_claims(Study(results, study.published_dir, conf), tmp_path / "b")
    assert [path.name for path in first] == ["claims.csv", "claims.md"]
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in again]
    assert first[1].read_text().startswith("# Claims: 0 fails, 1 inconclusive, 14 holds")


def test_no_single_best_needs_every_candidate_beaten():
    cells = pd.DataFrame(
        {
            "burst": ["1.0", "1.0", "2.0", "2.0"],
            "scheduler": ["a", "b"] * 2,
            "metric": "m",
            "value": [1.0, 2.0, 3.0, 4.0],
        }
    )
    side = rules.Side("simulated", cells)
    rule = {"metric": "m", "schedulers": ["a"], "among": ["a", "b"]}
    found = rules.RULES["no_single_best"](rule, {"inconclusive_pct": 2}, side, side)
    assert found.verdict == FAILS
    assert found.got == "a at 1.0, 2.0"


def test_a_malformed_claim_is_named(tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text("- {id: C99, quote: q}\n")
    with pytest.raises(ValueError, match=r"claims\.yaml: C99: fields must be"):
        claims.load(path)


def test_every_rule_has_a_description():
    assert set(rules.RULES) == set(rules.DESCRIPTIONS)
