"""`ppas doctor`: every mistake it knows gets its level and says what to change; no vLLM needed."""

import json
from importlib.util import find_spec

import pytest

from ppas.serving import doctor
from ppas.serving.doctor import command as command_line
from ppas.serving.doctor import memory, plugin
from ppas.serving.doctor import model as model_facts
from ppas.serving.doctor.finding import OK, PROBLEM, SKIPPED, WARNING

QWEN_3B = {
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}
# Three layers of gated delta net for each of attention: blocks of 784 tokens.
DELTA_NET = {
    "text_config": {
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "num_hidden_layers": 64,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 262144,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16,
        "linear_num_value_heads": 48,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "mamba_ssm_dtype": "float32",
    }
}
# Mamba-2 beside attention: blocks of 2096 tokens, as in vLLM's issue 36697.
MAMBA = {
    "hidden_size": 2688,
    "intermediate_size": 1856,
    "moe_intermediate_size": 1856,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "max_position_embeddings": 262144,
    "hybrid_override_pattern": "MEM*",
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "conv_kernel": 4,
    "n_groups": 8,
}


@pytest.fixture
def cli():
    """The `ppas` command; it needs dependencies that a vLLM environment may lack."""
    return pytest.importorskip("ppas.cli", exc_type=ImportError)


@pytest.fixture
def model(tmp_path):
    """Writes a model's folder; the weights are said to weigh some GiB."""

    def write(config, weight_gib=5.75):
        (tmp_path / "config.json").write_text(json.dumps(config))
        index = {"metadata": {"total_size": int(weight_gib * 2**30)}}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
        return str(tmp_path)

    return write


@pytest.fixture(autouse=True)
def host(monkeypatch):
    """A host with a tested vLLM that can import the plugin, no GPU, no counters."""
    monkeypatch.setattr(doctor, "installed_vllm", lambda: "0.33.0")
    monkeypatch.setattr(doctor, "import_error", lambda name: None)
    monkeypatch.setattr(doctor, "gpu_memory", lambda: None)
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    return monkeypatch


def command(model, *flags, options='{"policy": "ppas", "b_cap": 2048}', mbt=16384):
    return [
        *("vllm", "serve", model, "--scheduler-cls", plugin.DEFAULT_CLASS),
        *("--additional-config", f'{{"ppas": {options}}}'),
        *(("--max-num-batched-tokens", str(mbt)) if mbt else ()),
        *flags,
    ]


def finding(check, words, **host):
    (found,) = [found for found in doctor.examine(words, **host) if found.check == check]
    return found


def test_good_command_line_has_nothing_to_change(cli, model, capsys):
    cli.main(["doctor", "--gpu-memory-gib", "31.36", "--", *command(model(QWEN_3B))])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11
    assert all(line.startswith("ok ") for line in lines)


def test_any_problem_sets_the_exit_status_and_the_rest_is_still_checked(cli, host, model, capsys):
    host.setattr(doctor, "installed_vllm", lambda: None)
    with pytest.raises(SystemExit) as error:
        cli.main(["doctor", *command(model(QWEN_3B))])
    assert error.value.code == 1
    first, second, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("problem  vllm") and first.endswith("pip install vllm==0.33.0")
    assert second.startswith("skipped  plugin")
    assert len(rest) == 9


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "-- vllm serve MODEL"),
        (("--", "ls"), "-- vllm serve MODEL"),
        (("--gpu-memory-gib", "0", "--", "vllm", "serve", "m"), "not a positive number"),
        (("--", "vllm", "serve", "m", "--max-num-seqs", "many"), "'many' is not a positive whole"),
        (("--", "vllm", "serve", "m", "--scheduler-cls"), "--scheduler-cls: expected one argument"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(cli, capsys, arguments, problem):
    with pytest.raises(SystemExit) as error:
        cli.main(["doctor", *arguments])
    assert error.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line


# The command line


def test_vllms_spellings_are_understood():
    plain = command_line.parse_command(
        ["vllm", "serve", "some/model", "--max-num-batched-tokens", "16384", "--port", "8000"]
    )
    for words in (
        ["vllm", "serve", "some/model", "--max_num_batched_tokens=16K"],
        ["vllm", "serve", "--model=some/model", "--max-num-batched-tokens", "16K"],
        ["python", "-m", "vllm.entrypoints.openai.api_server", "--model", "some/model",
         "--max_num_batched_tokens", "16384"],
    ):  # fmt: skip
        assert command_line.parse_command(words) == plain
    assert command_line.whole_number("16k") == 16000
    assert command_line.parse_command(["vllm", "serve", "--port", "1"]).model is None


def test_json_may_come_in_parts():
    options = ["--additional-config.ppas.policy", "ppas", "--additional_config.ppas.b_cap=2K"]
    serve = command_line.parse_command(["vllm", *options, "-sc", '{"num_speculative_tokens": 3}'])
    assert json.loads(serve.additional_config) == {"ppas": {"policy": "ppas", "b_cap": 2048}}
    assert serve.spec_tokens == 3
    assert command_line.parse_command(["vllm", "-sc", "oops"]).spec_tokens == 0


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--enable-prefix-caching", True),
        ("--no-enable-prefix-caching", False),
        ("--disable-prefix-caching", False),
        ("--port=1", None),
    ],
)
def test_switches_are_on_off_or_not_given(flag, value):
    assert command_line.parse_command(["vllm", flag]).enable_prefix_caching is value


