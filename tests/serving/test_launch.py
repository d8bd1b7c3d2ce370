"""The command line of a server: the experiment's options, and the plugin only where needed."""

import json
from pathlib import Path

import pytest

from ppas.config import load
from ppas.serving import launch
from ppas.serving.options import read_options
from ppas.serving.prompts import make_calls, make_prompt
from ppas.workload import Trace


def options(*overrides: str, step_log: Path | None = None) -> dict[str, str]:
    """Flags and their values; a flag without one has an empty value."""
    config = load(["backend=vllm", *overrides])
    command = launch.serve_command(
        config, config.scheduler, Path("python"), "model", 1234, "name", step_log
    )
    flags = {}
    for word, following in zip(command, [*command[1:], ""], strict=True):
        if word.startswith("--"):
            flags[word] = "" if following.startswith("--") else following
    return flags


def test_a_static_budget_is_stock_vllm():
    flags = options("experiment=rtx5090_primary", "scheduler=mbt_2k")
    assert flags["--max-num-batched-tokens"] == "2048"
    assert flags["--max-num-seqs"] == "256"
    assert flags["--max-model-len"] == "32768"
    assert "--async-scheduling" in flags
    assert "--scheduler-cls" not in flags and "--additional-config" not in flags
    assert not {"--watermark", "--no-scheduler-reserve-full-isl"} & flags.keys()


@pytest.mark.parametrize("scheduler", ["ppas", "ppas_global"])
def test_a_policy_goes_to_the_plugin_as_it_reads_it(scheduler):
    overrides = ("experiment=rtx5090_primary", f"scheduler={scheduler}")
    flags = options(*overrides)
    given = read_options(json.loads(flags["--additional-config"]), 16384)
    wanted = load(overrides)
    assert flags["--scheduler-cls"] == "ppas.serving.scheduler.PPASScheduler"
    assert given.policy.b_cap == wanted.scheduler.policy["b_cap"]
    assert flags["--max-num-batched-tokens"] == "16384"


def test_a_step_log_needs_the_plugin(tmp_path):
    flags = options("experiment=cpu_demo", "scheduler=mbt_256", step_log=tmp_path / "steps.csv")
    given = read_options(json.loads(flags["--additional-config"]), 256)
    assert given.step_log == tmp_path / "steps.csv"


def test_no_option_is_accepted_and_ignored():
    flags = options("experiment=rtx5090_primary", "scheduler=mbt_2k", "engine.watermark=0.01",
                    "engine.reserve_full_prompt=false", "engine.async_scheduling=false",
                    "+model.serve_options=[--kv-cache-dtype,fp8_e4m3]")  # fmt: skip
    assert flags["--watermark"] == "0.01"
    assert flags["--kv-cache-dtype"] == "fp8_e4m3"
    assert {"--no-scheduler-reserve-full-isl", "--no-async-scheduling"} <= flags.keys()


def test_text_needs_a_tokenizer():
    experiment = ("experiment=rtx5090_primary", "scheduler=mbt_2k")
    assert "--skip-tokenizer-init" in options(*experiment)
    assert "--skip-tokenizer-init" not in options(*experiment, "backend.first_token=text")


def test_a_made_up_model_has_the_configured_shape(tmp_path):
    config = load(["experiment=cpu_demo"])
    folder = Path(launch.model_source(config.model, tmp_path))
    shape = json.loads((folder / "config.json").read_text())
    assert shape["num_hidden_layers"] == config.model.layers
    assert shape["hidden_size"] == config.model.hidden_size
    hub = load(["experiment=rtx5090_primary"]).model
    assert launch.model_source(hub, tmp_path / "none") == "Qwen/Qwen2.5-3B-Instruct"


def test_prompts_share_no_prefix_and_stay_in_the_vocabulary():
    model = load(["experiment=cpu_demo"]).model
    trace = Trace((0.0, 1.0), (200, 100), (4, 4))
    calls = [*make_calls(trace, model, "a"), *make_calls(trace, model, "b")]
    assert [len(call.prompt) for call in calls] == [200, 100, 200, 100]
    assert len({tuple(call.prompt[:16]) for call in calls}) == len(calls)
    assert all(0 <= token < model.vocab_size for call in calls for token in call.prompt)
    assert make_prompt(50, model, "a") == make_prompt(50, model, "a")
