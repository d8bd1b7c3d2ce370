"""KV-cache size of a (model, GPU) pair: what vLLM finds free once it has loaded and profiled."""

from ppas.schema import Config, SchedulerConfig

GIB = 2**30
BYTES = 2  # of a bfloat16 activation
RUNTIME_GIB = 1.0  # CUDA context, graphs and allocator slack; an estimate


def kv_bytes_per_token(config: Config) -> int:
    """Bytes that one token's keys and values take over all attention layers."""
    model = config.model
    return 2 * model.layers * model.kv_heads * model.head_size * model.kv_bytes


def activation_bytes(config: Config, scheduler: SchedulerConfig) -> int:
    """Peak activations of a step of the start-up MBT: the MLP's inputs, gate, up and product.

    A larger start-up MBT therefore leaves less room for KV (vllm/v1/worker/gpu_worker.py
    profiles one such step before it sizes the cache).
    """
    per_token = (4 * config.model.hidden_size + 3 * config.model.intermediate_size) * BYTES
    return scheduler.max_num_batched_tokens * per_token


def kv_blocks(config: Config, scheduler: SchedulerConfig) -> int:
    """KV blocks that requests can hold.

    Raises:
        ValueError: the model does not leave room for one request of the workload.
    """
    budget = config.hardware.memory_gib * config.engine.gpu_memory_utilization
    free = (budget - config.model.weight_gib - RUNTIME_GIB) * GIB
    free -= activation_bytes(config, scheduler)
    blocks = int(free // (kv_bytes_per_token(config) * config.engine.block_size))
    longest = max(config.workload.prompt_tokens) + max(config.workload.output_tokens)
    # One block stays empty: vLLM reserves it as the null block.
    if (blocks - 1) * config.engine.block_size < longest:
        raise ValueError(
            f"model: {config.model.name} on {config.hardware.name} has room for "
            f"{max(blocks - 1, 0) * config.engine.block_size} KV tokens with "
            f"MBT {scheduler.max_num_batched_tokens}; the workload needs {longest}"
        )
    return blocks - 1
