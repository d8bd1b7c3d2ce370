"""`ppas doctor`: what to change on a host and in a `vllm serve` command line before serving.

Each check is a pure function that returns a `Finding`; `examine` asks the host what they need.
Sizes are estimates by the formulas of `ppas.sizing`; vLLM's own log has the last word.
"""

import os
from collections.abc import Sequence

from ppas.serving.doctor.command import UsageError, parse_command
from ppas.serving.doctor.finding import WARNING, Finding
from ppas.serving.doctor.memory import check_blocks, check_memory, gpu_memory
from ppas.serving.doctor.model import read_model
from ppas.serving.doctor.plugin import (
    DEFAULT_CLASS,
    check_cap,
    check_chunking,
    check_class,
    check_limit,
    check_metrics,
    check_options,
    check_plugin,
    check_version,
    import_error,
    installed_vllm,
    most_decodes,
)


def examine(words: Sequence[str], gpu_memory_gib: float | None = None) -> list[Finding]:
    """All checks of a command line, given as words, on this host.

    Args:
        gpu_memory_gib: memory of one GPU; by default nvidia-smi is asked.

    Raises:
        UsageError: the command line cannot be read, in one line.
    """
    if gpu_memory_gib is not None and not gpu_memory_gib > 0:
        raise UsageError(f"--gpu-memory-gib: {gpu_memory_gib} is not a positive number")
    serve = parse_command(words)
    vllm = installed_vllm()
    memory = gpu_memory_gib or gpu_memory()
    model = read_model(serve.model)
    limit = serve.max_num_scheduled_tokens or serve.max_num_batched_tokens
    options, policy = check_options(serve.additional_config, limit)
    findings = [
        check_version(vllm),
        check_plugin(import_error(DEFAULT_CLASS) if vllm else None, vllm is not None),
        check_class(serve.scheduler_cls, serve.async_scheduling),
        options,
        check_limit(policy, serve.max_num_batched_tokens, limit, serve.max_num_seqs),
        check_cap(policy, most_decodes(serve, memory), serve.spec_tokens),
        check_chunking(serve.enable_chunked_prefill),
        check_blocks(policy, limit, model, serve, vllm),
        *check_memory(policy, model, serve, memory),
        check_metrics(os.environ.get("PROMETHEUS_MULTIPROC_DIR")),
    ]
    if serve.config:
        findings.append(Finding(WARNING, "flags", f"what {serve.config} sets is not read here"))
    return findings
