"""Block alignment of hybrid models, and what a start-up MBT costs in KV blocks."""

import argparse
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ppas.policies import Policy
from ppas.schema import (
    BackendConfig,
    Config,
    EngineConfig,
    HardwareConfig,
    ModelConfig,
    SchedulerConfig,
    WorkloadConfig,
)
from ppas.serving.doctor.finding import OK, PROBLEM, SKIPPED, WARNING, Finding
from ppas.serving.doctor.model import Model, block_tokens, is_hybrid, model_shape
from ppas.serving.doctor.plugin import most_decodes
from ppas.serving.options import TESTED_VLLM
from ppas.sizing import GIB, activation_bytes, kv_blocks, kv_bytes_per_token

KV_SHARE = 0.1  # of the KV blocks; a start-up MBT that takes more deserves a warning
MIB_PER_GIB = 1024
NO_CONFIG = "needs the model's config.json, in a local directory or the Hugging Face cache"


def check_blocks(
    policy: Policy | None,
    limit: int | None,
    model: Model | None,
    serve: argparse.Namespace,
    vllm: str | None,
) -> Finding:
    """A hybrid model's prefill chunks end on block boundaries; the budgets leave room for one."""
    check = "block alignment"
    if model is None:
        return Finding(SKIPPED, check, NO_CONFIG)
    if not is_hybrid(model.text):
        return Finding(OK, check, "not a hybrid model")
    if not aligned(model.text, serve, vllm):
        return Finding(OK, check, "hybrid model, but its chunks are not aligned")
    block = block_tokens(model.text, serve)
    if block is None:
        return Finding(
            WARNING,
            check,
            "hybrid model with prefix caching: keep b_cap at or above the block size that vLLM "
            'logs at start ("Setting attention block size to N tokens")',
        )
    decodes = most_decodes(serve, None) * (1 + serve.spec_tokens)
    if limit is not None and limit < block + decodes:
        fit = "do not fit" if limit < block else f"and {decodes} tokens of decodes may not fit"
        return Finding(
            PROBLEM if limit < block else WARNING,
            check,
            f"blocks of {block} tokens {fit} in {limit}, and prompts would wait; start with "
            f"--max-num-batched-tokens {block + decodes} or --no-enable-prefix-caching",
        )
    if policy is not None and policy.b_cap < block:
        return Finding(
            WARNING,
            check,
            f"b_cap {policy.b_cap} is below the block of {block} tokens: prefills are given a "
            f"block instead. The smallest safe b_cap is {block}",
        )
    return Finding(OK, check, f"blocks of {block} tokens fit in every budget")


def aligned(text: Mapping[str, Any], serve: argparse.Namespace, vllm: str | None) -> bool:
    """vLLM caches prefixes of this hybrid model and keeps states at block boundaries only.

    Up to 0.27.1 it does so on request, and keeps every state of Mamba models.
    """
    release = tuple(map(int, re.findall(r"\d+", vllm or TESTED_VLLM[-1])[:3]))
    older = release <= (0, 27, 1)
    if serve.enable_prefix_caching is None:
        return not older
    mode = serve.mamba_cache_mode
    if older and mode in (None, "none"):
        mode = "all" if "mamba_d_state" in text or "ssm_state_size" in text else "align"
    return serve.enable_prefix_caching and not (older and mode == "all")


def gpu_memory() -> float | None:
    """Memory in GiB of this host's smallest GPU, as nvidia-smi says."""
    query = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    sizes = [float(word) for word in answer.stdout.split() if word.isdecimal()]
    return min(sizes) / MIB_PER_GIB if sizes else None


def check_memory(
    policy: Policy | None, model: Model | None, serve: argparse.Namespace, memory: float | None
) -> list[Finding]:
    """What a token takes, and what the start-up MBT costs in KV blocks."""
    if model is None:
        return [Finding(SKIPPED, check, NO_CONFIG) for check in ("KV size", "KV blocks")]
    try:
        shape = model_shape(model.text, serve)
    except ValueError as error:
        return [Finding(SKIPPED, check, str(error)) for check in ("KV size", "KV blocks")]
    per_token = kv_bytes_per_token(sizing_config(shape, serve))
    size = (
        f"a token takes {per_token:,} bytes: {shape.layers} layers, {shape.kv_heads} KV heads of "
        f"{shape.head_size}, keys and values, {shape.kv_bytes} bytes each"
    )
    return [Finding(OK, "KV size", size), check_cost(policy, model, shape, serve, memory)]


def sizing_config(shape: ModelConfig, serve: argparse.Namespace, memory_gib: float = 0.0) -> Config:
    """The part of a configuration that `ppas.sizing` reads; its workload fills the context."""
    return Config(
        seeds=[],
        log_steps=False,
        engine=EngineConfig(
            max_num_seqs=0,
            block_size=serve.block_size,
            watermark=0.0,
            reserve_full_prompt=True,
            async_scheduling=True,
            gpu_memory_utilization=serve.gpu_memory_utilization,
        ),
        backend=BackendConfig(""),
        model=shape,
        hardware=HardwareConfig("the GPU", memory_gib, 0.0, 0.0),
        workload=WorkloadConfig(
            phases=[],
            burst_rates=[],
            prompt_tokens=[shape.max_model_len],
            output_tokens=[0],
            mix="",
        ),
    )


def check_cost(
    policy: Policy | None,
    model: Model,
    shape: ModelConfig,
    serve: argparse.Namespace,
    memory: float | None,
) -> Finding:
    """KV blocks with the start-up MBT, against those with an MBT of B_cap."""
    check, mbt = "KV blocks", serve.max_num_batched_tokens
    if mbt is None or policy is None:
        return Finding(SKIPPED, check, "needs valid options and --max-num-batched-tokens")
    for flag in ("kv_cache_memory_bytes", "num_gpu_blocks_override"):
        if getattr(serve, flag) is not None:
            return Finding(OK, check, f"set by --{flag.replace('_', '-')}, whatever the MBT")
    cap = min(policy.b_cap, mbt)
    if cap == mbt:
        return Finding(OK, check, f"no budget is smaller than the start-up MBT {mbt}")
    config = sizing_config(shape, serve, memory or 0.0)
    large, small = (SchedulerConfig("", tokens, {}) for tokens in (mbt, cap))
    lost = activation_bytes(config, large) - activation_bytes(config, small)
    hybrid = is_hybrid(model.text)
    block = (block_tokens(model.text, serve) if hybrid else None) or serve.block_size
    blocks = lost // (kv_bytes_per_token(config) * block)
    cost = f"starting with MBT {mbt} instead of {cap} costs about {blocks:,} KV blocks"
    cost += f" of {block} tokens ({lost / GIB:.1f} GiB)"
    if memory is None:
        return Finding(SKIPPED, check, f"{cost}; no GPU to ask of how many: give --gpu-memory-gib")
    if model.weight_gib is None or hybrid:
        why = "hybrid model" if hybrid else "no weights beside config.json"
        return Finding(SKIPPED, check, f"{cost}; of how many is not estimated: {why}")
    weights = model.weight_gib / serve.tensor_parallel_size
    try:
        left = kv_blocks(replace(config, model=replace(shape, weight_gib=weights)), large)
    except ValueError:
        return Finding(
            WARNING,
            check,
            f"MBT {mbt} seems to leave no room for one request of {shape.max_model_len} tokens "
            f"in {memory:.1f} GiB; lower --max-model-len or --max-num-batched-tokens",
        )
    share = blocks / (left + blocks)
    level = WARNING if share > KV_SHARE else OK
    return Finding(level, check, f"{cost}, {share:.0%} of all")
