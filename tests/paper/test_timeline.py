"""The timeline: one drawing for Figure 3 and for a step log of the plugin."""

import pytest
from matplotlib import pyplot as plt

from ppas import cli
from ppas.paper.figures import fig03_scheduler_timeline, style, timeline
from ppas.policies import Decision, Snapshot
from ppas.serving.step_log import StepLog
from ppas.work import NO_WORK

LOW, COUNT = 1, 2


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def write_log(folder, steps):
    """A log as the plugin writes it; a step is (time, prefills, decodes, budget, reason)."""
    log = StepLog(folder / "steps.csv")
    for now, prefills, decodes, budget, reason in steps:
        seen = Snapshot(now, min(prefills, 1), max(prefills - 1, 0), decodes, decodes, 99, 16384)
        log.add(seen, Decision(budget, reason), NO_WORK)
    log.flush()
    return log.path


PAUSE_AFTER_THIRD = [
    (10.0, 1, 0, 16384, LOW),
    (10.5, 2, 1, 2049, COUNT),
    (11.0, 0, 2, 16384, LOW),
    (11.5, 0, 0, 16384, LOW),  # vLLM reports the last finished requests and waits
    (14.0, 1, 0, 16384, LOW),
    (14.5, 0, 1, 16384, LOW),
]


def test_pauses_and_pressure_of_a_simulated_log(study):
    run = fig03_scheduler_timeline.one_run(study.steps("rtx5090_primary_timeline"))
    states = timeline.with_idle(run)
    assert states["time_s"].tolist() == [1.0, 2.0, 2.5, 3.0, 4.0, 6.0, 7.0]
    assert states["prefills"].tolist() == [1, 3, 2, 0, 0, 1, 0]
    assert states["decodes"].tolist() == [0, 1, 2, 3, 0, 0, 0]
    assert states["pressure"].tolist() == [False, True, True, False, False, False, False]
    assert states["budget"].isna().tolist() == [False] * 4 + [True, False, True]


def test_pauses_and_pressure_of_a_plugins_log(tmp_path):
    run = timeline.read_log(write_log(tmp_path, PAUSE_AFTER_THIRD))
    assert run["duration_s"].tolist() == [0.5, 0.5, 0.5, 0.5, 0.0]
    states = timeline.with_idle(run)
    assert states["time_s"].tolist() == [10.0, 10.5, 11.0, 11.5, 14.0, 14.5, 14.5]
    assert states["prefills"].tolist() == [1, 2, 0, 0, 1, 0, 0]
    assert states["pressure"].tolist() == [False, True, False, False, False, False, False]
    assert states["budget"].isna().tolist() == [False] * 3 + [True, False, False, True]


def test_measured_timeline_says_so_and_marks_its_own_budgets(tmp_path):
    path = write_log(tmp_path, PAUSE_AFTER_THIRD)
    with style.theme():
        upper, lower = timeline.measured(path).axes
    assert upper.get_title() == f"{path.name}, measured"
    assert lower.get_yticks().tolist() == [2049, 16384]
    assert lower.get_xlim()[0] == 10.0
    # The log does not tell N_th.
    names = [text.get_text() for text in upper.get_legend().get_texts()]
    assert names == [r"prefills $N_p$", r"decodes $N_d$", "pressure"]


def test_one_step_and_one_budget_are_drawn(tmp_path):
    figure = timeline.measured(write_log(tmp_path, [(0.0, 1, 0, 512, 0)]))
    assert figure.axes[1].get_yticks().tolist() == [512]


def test_command_writes_a_picture_beside_the_log(tmp_path, capsys):
    path = write_log(tmp_path, PAUSE_AFTER_THIRD)
    cli.main(["timeline", str(path)])
    picture = path.with_suffix(".png")
    assert capsys.readouterr().out == f"{picture}\n"
    assert picture.read_bytes().startswith(b"\x89PNG")
    cli.main(["timeline", str(path), "--out", str(tmp_path / "other.pdf")])
    assert (tmp_path / "other.pdf").read_bytes().startswith(b"%PDF")


def refusal(capsys, *arguments):
    with pytest.raises(SystemExit) as error:
        cli.main(["timeline", *map(str, arguments)])
    assert error.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_bad_logs_are_refused_in_one_line(tmp_path, capsys):
    path = write_log(tmp_path, PAUSE_AFTER_THIRD)
    assert path.name in refusal(capsys, tmp_path / "steps.csv")  # the option, not the file
    assert "Format 'xyz' is not supported" in refusal(capsys, path, "--out", tmp_path / "a.xyz")
    assert "no steps with requests" in refusal(capsys, write_log(tmp_path, []))
    other = tmp_path / "other.csv"
    for text, problem in (
        ("a,b\n1,2\n", "no column time_s"),
        ("", "No columns to parse"),
        ("time_s,budget\nsoon,1\n", "could not convert string to float"),
    ):
        other.write_text(text)
        assert problem in refusal(capsys, other)
