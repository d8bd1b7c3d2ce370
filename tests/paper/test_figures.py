"""Figures: same bytes every time, sources in the legends, no values in the code."""

import ast
from importlib import import_module

import pytest
from matplotlib import pyplot as plt

from ppas.paper import outputs
from ppas.paper.figures import style
from ppas.paper.study import Study

NAMES = sorted(outputs.figures())


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
    lines = figure.axes[0].get_lines()
    hollow = [line for line in lines if line.get_markerfacecolor() == "none"]
    assert len(hollow) == len(lines) / 2
    assert all(line.get_linestyle() == "None" for line in hollow)


def test_every_axis_has_units(study):
    for name in NAMES:
        figure = draw(name, study)
        assert any("[s]" in a.get_xlabel() or "[req" in a.get_xlabel() for a in figure.axes), name


def test_fig04_has_all_schedulers_and_an_inset(study):
    figure = draw("fig04_latency_vs_burst", study)
    names = {"MBT 1k", "MBT 2k", "MBT 4k", "MBT 8k", "MBT 16k", "P-PAS"}
    assert names <= labels(figure)
    assert len(figure.axes[0].child_axes) == 1


def test_an_unknown_scheduler_gets_a_look_of_its_own():
    looks = style.scheduler_look(["MBT 1k", "P-PAS", "Mine", "Yours"])
    assert len({look["color"] for look in looks.values()}) == 4


@pytest.mark.parametrize("name", NAMES)
def test_figure_code_holds_no_numbers(name):
    """Numbers live in data, results, style.py, or a documented module constant."""
    tree = ast.parse((outputs.HERE / "figures" / f"{name}.py").read_text(encoding="utf-8"))
    code = [node for node in tree.body if not isinstance(node, ast.Assign)]
    constants = [n.value for part in code for n in ast.walk(part) if isinstance(n, ast.Constant)]
    assert not [value for value in constants if isinstance(value, float)]
