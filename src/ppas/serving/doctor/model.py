"""What a model's config.json says about the size of its KV cache and its blocks."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ppas.schema import (
    ModelConfig,
)
from ppas.sizing import GIB

ELEMENT_BYTES = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}
# Layers whose state replaces keys and values, as config.json names them.
RECURRENT = ("linear", "mamba", "conv", "recurrent", "ssm")
# Mamba-2 in config.json: heads, head size, state size, convolution width, groups.
MAMBA2 = (
    ("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "conv_kernel", "n_groups"),
    ("mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_d_conv", "mamba_n_groups"),
)
# Gated delta net: value heads and their size, key heads and their size, convolution width.
DELTA_NET = ("linear_num_value_heads", "linear_value_head_dim", "linear_num_key_heads",
             "linear_key_head_dim", "linear_conv_kernel_dim")  # fmt: skip


class Model(NamedTuple):
    """A model's language part of config.json, and the size of its weights if they are there."""

    text: Mapping[str, Any]
    weight_gib: float | None


def read_model(name: str | None) -> Model | None:
    """A model from its folder, or its config.json from the Hugging Face cache; else None."""
    if name is None:
        return None
    path = Path(name) / "config.json"
    if not path.is_file():
        path = _cached(name)
    try:
        config = json.loads(path.read_text(encoding="utf-8")) if path else None
    except (OSError, ValueError):
        return None
    if not isinstance(config, dict):
        return None
    text = config.get("text_config") or config.get("llm_config") or config
    dtype = {"dtype": config.get("dtype") or config.get("torch_dtype")}
    return Model(dtype | text, _weights_gib(path.parent))


def _cached(name: str) -> Path | None:
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(name, "config.json")
    except (ImportError, ValueError):
        return None
    return Path(found) if isinstance(found, str) else None


def _weights_gib(folder: Path) -> float | None:
    """From the index of the shards, or the size of the single file."""
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    try:
        size = json.loads(index.read_text())["metadata"]["total_size"]
    except (OSError, ValueError, KeyError):
        size = single.stat().st_size if single.is_file() else 0
    return size / GIB or None


def layer_kinds(text: Mapping[str, Any]) -> list[str]:
    """The kind of every layer, where config.json lists them; "*" is Nemotron's attention."""
    kinds = text.get("layer_types") or text.get("layers_block_type")
    return list(kinds or text.get("hybrid_override_pattern") or [])


def is_hybrid(text: Mapping[str, Any]) -> bool:
    """Some layers keep a recurrent state instead of keys and values."""
    listed = any(word in kind for kind in layer_kinds(text) for word in RECURRENT)
    keys = ("mamba_", "ssm_", "linear_num_", "linear_conv_")
    return listed or any(key.startswith(keys) for key in text)


def attention_layers(text: Mapping[str, Any]) -> int:
    """Layers that keep keys and values.

    Raises:
        ValueError: config.json does not say.
    """
    if kinds := layer_kinds(text):
        return sum(
            kind in ("*", "hybrid") or ("attention" in kind and "linear" not in kind)
            for kind in kinds
        )
    if not is_hybrid(text):
        return text["num_hidden_layers"]
    if interval := text.get("full_attention_interval"):
        return text["num_hidden_layers"] // interval
    raise ValueError("config.json does not list the layers that keep KV")


def state_bytes(text: Mapping[str, Any], dtype: int, ssm_dtype: int, draft_tokens: int) -> int:
    """Bytes of one recurrent layer's state for one request; 0 for kinds not known here.

    As vLLM computes it (vllm/model_executor/layers/mamba/mamba_utils.py): a window of the
    convolution's inputs, and a matrix per head.
    """
    for keys in MAMBA2:
        if all(key in text for key in keys):
            heads, size, state, window, groups = (text[key] for key in keys)
            channels = heads * size + 2 * groups * state
            return channels * (window - 1 + draft_tokens) * dtype + heads * size * state * ssm_dtype
    if all(key in text for key in DELTA_NET):
        heads, size, keys, key_size, window = (text[key] for key in DELTA_NET)
        channels = 2 * keys * key_size + heads * size
        return channels * (window - 1 + draft_tokens) * dtype + heads * size * key_size * ssm_dtype
    return 0


def block_tokens(text: Mapping[str, Any], serve: argparse.Namespace) -> int | None:
    """Tokens of a hybrid model's KV block: its attention page holds a recurrent state.

    As in vllm/platforms/interface.py (_align_hybrid_block_size); None where not known.
    """
    try:
        shape = model_shape(text, serve)
        dtype = element_bytes(serve.dtype, text)
        ssm = serve.mamba_ssm_cache_dtype
        if ssm == "auto":
            default = "float32" if "hybrid_override_pattern" in text else "auto"  # Nemotron
            ssm = text.get("mamba_ssm_dtype") or text.get("mamba_ssm_cache_dtype") or default
        state = state_bytes(text, dtype, element_bytes(ssm, text), serve.spec_tokens)
    except ValueError:
        return None
    per_token = 2 * shape.kv_heads * shape.head_size * shape.kv_bytes
    state //= serve.tensor_parallel_size
    return -(-state // (serve.block_size * per_token)) * serve.block_size or None


def element_bytes(name: str, text: Mapping[str, Any]) -> int:
    """Bytes of an element of a dtype as vLLM's flags name it.

    Raises:
        ValueError: a name not known here.
    """
    if name == "auto":
        name = text.get("dtype") or text.get("torch_dtype") or "bfloat16"
        name = "bfloat16" if name == "float32" else name  # as vLLM serves float32 checkpoints
    if name.startswith("fp8"):
        return 1
    if name not in ELEMENT_BYTES:
        raise ValueError(f"size of dtype {name} not known")
    return ELEMENT_BYTES[name]


def model_shape(text: Mapping[str, Any], serve: argparse.Namespace) -> ModelConfig:
    """What one GPU holds of a model, for the formulas of `ppas.sizing`.

    Raises:
        ValueError: why there is no estimate for it.
    """
    if "kv_lora_rank" in text:
        raise ValueError("latent attention (MLA) is not estimated here")
    if serve.pipeline_parallel_size > 1:
        raise ValueError("pipeline parallelism is not estimated here")
    parts = serve.tensor_parallel_size
    kv_bytes = element_bytes(serve.dtype, text)
    if serve.kv_cache_dtype != "auto":
        kv_bytes = element_bytes(serve.kv_cache_dtype, text)
    expert = (text.get("moe_intermediate_size") or 0) * (text.get("num_experts_per_tok") or 1)
    try:
        heads, hidden = text["num_attention_heads"], text["hidden_size"]
        return ModelConfig(
            name="the model",
            repository="",
            max_model_len=serve.max_model_len or text["max_position_embeddings"],
            layers=attention_layers(text),
            hidden_size=hidden,
            intermediate_size=max(text.get("intermediate_size") or 0, expert) // parts,
            attention_heads=heads,
            kv_heads=max(1, (text.get("num_key_value_heads") or heads) // parts),
            head_size=text.get("head_dim") or hidden // heads,
            weight_gib=0.0,
            kv_bytes=kv_bytes,
        )
    except KeyError as error:
        raise ValueError(f"config.json has no {error.args[0]}") from None
