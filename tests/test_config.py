"""Configuration: types are kept, mistakes end in one line, hashes follow content only."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ppas.config import ConfigError, experiments, load
from ppas.planning import make_plan
from ppas.runs import enumerate_runs, experiment_digest

PRIMARY = "experiment=rtx5090_primary"
SETTINGS = {"backend": "simulator", "experiments": "all", "targets": ["figures"]}

BAD_OVERRIDES = {
    "workload.rates=[1.0]": "workload.rates: unknown key; allowed: phases, burst_rates",
    "+model.params=3": "model.params: unknown key; allowed: name, repository",
    "+schedulers.ppas.budget=3": "schedulers.ppas.budget: unknown key; allowed: name",
    "+color=red": "color: unknown key; allowed: seeds",
    "engine.max_num_seqs=many": "engine.max_num_seqs: Value 'many' of type 'str'",
    "engine.max_num_seqs=2.5": "engine.max_num_seqs: Value '2.5' of type 'float'",
    "engine.max_num_seqs=0": "engine.max_num_seqs: 0 is not allowed; a finite number >= 1",
    "engine.max_num_seqs=4096": "schedulers.mbt_1k.max_num_batched_tokens: 1024 is below",
    "engine.watermark=1.5": "engine.watermark: 1.5 is not allowed; a finite number >= 0 and < 1",
    "workload.burst_rates=[-1]": "workload.burst_rates: -1.0 is not allowed; a finite number >= 0",
    "workload.burst_rates=[nan]": "workload.burst_rates: nan is not allowed",
    "workload.burst_rates=[inf]": "workload.burst_rates: inf is not allowed",
    "workload.burst_rates=[]": "workload.burst_rates: []; give at least one, each once",
    "workload.burst_rates=[1.0,1.0]": "workload.burst_rates: [1.0, 1.0]; give at least one",
    "workload.phases=[]": "workload.phases: []; give at least one",
    "workload.phases=['10:0.2,0:burst']": "workload.phases: phase of 0.0 s",
    "workload.phases=['10:-1']": "workload.phases: rate -1.0",
    "workload.mix=random": "workload.mix: 'random' is not one of homogeneous, stratified",
    "workload.prompt_tokens=[32760]": "workload.prompt_tokens: the longest request has 32792",
    "workload.prompt_tokens=[0]": "workload.prompt_tokens: 0 is not allowed",
    "schedulers.ppas.policy.b_cap=20000": "schedulers.ppas.policy.b_cap: 20000 is above b_max",
    "schedulers.ppas.policy.b_cap=0": "schedulers.ppas.policy.b_cap: 0 is not a positive",
    "schedulers.ppas.policy.kind=best": "schedulers.ppas.policy.kind: unknown policy 'best'",
    "schedulers.ppas.name='MBT 2k'": "schedulers: names",
    "seeds=[]": "seeds: []; give at least one",
    "seeds=[1,1]": "seeds: [1, 1]; give at least one, each once",
    "hardware=tpu": "conf/hardware: hardware: no file tpu.yaml; available:",
    "model=gpt": "conf/model: model: no file gpt.yaml; available: nemotron_30b",
    "cost_model.coefficients.per_token=-1": "cost_model.coefficients.per_token: -1.0 is not",
    "hardware.memory_gib=8": "model: Qwen2.5-3B on RTX5090 has room for",
}


@pytest.mark.parametrize("override", BAD_OVERRIDES)
def test_bad_values_end_in_one_line(override):
    with pytest.raises(ConfigError) as caught:
        load([PRIMARY, override])
    message = str(caught.value)
    assert BAD_OVERRIDES[override] in message
    assert "\n" not in message
    assert message.startswith(("command line: ", "conf/"))


def test_mistakes_in_files_name_the_file(tmp_path, monkeypatch):
    for name in ("config.yaml", "experiment/rtx5090_primary.yaml", "workload/bursty.yaml"):
        assert (Path("conf") / name).is_file()
    checkout = copy_conf(tmp_path, monkeypatch)
    bursty = checkout / "conf/workload/bursty.yaml"
    bursty.write_text(bursty.read_text().replace("burst_rates: [0.4", "burst_rates: [-0.4"))
    with pytest.raises(
        ConfigError, match=r"^conf/workload/bursty\.yaml: workload\.burst_rates: -0"
    ):
        load([PRIMARY])


def copy_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of its own whose conf/ a test may change."""
    import shutil

    from ppas import config

    shutil.copytree(config.CONF, tmp_path / "conf")
    monkeypatch.setattr(config, "ROOT", tmp_path)
    monkeypatch.setattr(config, "CONF", tmp_path / "conf")
    return tmp_path


