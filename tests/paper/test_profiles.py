"""Tables 5 and 6 and Figure 5 with profiles beside the published numbers; made-up ones here."""

import shutil

import pytest
from matplotlib import pyplot as plt

from ppas.paper import outputs
from ppas.paper.figures import fig05_kernel_times, style
from ppas.paper.study import Study
from ppas.paper.tables import table05_prefill, table06_gate_up
from ppas.profiling.rows import Row, profile_path, write_rows

TIMES = {"MBT 2k": (800.0, 8.0, 7.5), "MBT 16k": (600.0, 6.0, 6.5)}  # prefill, attention, gate-up
FILES = {"RTX5090": "rtx5090", "H100-SXM": "h100_sxm"}


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture
def profiled(results, conf, study, tmp_path):
    """A study with profiles of some hardware, as ``ppas profile`` writes them."""

    def make(*names: str, prompt: int = 16384, tool: str = "nsys") -> Study:
        shutil.copytree(results, tmp_path / "results")
        for hardware in names:
            for scheduler, (prefill, attention, gate_up) in TIMES.items():
                times = {"flash_attention_ms": attention, "gate_up_ms": gate_up}
                counters = {"sm_pct": 45.0, "l2_hit_pct": 90.0, "dram_pct": 12.0}
                rows = [Row("prefill_ms", prefill, None, tool if "16" in scheduler else "nsys")]
                rows += [Row(name, v, None, "nsys") for name, v in (times | counters).items()]
                setting = {"model": "Qwen2.5-3B", "hardware": hardware, "scheduler": scheduler}
                setting |= {"prompt_tokens": prompt, "device": hardware, "vllm": "0.33.0"}
                path = profile_path(tmp_path / "results", FILES[hardware], f"mine_{scheduler}")
                write_rows(rows, setting, path)
        return Study(tmp_path / "results", study.published_dir, conf)

    return make


def measured(table):
    rows = table[table["source"] == "measured"].set_index(["hardware", "scheduler", "metric"])
    return rows["value"].to_dict()


def test_table_5_has_the_profile_beside_both_others(profiled, tmp_path):
    table = table05_prefill.build(profiled("RTX5090"))
    times = table[(table["model"] == "Qwen2.5-3B") & (table["metric"] == "prefill_ms")]
    assert times["source"].tolist() == ["measured", "simulated"] * 2
    assert set(times["published"]) == {755.8, 668.6}
    assert measured(table) == {
        ("RTX5090", "MBT 2k", "prefill_ms"): 800,
        ("RTX5090", "MBT 16k", "prefill_ms"): 600,
        ("RTX5090", "MBT 16k vs MBT 2k", "reduction_pct"): pytest.approx(25),
    }


def test_two_tools_make_no_reduction(profiled):
    table = table05_prefill.build(profiled("RTX5090", tool="clock"))
    assert {metric for _, _, metric in measured(table)} == {"prefill_ms"}


def test_table_6_names_the_hardware(profiled, tmp_path):
    study = profiled("RTX5090", "H100-SXM")
    table = table06_gate_up.build(study)
    assert len(measured(table)) == 2 * 2 * 3
    ours = table[table["hardware"] == "H100-SXM"]
    assert ours["published"].isna().all()
    (text,) = [p.read_text() for p in outputs.build_table("table06_gate_up", study, tmp_path)[1:2]]
    assert "SM throughput [%] measured" in text
    assert "H100-SXM" in text


def test_figure_5_shows_bars_of_each_gpu(profiled):
    study = profiled("RTX5090", "H100-SXM")
    with style.theme():
        figure = fig05_kernel_times.plot(study)
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["published, RTX5090", "measured, H100-SXM", "measured, RTX5090"]
    attention, gate_up = ([bar.get_height() for bar in axes.patches] for axes in figure.axes)
    assert attention == [7.21, 5.83, 8, 6, 8, 6]
    assert gate_up == [7.16, 6.66, 7.5, 6.5, 7.5, 6.5]
    hatches = [bar.get_hatch() for bar in figure.axes[0].patches]
    assert len(set(hatches)) == 3


@pytest.mark.parametrize("name", ["table05_prefill", "table06_gate_up"])
def test_profiles_of_another_prompt_change_nothing(profiled, study, tmp_path, name):
    with_profile = outputs.build_table(name, profiled("RTX5090", prompt=4096), tmp_path / "a")
    without = outputs.build_table(name, study, tmp_path / "b")
    assert [p.read_bytes() for p in with_profile] == [p.read_bytes() for p in without]


def test_profiles_of_another_prompt_are_not_drawn(profiled):
    with style.theme():
        figure = fig05_kernel_times.plot(profiled("RTX5090", prompt=4096))
    assert "published" in figure.get_suptitle()
    assert all(len(axes.patches) == len(TIMES) for axes in figure.axes)