def test_what_a_file_of_flags_sets_is_not_read(model):
    found = finding("flags", command(model(QWEN_3B), "--config", "flags.yaml"))
    assert found.level == WARNING
    assert "flags.yaml" in found.message


# vLLM and the plugin


def test_vllm_versions():
    assert plugin.check_version("0.22.1").level == OK
    unknown = plugin.check_version("0.99.0")
    assert unknown.level == WARNING
    assert "0.22.1, 0.27.1, 0.33.0" in unknown.message


def test_plugin_that_cannot_be_imported_is_one_line():
    found = plugin.check_plugin("ModuleNotFoundError: No module named 'ppas'", True)
    assert found.level == PROBLEM
    assert "No module named 'ppas'" in found.message
    assert plugin.check_plugin(None, True).level == OK


def test_spawned_process_imports_installed_classes_only(host, tmp_path):
    host.undo()
    host.chdir(tmp_path)
    (tmp_path / "here.py").write_text("class Scheduler: ...")
    assert plugin.import_error("collections.OrderedDict") is None
    assert plugin.import_error("here.Scheduler") == ("ModuleNotFoundError: No module named 'here'")
    assert plugin.import_error("collections.Nothing").startswith("AttributeError: ")
    host.setenv("PYTHONPATH", str(tmp_path))
    assert plugin.import_error("here.Scheduler") is None


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_plugin_without_vllm_says_how_to_install_it(host):
    host.undo()
    assert "needs vLLM in this environment: pip install vllm" in plugin.import_error(
        plugin.DEFAULT_CLASS
    )


@pytest.mark.parametrize(
    ("name", "async_scheduling", "level"),
    [
        (plugin.DEFAULT_CLASS, None, OK),
        (plugin.DEFAULT_CLASS, True, OK),
        (plugin.DEFAULT_CLASS, False, OK),
        (plugin.SYNC_CLASS, False, OK),
        (plugin.SYNC_CLASS, True, PROBLEM),
        (plugin.SYNC_CLASS, None, PROBLEM),
        ("other.Scheduler", None, PROBLEM),
        (None, None, PROBLEM),
    ],
)
def test_scheduler_class_fits_async_scheduling(name, async_scheduling, level):
    found = plugin.check_class(name, async_scheduling)
    assert found.level == level
    assert level == OK or plugin.DEFAULT_CLASS in found.message


# Options and budgets


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (None, "ppas: missing"),
        ("{ppas}", "not JSON"),
        ('{"ppas": {"policy": "other"}}', "ppas.policy"),
        ('{"ppas": {"policy": "ppas"}}', "ppas.b_cap"),
        ('{"ppas": {"policy": "ppas", "b_cap": 0}}', "ppas.b_cap"),
        ('{"ppas": {"policy": "ppas", "b_cap": 32768}}', "ppas.b_cap"),
        ('{"ppas": {"policy": "ppas_plus", "b_cap": 2048}}', "ppas.t_large"),
    ],
)
def test_bad_options_name_their_key(text, key):
    found, policy = plugin.check_options(text, 16384)
    assert (found.level, policy) == (PROBLEM, None)
    assert key in found.message


def test_checks_that_need_options_are_skipped_without(model):
    words = command(model(QWEN_3B), options='{"policy": "ppas"}')
    levels = {found.check: found.level for found in doctor.examine(words)}
    assert levels["options"] == PROBLEM
    assert {levels[check] for check in ("budgets", "cap", "KV blocks")} == {SKIPPED}