@pytest.mark.parametrize("command", ["run", "simulate"])
def test_command_line_exits_with_2(command):
    result = ppas(command, PRIMARY, "hardware=tpu")
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("ppas: conf/hardware: hardware: no file tpu.yaml")


def ppas(*arguments: str, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "ppas.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize(
    "settings, problem",
    [
        ({"backend": "tpu"}, "backend: 'tpu' is not one of ['auto', 'simulator', 'vllm']"),
        ({"experiments": []}, "experiments: "),
        ({"burst_rates": [1.0]}, "'burst_rates' was unexpected"),
        ({"targets": ["slides"]}, "targets.0: 'slides' is not one of"),
        ({"experiments": ["nothing"]}, "conf/experiment: experiment: no file nothing.yaml"),
    ],
)
def test_bad_workflow_settings_are_named(settings, problem):
    with pytest.raises(ConfigError) as caught:
        make_plan(SETTINGS | settings)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_plan_is_remembered_until_a_file_changes(tmp_path, monkeypatch):
    from ppas import planning

    checkout = copy_conf(tmp_path, monkeypatch)
    monkeypatch.setattr(planning, "CONF", checkout / "conf")
    given = ("experiment=a",)
    simulated = planning.Experiment("a", "simulated", "0" * 16, given, ("a.parquet",))
    session = planning.Session("a", "ppas", "1", given, "h200", "H200", "m_h200", ("r",), (50.0,))
    made = [planning.Candidate("a", simulated, (session,)), planning.Candidate("b", None, ())]
    asked = []

    def answer():
        asked.append(1)
        return made

    path = tmp_path / "state" / "plan.json"
    for question, times in ((["a"], 1), (["a"], 1), (["b"], 2), (["b"], 2)):
        assert planning.remembered(question, answer, path) == made
        assert len(asked) == times
    model = checkout / "conf/model/qwen2_5_3b.yaml"
    model.write_text(model.read_text() + "# A remark.\n")
    assert planning.remembered(["b"], answer, path) == made
    assert len(asked) == 3
    path.write_text("half a fi")
    assert planning.remembered(["b"], answer, path) == made
    assert len(asked) == 4


def test_types_are_declared_not_guessed():
    config = load([PRIMARY, "workload.burst_rates=[1e0,2]", "schedulers.ppas.name='1E5'"])
    assert config.workload.burst_rates == [1.0, 2.0]
    assert config.schedulers["ppas"].name == "1E5"
    assert isinstance(config.schedulers["ppas"].max_num_batched_tokens, int)


def test_every_experiment_is_valid_and_named_like_its_file():
    for name in experiments():
        config = load([f"experiment={name}"])
        assert config.experiment == name
        assert enumerate_runs(config)


def test_grid_is_schedulers_times_rates_times_seeds():
    runs = enumerate_runs(load([PRIMARY]))
    assert len(runs) == 6 * 6 * 5
    assert len({run.run_id for run in runs}) == len(runs)
    assert len(enumerate_runs(load([PRIMARY, "scheduler=ppas", "seed=3", "burst_rate=1.0"]))) == 1


def test_a_burst_rate_adds_only_its_own_runs():
    rates = "workload.burst_rates=[0.4,0.6,0.8,1.0,1.2,1.4,1.6]"
    before = {run.run_id for run in enumerate_runs(load([PRIMARY]))}
    after = {run.run_id for run in enumerate_runs(load([PRIMARY, rates]))}
    assert before < after
    assert len(after - before) == 6 * 5


def test_digest_ignores_order_and_sees_values():
    plain = experiment_digest(load([PRIMARY]))
    assert experiment_digest(load([PRIMARY, "seeds=[4,2,0,1,3]"])) == plain
    assert experiment_digest(load([PRIMARY, "engine.async_scheduling=false"])) != plain
    assert experiment_digest(load([PRIMARY, "schedulers.ppas.policy.n_th=3"])) != plain


def test_phases_without_burst_make_one_run_per_seed():
    phases = 'workload.phases=["10:0.2,10:0.6,10:0.2"]'
    runs = enumerate_runs(load([PRIMARY, "scheduler=ppas", phases]))
    assert [(run.phases, run.burst_rate) for run in runs] == [("10:0.2,10:0.6,10:0.2", 0.6)] * 5


def test_rate_zero_is_legal():
    config = load([PRIMARY, "workload.burst_rates=[0]", 'workload.phases=["10:burst"]'])
    assert {len(run.trace) for run in enumerate_runs(config)} == {0}


def test_settings_are_found_from_any_directory(tmp_path):
    result = ppas("run", PRIMARY, "scheduler=mbt_16k", "seed=0", "burst_rate=0.4", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "MBT 16k" in result.stdout
    assert "simulated" in result.stdout
    assert not os.listdir(tmp_path)
