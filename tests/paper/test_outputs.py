"""The catalogue: light, and grown by adding a file."""

import subprocess
import sys

from ppas.paper import outputs


def test_names_and_experiments(study):
    assert outputs.figures() == {
        "fig01b_mbt_crossover": ("rtx5090_primary",),
        "fig02_arrival_workload": (),
        "fig03_scheduler_timeline": ("rtx5090_primary_timeline",),
        "fig04_latency_vs_burst": ("rtx5090_primary",),
    }
    assert outputs.tables()["table10_high_load"] == ("rtx5090_primary_high_load",)
    assert outputs.table_formats()["table09_primary"] == ("csv", "md", "tex")
    assert outputs.table_formats()["calibration"] == ("csv", "md")
    assert outputs.table_inputs()["calibration"] == ("conf/cost_model/qwen2_5_3b_rtx5090.yaml",)
    assert outputs.claims_experiments(study.published_dir / "claims.yaml") == (
        "rtx5090_primary",
        "rtx5090_primary_high_load",
    )


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
