"""What to type to serve a configuration: vLLM's command line, environment and model folder."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ppas.config import max_model_len
from ppas.runs import DUMMY
from ppas.schema import Config, EngineConfig, ModelConfig, SchedulerConfig

PACKAGE_PARENT = Path(__file__).parents[2]  # so that the server finds this package
PLUGIN = "ppas.serving.scheduler.PPASScheduler"
STOCK = "static"  # the policy that needs no plugin
TEXT = "text"


def serve_command(
    config: Config,
    scheduler: SchedulerConfig,
    python: Path,
    model: str,
    port: int,
    name: str,
    step_log: Path | None = None,
) -> list[str]:
    """The command that serves ``config`` with one scheduler on 127.0.0.1.

    Args:
        python: the interpreter of the environment that has vLLM.
        model: a repository on the Hugging Face Hub or a folder.
        name: what the server calls the model.
        step_log: the plugin's log of each step; a static budget then runs through the plugin too.
    """
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", model]
    command += ["--served-model-name", name, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--max-model-len", str(max_model_len(config)), "--seed", "0"]
    command += ["--max-num-batched-tokens", str(scheduler.max_num_batched_tokens)]
    command += engine_options(config.engine)
    if config.model.weights == DUMMY:
        command += ["--load-format", "dummy"]
    if config.backend.first_token != TEXT:
        command += ["--skip-tokenizer-init"]
    command += [*config.model.serve_options, *config.hardware.serve_options]
    return command + plugin_options(scheduler, step_log)


def engine_options(engine: EngineConfig) -> list[str]:
    """vLLM's flags for the engine's options."""
    asynchronous = "--async-scheduling" if engine.async_scheduling else "--no-async-scheduling"
    options = ["--max-num-seqs", str(engine.max_num_seqs), asynchronous]
    options += ["--block-size", str(engine.block_size)]
    options += ["--gpu-memory-utilization", str(engine.gpu_memory_utilization)]
    if engine.watermark:
        options += ["--watermark", str(engine.watermark)]
    if not engine.reserve_full_prompt:
        options += ["--no-scheduler-reserve-full-isl"]
    return options


def plugin_options(scheduler: SchedulerConfig, step_log: Path | None = None) -> list[str]:
    """The flags that put a scheduler's policy into vLLM; none for vLLM's own scheduler."""
    options = dict(scheduler.policy)
    kind = options.pop("kind")
    if kind == STOCK and step_log is None:
        return []
    options["policy"] = kind
    if step_log is not None:
        options["step_log"] = str(step_log)
    return ["--scheduler-cls", PLUGIN, "--additional-config", json.dumps({"ppas": options})]


def serve_environment(config: Config) -> dict[str, str]:
    """Variables that the server needs besides those of this process."""
    path = os.pathsep.join(filter(None, (str(PACKAGE_PARENT), os.environ.get("PYTHONPATH"))))
    return {
        "PYTHONPATH": path,
        "VLLM_NO_USAGE_STATS": "1",
        **({"HF_HUB_OFFLINE": "1"} if config.model.weights == DUMMY else {}),
        **config.hardware.environment,
    }


def model_source(model: ModelConfig, folder: Path) -> str:
    """What ``--model`` names: the repository, or a folder made here for made-up weights."""
    if model.weights != DUMMY:
        return model.repository
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(architecture(model), indent=2) + "\n")
    return str(folder)


def architecture(model: ModelConfig) -> Mapping[str, Any]:
    """A dense Qwen2 of the model's shape, as its config.json."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.attention_heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_size,
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_model_len,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
