"""Figures: same bytes every time, sources in the legends, no values in the code."""

import ast
from importlib import import_module

import pytest
from matplotlib import pyplot as plt

from ppas.paper import outputs
from ppas.paper.figures import (
    fig06_decode_interference,
    fig08_mbt_landscape,
    style,
)
from ppas.paper.study import Study

NAMES = sorted(outputs.figures())
WITHOUT_AXES = ("fig01a_target_setting", "fig01c_two_budgets", "fig07_request_wall")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def draw(name, study):
    with style.theme():
        return import_module(f"ppas.paper.figures.{name}").plot(study)


def labels(figure) -> set[str]:
    legends = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    return {text.get_text() for legend in legends for text in legend.get_texts()}


@pytest.mark.parametrize("name", NAMES)
def test_two_builds_are_byte_identical(results, study, conf, tmp_path, name):
    first = outputs.build_figure(name, study, tmp_path / "a")
    again = outputs.build_figure(name, Study(results, study.published_dir, conf), tmp_path / "b")
    assert [path.name for path in first] == [f"{name}.pdf", f"{name}.png"]
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in again]
    assert b"CreationDate" not in first[0].read_bytes()


@pytest.mark.parametrize("name", ["fig01b_mbt_crossover", "fig04_latency_vs_burst"])
def test_sources_are_in_the_legend_and_published_marks_are_hollow(study, name):
    figure = draw(name, study)
    assert {"simulated", "published"} <= labels(figure)
    lines = [line for line in figure.axes[0].get_lines() if line.get_marker() != "."]  # seeds
    hollow = [line for line in lines if line.get_markerfacecolor() == "none"]
    assert len(hollow) == len(lines) / 2
    assert all(line.get_linestyle() == "None" for line in hollow)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in WITHOUT_AXES])
def test_every_axis_has_units(study, name):
    texts = [text for a in draw(name, study).axes for text in (a.get_xlabel(), a.get_ylabel())]
    assert any("[" in text for text in texts)


def test_schematics_take_their_numbers_from_the_configurations(study):
    def words(name):
        return " ".join(text.get_text() for text in draw(name, study).axes[0].texts)

    assert "8k to 128k" in words("fig01a_target_setting")
    assert "16,384" in words("fig01c_two_budgets")
    assert "2,048" in words("fig01c_two_budgets")


def test_fig05_says_that_its_numbers_are_published(study):
    figure = draw("fig05_kernel_times", study)
    assert "published" in figure.get_suptitle()
    heights = {bar.get_height() for axes in figure.axes for bar in axes.patches}
    assert heights == set(study.published("fig05")["value"])


def test_fig06_small_chunks_let_decodes_progress(study):
    config = study.config("rtx5090_primary")
    prompt = (2048 - fig06_decode_interference.DECODES) * 8
    logs = {
        s: fig06_decode_interference.step_list(config, s, prompt) for s in ("mbt_16k", "mbt_2k")
    }
    during = {slug: log[log["prefill_tokens"] > 0] for slug, log in logs.items()}
    assert {slug: len(log) for slug, log in during.items()} == {"mbt_16k": 1, "mbt_2k": 8}
    for log in during.values():
        assert log["prefill_tokens"].sum() == prompt
        assert (log["decode_tokens"] == fig06_decode_interference.DECODES).all()


def test_fig07_has_one_square_per_matched_request(study):
    walls = [axes.collections[0].get_array() for axes in draw("fig07_request_wall", study).axes]
    assert [wall.count() for wall in walls] == [525, 1045]
    assert all(set(wall.compressed()) == {0, 1} for wall in walls)


def test_fig08_is_relative_to_the_best_of_each_column(study):
    cells = study.cells("rtx5090_landscape_nemotron_30b")
    chosen = cells[(cells["metric"] == "e2e_mean_s") & (cells["burst"] == 0.8)]
    grid = fig08_mbt_landscape.excess_pct(chosen)
    assert (grid.min() == 0).all()
    assert grid.index.tolist() == [16384, 8192, 1280]
    assert grid.loc[1280, 256] == pytest.approx((1 / 0.93 - 1) * 100)


def test_fig04_has_all_schedulers_and_an_inset(study):
    figure = draw("fig04_latency_vs_burst", study)
    names = {"MBT 1k", "MBT 2k", "MBT 4k", "MBT 8k", "MBT 16k", "P-PAS"}
    assert names <= labels(figure)
    assert len(figure.axes[0].child_axes) == 1


def test_an_unknown_scheduler_gets_a_look_of_its_own():
    looks = style.scheduler_look(["MBT 1k", "P-PAS", "Mine", "Yours"])
    assert len({look["color"] for look in looks.values()}) == 4


CODE = sorted(p for p in (outputs.HERE / "figures").glob("*.py") if p.name != "style.py")
ALLOWED = {0, 1, 2}  # of which positions and halves are made


def documented_constants(text: str, tree: ast.Module) -> set[ast.AST]:
    """Module-level UPPERCASE assignments with a comment on their line or on the line above."""
    lines = text.splitlines()

    def is_documented(node: ast.Assign) -> bool:
        above = lines[node.lineno - 2] if node.lineno > 1 else ""
        return above.startswith("#") or "  # " in lines[node.end_lineno - 1]

    return {
        node
        for node in tree.body
        if isinstance(node, ast.Assign)
        and all(name.id.isupper() for target in node.targets for name in ast.walk(target)
                if isinstance(name, ast.Name))
        and is_documented(node)
    }  # fmt: skip


def numbers(text: str) -> list[float]:
    """Number literals that stand neither in a documented constant nor among the allowed ones."""
    tree = ast.parse(text)
    excused = {n for node in documented_constants(text, tree) for n in ast.walk(node)}
    found = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node not in excused
        and isinstance(node.value, int | float) and not isinstance(node.value, bool)
    ]  # fmt: skip
    return [value for value in found if value not in ALLOWED]


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.stem)
def test_figure_code_holds_no_numbers(path):
    """Numbers live in data, results, style.py, or a documented module constant."""
    assert not numbers(path.read_text(encoding="utf-8"))


def test_a_number_in_plotting_code_is_found():
    assert numbers("def plot(study):\n    return study * 3\n") == [3]
    assert numbers("LIMIT = 7\n") == [7]
    assert not numbers("LIMIT = 7  # seconds\n")
    assert numbers("limit = 7  # seconds\n") == [7]
