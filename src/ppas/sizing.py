"""KV-cache size of a (model, GPU) pair: what vLLM finds free once it has loaded and profiled."""

from math import ceil

from ppas.schema import Config, SchedulerConfig

GIB, MIB = 2**30, 2**20
BYTES = 2  # of a bfloat16 activation
RUNTIME_GIB = 1.0  # CUDA context, graphs and allocator slack; an estimate


def kv_bytes_per_token(config: Config) -> int:
    """Bytes that one token's keys and values take over all attention layers."""
    model = config.model
    layers = model.layers if model.attention_layers is None else model.attention_layers
    return 2 * layers * model.kv_heads * model.head_size * model.kv_bytes


def state_blocks(config: Config) -> int:
    """KV blocks' worth of recurrent state per request; vLLM keeps both in one pool."""
    block_bytes = kv_bytes_per_token(config) * config.engine.block_size
    return ceil(config.model.state_mib * MIB / block_bytes)


def activation_bytes(config: Config, scheduler: SchedulerConfig) -> int:
    """Peak activations of a step of the start-up MBT: the MLP's inputs, gate, up and product.

    A larger start-up MBT therefore leaves less room for KV (vllm/v1/worker/gpu_worker.py
    profiles one such step before it sizes the cache).
    """
    model = config.model
    width = model.intermediate_size * max(1, model.experts_active)
    per_token = (4 * model.hidden_size + 3 * width) * BYTES
    return scheduler.max_num_batched_tokens * per_token


def kv_blocks(config: Config, scheduler: SchedulerConfig) -> int:
    """KV blocks that requests can hold.

    Raises:
        ValueError: the model does not leave room for one request of the workload.
    """
    budget = config.hardware.memory_gib * config.engine.gpu_memory_utilization
    free = (budget - config.model.weight_gib - RUNTIME_GIB) * GIB
    free -= activation_bytes(config, scheduler)
    size = config.engine.block_size
    # One block stays empty: vLLM reserves it as the null block.
    blocks = int(free // (kv_bytes_per_token(config) * size)) - 1
    longest = max(config.workload.prompt_tokens) + max(config.workload.output_tokens)
    room = max(blocks - state_blocks(config), 0) * size
    if room < longest:
        raise ValueError(
            f"model: {config.model.name} on {config.hardware.name} has room for {room} KV tokens "
            f"with MBT {scheduler.max_num_batched_tokens}; the workload needs {longest}"
        )
    return blocks