@pytest.mark.parametrize(
    ("options", "mbt", "flags", "level", "words"),
    [
        ({}, 16384, (), OK, "16384 tokens, 2048 under pressure"),
        ({}, None, (), WARNING, "is not given"),
        ({}, 2048, (), WARNING, "nothing ever changes"),
        ({"b_max": 32768}, 16384, (), WARNING, "above vLLM's limit 16384"),
        ({"b_max": 8192}, 16384, (), WARNING, "start with --max-num-batched-tokens 8192"),
        ({}, 16384, ("--max-num-scheduled-tokens=4096",), OK, "4096 tokens"),
        ({"b_max": 8192}, 8192, ("--max-num-scheduled-tokens=4K",), WARNING, "limit 4096"),
        ({}, 4096, ("--max-num-seqs", "5000"), PROBLEM, "which vLLM refuses"),
    ],
)
def test_budgets_and_limits_agree(model, options, mbt, flags, level, words):
    given = json.dumps({"policy": "ppas", "b_cap": 2048} | options)
    found = finding("budgets", command(model(QWEN_3B), *flags, options=given, mbt=mbt))
    assert found.level == level
    assert words in found.message


@pytest.mark.parametrize(
    ("options", "flags", "memory", "level"),
    [
        ({"b_cap": 512}, (), 32, OK),
        ({"b_cap": 768}, ("--max-num-seqs", "1024"), 32, WARNING),
        ({"b_cap": 768}, (), 80, WARNING),  # large GPUs serve more requests by default
        ({"b_cap": 768, "cap_scope": "prefill"}, (), 80, OK),
        ({"b_cap": 1024}, ("--spec-tokens", "3"), 32, OK),
        ({"b_cap": 1023}, ("--spec-tokens", "3"), 32, WARNING),
        ({"b_cap": 511}, (), 32, WARNING),
        ({"policy": "static", "b_cap": None}, (), 32, OK),
    ],
)
def test_cap_leaves_room_for_decodes(model, options, flags, memory, level):
    given = {"policy": "ppas", "b_cap": 2048} | options
    given = json.dumps({key: value for key, value in given.items() if value is not None})
    words = command(model(QWEN_3B), *flags, options=given)
    assert finding("cap", words, gpu_memory_gib=memory).level == level


def test_prompts_must_be_cut_into_chunks(model):
    words = command(model(QWEN_3B), "--no-enable-chunked-prefill")
    assert finding("chunked prefill", words).level == PROBLEM


def test_counters_need_an_empty_directory(tmp_path):
    assert plugin.check_metrics(None).level == OK
    assert plugin.check_metrics(str(tmp_path)).level == OK
    (tmp_path / "counter_1.db").touch()
    assert plugin.check_metrics(str(tmp_path)).level == WARNING
    assert plugin.check_metrics(str(tmp_path / "none")).level == PROBLEM


# Hybrid models


def blocks(model, config, *flags, vllm="0.33.0", b_cap=768, mbt=4096):
    text = model_facts.read_model(model(config)).text
    serve = command_line.parse_command(["vllm", *flags])
    _, policy = plugin.check_options(json.dumps({"ppas": {"policy": "ppas", "b_cap": b_cap}}), mbt)
    found = memory.check_blocks(policy, mbt, model_facts.Model(text, None), serve, vllm)
    return found.level, found.message


def test_cap_below_a_block_names_the_smallest_safe_one(model):
    level, message = blocks(model, DELTA_NET)
    assert level == WARNING
    assert message.endswith("The smallest safe b_cap is 784")
    assert blocks(model, DELTA_NET, b_cap=784) == (OK, "blocks of 784 tokens fit in every budget")


def test_block_above_the_budget_is_a_problem(model):
    level, message = blocks(model, MAMBA, mbt=2048)
    assert level == PROBLEM
    assert "blocks of 2096 tokens do not fit in 2048" in message
    assert message.endswith("--max-num-batched-tokens 2352 or --no-enable-prefix-caching")
    assert blocks(model, MAMBA, mbt=2351)[0] == WARNING  # a block, but not beside 256 decodes
    assert blocks(model, MAMBA, mbt=2352, b_cap=2096)[0] == OK


