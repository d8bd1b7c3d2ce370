"""The catalogue: light, and grown by adding a file."""

import subprocess
import sys

from ppas.config import experiments, fitted_pairs
from ppas.paper import outputs
from ppas.paper.report import paper_name
from ppas.planning import Output, paper_outputs
from ppas.sources import Experiment

FIGURES = ["1(a)", "1(b)", "1(c)", *map(str, range(2, 9))]
TABLES = [str(number) for number in range(1, 17)]


def all_outputs(measured: tuple[str, ...] = ()) -> list[Output]:
    """Outputs of all experiments; some of them measured on a GPU."""
    chosen = {
        name: Experiment(name, "measured", "", (), (f"results/measured/h200/{name}/ppas.parquet",))
        if name in measured
        else Experiment(name, "simulated", "", (), (f"results/simulated/{name}/ppas.parquet",))
        for name in experiments()
    }
    return paper_outputs(chosen)


def test_an_output_is_told_what_was_measured():
    commands = {o.name: o.command for o in all_outputs(("h100_qwen2_5_3b",))}
    told = {name for name, command in commands.items() if "--measured" in command}
    assert commands["table12_h100"] == "table table12_h100 --measured h200/h100_qwen2_5_3b"
    assert told >= {"table12_h100", "claims"} and "table09_primary" not in told


def test_an_output_without_its_experiments_is_left_out():
    only = Experiment("h100_qwen2_5_3b", "simulated", "", (), ("results/simulated/x/y.parquet",))
    names = {output.name for output in paper_outputs({only.name: only})}
    assert "table12_h100" in names
    assert not names & {"table09_primary", "claims", "report"}


def test_every_figure_and_table_of_the_paper_has_exactly_one_module_and_rule():
    names = [*outputs.figures(), *outputs.tables()]
    ids = sorted(filter(None, map(paper_name, names)))
    expected = [f"Figure {n}" for n in FIGURES] + [f"Table {n}" for n in TABLES]
    assert ids == sorted(expected)
    rules = [(output.verb, output.name) for output in all_outputs()]
    assert sorted(name for _, name in rules) == sorted([*names, "claims", "report"])
    files = [file for output in all_outputs() for file in output.files]
    assert len(set(files)) == len(files)


def test_the_report_is_made_of_every_other_output():
    *parts, report = all_outputs()
    assert report.files == ("report.html",)
    shown = {file for part in parts for file in part.files if file.endswith((".png", ".csv"))}
    assert set(report.inputs) == shown


def test_names_and_experiments(study):
    assert outputs.figures()["fig02_arrival_workload"] == ()
    assert outputs.figures()["fig03_scheduler_timeline"] == ("rtx5090_primary_timeline",)
    assert outputs.tables()["table10_high_load"] == ("rtx5090_primary_high_load",)
    assert outputs.table_formats()["table09_primary"] == ("csv", "md", "tex")
    assert outputs.table_formats()["calibration"] == ("csv", "md")
    known = tuple(f"conf/cost_model/{pair}.yaml" for pair in fitted_pairs())
    assert outputs.table_inputs()["calibration"] == known
    assert outputs.table_inputs()["zero_shot"] == known
    assert outputs.table_module(7) == "table07_configurations"


def test_experiments_of_outputs_and_claims_exist(study):
    needed = {name for o in all_outputs() for name in o.experiments}
    assert needed <= set(experiments())
    asked = outputs.claims_experiments(study.published_dir / "claims.yaml")
    assert set(asked) <= set(experiments())


def test_the_catalogue_imports_nothing_heavy():
    code = (
        "import sys; from ppas.paper import outputs as o; o.figures(); o.tables(); "
        "o.table_formats(); sys.exit(bool({'pandas', 'matplotlib', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_new_figure_is_one_new_file(monkeypatch, tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "helper.py").write_text("X = 1\n")
    (tmp_path / "figures" / "fig99_new.py").write_text('EXPERIMENTS = ("mine",)\n')
    monkeypatch.setattr(outputs, "HERE", tmp_path)
    assert outputs.figures() == {"fig99_new": ("mine",)}
