"""Build vLLM's real V1 scheduler without a GPU.

One file for vLLM 0.22.1, 0.27.1 and 0.33.0. The pieces:

* `make_scheduler` builds a `Scheduler`, an `AsyncScheduler` or a subclass on a CPU-only machine;
* `make_request` builds one text request;
* `snapshot` rescans the queues: the oracle for what the plugin counts.

`replay.py` serves requests through it. Lengths are tokens.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

BLOCK_SIZE = 16  # tokens per KV block
TOKEN = 1  # the id that every fake sampling step returns

# A Qwen2 model so small that nothing is ever loaded from it: the scheduler only reads its config.
QWEN2_CONFIG: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "torch_dtype": "float32",
}

# The queues that hold requests which are not running: `waiting` everywhere, `skipped_waiting` in
# 0.22.1 and 0.27.1, `kv_holding_waiting` in 0.33.0 (vllm/v1/core/sched/scheduler.py, __init__).
# `deferred_waiting` of 0.33.0 is a subset of the other two and must not be counted again.
WAITING_QUEUES = ("waiting", "skipped_waiting", "kv_holding_waiting")


class Snapshot(NamedTuple):
    """What a budget policy may know before a step; counts of requests, sums of tokens."""

    prefills_running: int
    prefills_waiting: int
    decodes_running: int
    residual_prefill: int
    budget_limit: int


def write_model_dir(path: Path, max_model_len: int) -> Path:
    """Write a tiny Qwen2 `config.json` for contexts up to `max_model_len` tokens."""
    config = {**QWEN2_CONFIG, "max_position_embeddings": max_model_len}
    (path / "config.json").write_text(json.dumps(config, indent=2))
    return path


@functools.cache
def _base_config(max_model_len: int) -> VllmConfig:
    """A validated configuration for the CPU; slow to build, hence shared and copied.

    The garbage collector then ignores all that exists, as in the engine after start-up
    (`freeze_gc_heap` in vllm/v1/engine/core.py): scanning it takes a fifth of a run.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = write_model_dir(Path(folder), max_model_len)
        model = ModelConfig(
            model=str(path),
            skip_tokenizer_init=True,
            dtype="float32",
            max_model_len=max_model_len,
            seed=0,
        )
        config = VllmConfig(
            model_config=model,
            cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=False),
            scheduler_config=_scheduler_config(max_model_len),
            device_config=DeviceConfig("cpu"),
        )
    gc.collect()
    gc.freeze()
    return config


def _scheduler_config(max_model_len: int, **options: Any) -> SchedulerConfig:
    """A `SchedulerConfig`, without the options that this version lacks at their default.

    `watermark` came after 0.22.1 (vllm/config/scheduler.py).
    """
    known = {field.name: field for field in dataclasses.fields(SchedulerConfig)}
    unknown = [name for name in options if name not in known]
    for name in unknown:
        if options.pop(name):
            raise ValueError(f"this vLLM's SchedulerConfig has no option {name!r}")
    return SchedulerConfig(max_model_len=max_model_len, is_encoder_decoder=False, **options)


def _vllm_config(
    num_blocks: int, additional_config: Mapping[str, Any], *, max_model_len: int, **options: Any
) -> VllmConfig:
    """The shared configuration with its own scheduler options, number of blocks and extras."""
    config = copy.copy(_base_config(max_model_len))
    config.scheduler_config = _scheduler_config(max_model_len, **options)
    config.cache_config = copy.copy(config.cache_config)
    config.cache_config.num_gpu_blocks = num_blocks
    config.additional_config = dict(additional_config)
    return config


def _kv_cache_config(num_blocks: int) -> KVCacheConfig:
    """One full-attention group of `num_blocks` blocks (vllm/v1/kv_cache_interface.py)."""
    spec = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=16, dtype=torch.float32
    )
    return KVCacheConfig(
        num_blocks=num_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )


def make_scheduler(
    cls: type[Scheduler],
    *,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    num_blocks: int,
    max_model_len: int = 65_536,
    watermark: float = 0.0,
    additional_config: Mapping[str, Any] | None = None,
    async_scheduling: bool = True,
    policy: str = "fcfs",
    log_stats: bool = False,
    mamba_block: int | None = None,
    **scheduler_options: Any,
) -> Scheduler:
    """Build the scheduler `cls` with prefix caching off and KV blocks of 16 tokens.

    `num_blocks` counts the null block, which vLLM never hands out (vllm/v1/core/block_pool.py).
    `watermark` is a fraction of `num_blocks`. With `mamba_block` (tokens), chunks are cut as for a
    hybrid model whose Mamba cache is in mode "align". The rest goes to vLLM's `SchedulerConfig`.
    """
    config = _vllm_config(
        num_blocks,
        additional_config or {},
        max_model_len=max_model_len,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        policy=policy,
        async_scheduling=async_scheduling,
        watermark=watermark,
        **scheduler_options,
    )
    scheduler = cls(
        vllm_config=config,
        kv_cache_config=_kv_cache_config(num_blocks),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK_SIZE,
        log_stats=log_stats,
    )
    return _align_prefill(scheduler, mamba_block)


def _align_prefill(scheduler: Scheduler, block: int | None) -> Scheduler:
    """Switch on `_mamba_block_aligned_split` (vllm/v1/core/sched/scheduler.py) for text requests.

    vLLM does so itself where a KV group is a Mamba group and `mamba_cache_mode` is "align".
    """
    if block is not None:
        scheduler.need_mamba_block_aligned_split = True
        scheduler.cache_config.block_size = block
        scheduler.block_size = block
    return scheduler


def make_request(
    request_id: str,
    prompt_tokens: int,
    max_tokens: int,
    arrival_time: float = 0.0,
    *,
    priority: int = 0,
    **options: Any,
) -> Request:
    """A text request that ignores the end-of-sequence token and so makes `max_tokens` tokens.

    It ends earlier only at the model's context length. `options` go to vLLM's `Request`.
    """
    return Request(
        request_id=request_id,
        prompt_token_ids=[TOKEN] * prompt_tokens,
        sampling_params=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
        pooling_params=None,
        arrival_time=arrival_time,
        priority=priority,
        **options,
    )


def fake_output(scheduler: Scheduler, scheduled: SchedulerOutput) -> ModelRunnerOutput:
    """The model's answer to a step: one token where the known tokens end, none for a partial chunk.

    Call it right after `schedule()`, before anything else touches the requests: `is_prefill_chunk`
    is set there for each scheduled request (`_update_after_schedule`, in
    vllm/v1/core/sched/scheduler.py), and is true while known tokens remain to be computed.
    """
    requests = scheduler.requests
    ids = list(scheduled.num_scheduled_tokens)
    return ModelRunnerOutput(
        req_ids=ids,
        req_id_to_index={name: index for index, name in enumerate(ids)},
        sampled_token_ids=[[] if requests[name].is_prefill_chunk else [TOKEN] for name in ids],
    )


def snapshot(scheduler: Scheduler) -> Snapshot:
    """Count by looking at every request: slow, obviously right."""
    running = [r for r in scheduler.running if r.num_computed_tokens < r.num_prompt_tokens]
    queues = [getattr(scheduler, name, ()) for name in WAITING_QUEUES]
    waiting = (r for queue in queues for r in queue)
    return Snapshot(
        prefills_running=len(running),
        prefills_waiting=sum(r.num_computed_tokens < r.num_prompt_tokens for r in waiting),
        decodes_running=len(scheduler.running) - len(running),
        residual_prefill=sum(r.num_prompt_tokens - r.num_computed_tokens for r in running),
        budget_limit=scheduler.max_num_scheduled_tokens,
    )