@pytest.mark.parametrize(
    ("config", "flags", "vllm", "level"),
    [
        (DELTA_NET, ("--no-enable-prefix-caching",), "0.33.0", OK),
        (DELTA_NET, (), "0.27.1", OK),
        (DELTA_NET, ("--enable-prefix-caching",), "0.27.1", WARNING),
        (MAMBA, ("--enable-prefix-caching",), "0.22.1", OK),  # keeps every state
        (MAMBA, ("--enable-prefix-caching", "--mamba-cache-mode=align"), "0.22.1", WARNING),
        (MAMBA, (), "0.33.0", WARNING),
        (MAMBA, (), None, WARNING),
        (QWEN_3B, (), "0.33.0", OK),
        (QWEN_3B | {"layer_types": ["conv", "full_attention"]}, (), "0.33.0", WARNING),
    ],
)
def test_alignment_depends_on_model_version_and_flags(model, config, flags, vllm, level):
    assert blocks(model, config, *flags, vllm=vllm)[0] == level


def test_an_8_bit_cache_makes_blocks_of_more_tokens(model):
    text = model_facts.read_model(model(DELTA_NET)).text
    assert model_facts.block_tokens(text, command_line.parse_command(["vllm"])) == 784
    serve = command_line.parse_command(["vllm", "--kv-cache-dtype", "fp8_e4m3"])
    assert model_facts.block_tokens(text, serve) == 1568


# Memory


def test_cost_of_the_start_up_mbt(model):
    words = command(model(QWEN_3B))
    assert "36,864 bytes" in finding("KV size", words).message
    # (16384 - 2048) tokens x (4 x 2048 + 3 x 11008) x 2 bytes, in blocks of 16 x 36864 bytes.
    asked = finding("KV blocks", words)
    assert asked.level == SKIPPED
    assert "2,003 KV blocks" in asked.message and "--gpu-memory-gib" in asked.message
    known = finding("KV blocks", words, gpu_memory_gib=31.36)
    assert (known.level, known.message[-11:]) == (OK, ", 5% of all")
    tight = finding("KV blocks", words, gpu_memory_gib=10)
    assert tight.level == WARNING


def test_no_room_for_one_request_is_told(model):
    found = finding("KV blocks", command(model(QWEN_3B)), gpu_memory_gib=8)
    assert found.level == WARNING
    assert "no room for one request of 32768 tokens" in found.message


def test_host_is_asked_for_its_memory(host, model):
    host.setattr(doctor, "gpu_memory", lambda: 31.36)
    assert finding("KV blocks", command(model(QWEN_3B))).level == OK
    host.undo()
    host.setenv("PATH", "")
    assert memory.gpu_memory() is None


def test_a_fixed_pool_costs_nothing(model):
    words = command(model(QWEN_3B), "--kv-cache-memory-bytes", "8G")
    assert "whatever the MBT" in finding("KV blocks", words).message


def test_static_policy_has_no_smaller_budget_to_compare_with(model):
    words = command(model(QWEN_3B), options='{"policy": "static"}')
    assert finding("KV blocks", words).level == OK


@pytest.mark.parametrize(
    ("change", "flags", "reason"),
    [
        ({"kv_lora_rank": 512}, (), "MLA"),
        ({"mamba_d_state": 16}, (), "does not list the layers"),
        ({"hidden_size": None}, (), "has no hidden_size"),
        ({}, ("-pp", "2"), "pipeline"),
        ({}, ("--kv-cache-dtype", "int3"), "int3"),
    ],
)
def test_models_without_an_estimate_say_why(model, change, flags, reason):
    config = {key: value for key, value in (QWEN_3B | change).items() if value is not None}
    found = finding("KV size", command(model(config), *flags))
    assert found.level == SKIPPED
    assert reason in found.message


def test_tensor_parallelism_and_mixtures_of_experts(model):
    text = model_facts.read_model(model(QWEN_3B)).text
    shape = model_facts.model_shape(text, command_line.parse_command(["vllm", "-tp", "2"]))
    assert (shape.kv_heads, shape.intermediate_size) == (1, 5504)
    text = model_facts.read_model(model(MAMBA)).text
    shape = model_facts.model_shape(text, command_line.parse_command(["vllm"]))
    assert (shape.layers, shape.intermediate_size) == (1, 6 * 1856)


def test_model_that_is_not_here_skips_what_needs_it():
    levels = {found.check: found.level for found in doctor.examine(command("nobody/nothing"))}
    skipped = {check for check, level in levels.items() if level == SKIPPED}
    assert skipped == {"block alignment", "KV size", "KV blocks"}
