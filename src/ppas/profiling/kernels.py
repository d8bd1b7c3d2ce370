"""Which kernels of a prefill are flash attention and which are the fused gate-up projection.

Attention is told by its kernel's name. A GEMM's name only says how it is computed, so that the
gate-up projection is found in one of two ways:

- **by shape**, where a trace says what op launched a kernel and on which inputs (PyTorch's
  profiler): x of [tokens, hidden size] times a weight of 2 x intermediate size by hidden size.
- **by order**, where it does not (Nsight): vLLM runs the GEMMs of a decoder layer as qkv, then
  attention, then output, gate-up and down, so that gate-up is the second GEMM after attention.

Both fail rather than guess: a GEMM too many or too few within a layer, a second GEMM that is not
the longest of its layer, or another number of calls than layers x chunks is an error. Limits: dense
decoder layers with a gated MLP, one GPU, attention in one call per layer; a quantized weight has
other shapes. The names are those of vLLM 0.22 to 0.33 on CUDA, as their sources and NVIDIA's
libraries spell them; on a GPU they have not been tried here.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ppas.schema import ModelConfig

FLASH_ATTENTION, GATE_UP, OTHER = "flash_attention", "gate_up", "other"
LABELS = (FLASH_ATTENTION, GATE_UP, OTHER)
GEMM, GEMM_TAIL = "gemm", "gemm_tail"
# FlashAttention 2 to 4, FlashInfer, TensorRT-LLM and Triton; on the CPU, vLLM's op. What writes the
# cache (reshape_and_cache_flash) and what plans the work (flash::prepare_...) is not attention.
ATTENTION_NAMES = (
    r"flash_fwd|flash::Flash|flash::flash|[Ff]lash_?[Aa]tt|fmha|"
    r"(Batch|Single)Prefill|unified_attention|cpu_attention"
)
# What cuBLAS runs after a GEMM that it split along its inner dimension: part of that GEMM.
TAIL_NAMES = r"split[Kk]_?[Rr]educe|cublasLt::epilogue"
# cuBLAS (nvjet_..., sm90_xmma_gemm_..., ampere_bf16_s16816gemm_..., gemv for one row), CUTLASS,
# Inductor's templates, Marlin and Machete; the last group names ops on the CPU.
GEMM_NAMES = (
    r"[Gg]emm|GEMM|gemv|nvjet|xmma|cutlass::Kernel|cutlass_[0-9]+_|[Mm]arlin|machete|"
    r"triton_tem_fused_\w*mm|(^|::)(linear|matmul|mm|addmm|\w+_mm|\w+_linear)$"
)
GATE_UP_PLACE = 2  # among the GEMMs after a layer's attention: output, gate-up, down, next qkv
LAYER_GEMMS = 4  # from one layer's attention to the next one's
LAST_LAYER_GEMMS = (LAYER_GEMMS, LAYER_GEMMS + 1)  # the head may come between


class ProfileError(ValueError):
    """A profile that cannot be made or read, told in one line: file, problem and remedy."""


class Kernel(NamedTuple):
    """One execution on the GPU, or of one op on the CPU."""

    name: str
    start_ms: float  # since any fixed moment
    duration_ms: float
    shapes: tuple[tuple[int, int], ...] = ()  # two-dimensional inputs of the op that launched it


def family(name: str) -> str:
    """What a kernel's name tells: flash attention, a GEMM, the tail of one, or other."""
    if re.search(ATTENTION_NAMES, name):
        return FLASH_ATTENTION
    if re.search(TAIL_NAMES, name):
        return GEMM_TAIL
    return GEMM if re.search(GEMM_NAMES, name) else OTHER


def label(kernels: Sequence[Kernel], model: ModelConfig, chunks: int) -> list[str]:
    """The label of each kernel of a whole prefill, in ``LABELS``.

    Args:
        kernels: in the order of execution.
        chunks: into how many the prompt was cut.

    Raises:
        ProfileError: attention or gate-up projections are missing, or too many.
    """
    shaped = any(kernel.shapes for kernel in kernels)
    labels = by_shape(kernels, model) if shaped else by_order(kernels, model.layers)
    pairs = zip(kernels, labels, strict=True)
    calls = sum(name == GATE_UP and family(k.name) == GEMM for k, name in pairs)
    if calls != model.layers * chunks:
        raise ProfileError(
            f"{calls} gate-up projections, not {model.layers} layers x {chunks} chunks; "
            "profile one prefill of a dense model on one GPU"
        )
    if FLASH_ATTENTION not in labels:
        raise ProfileError(
            "no attention kernel; add its name to ATTENTION_NAMES in ppas/profiling/kernels.py"
        )
    return labels


def by_shape(kernels: Sequence[Kernel], model: ModelConfig) -> list[str]:
    """Labels where kernels know the inputs of their op."""
    labels = []
    for kernel in kernels:
        kind = family(kernel.name)
        if kind in (GEMM, GEMM_TAIL) and _is_gate_up(kernel.shapes, model):
            kind = GATE_UP
        labels.append(kind if kind in LABELS else OTHER)
    return labels


def _is_gate_up(shapes: Sequence[tuple[int, int]], model: ModelConfig) -> bool:
    """Whether x [tokens, hidden] meets the weight, or the output of [tokens, 2 x intermediate].

    The weight is passed either way round, and not at all to oneDNN.
    """
    hidden, wide = model.hidden_size, 2 * model.intermediate_size
    return any(
        columns == hidden
        and any(
            other in ((hidden, wide), (wide, hidden), (tokens, wide))
            for k, other in enumerate(shapes)
            if k != place
        )
        for place, (tokens, columns) in enumerate(shapes)
    )


def by_order(kernels: Sequence[Kernel], layers: int) -> list[str]:
    """Labels from the order of GEMMs around attention; the profile starts with layer 0.

    Raises:
        ProfileError: the GEMMs do not come as in a dense decoder layer.
    """
    labels, counts = [], []
    spent: Counter[int] = Counter()  # ms of the GEMMs at each place after attention
    gemm_label = OTHER
    for kernel in kernels:
        kind = family(kernel.name)
        if kind == FLASH_ATTENTION and (not counts or counts[-1]):
            counts.append(0)
        if kind == GEMM and counts:
            counts[-1] += 1
            gemm_label = GATE_UP if counts[-1] == GATE_UP_PLACE else OTHER
        if kind in (GEMM, GEMM_TAIL):
            kind = gemm_label
            spent[counts[-1] if counts else 0] += kernel.duration_ms
        labels.append(kind)
    _require_dense(counts, layers)
    if GATE_UP in labels and max(spent, key=spent.__getitem__) != GATE_UP_PLACE:
        raise ProfileError(
            "the second GEMM after attention is not the longest, so gate-up cannot be told by "
            "order; use --tool torch, which knows shapes"
        )
    return labels


def _require_dense(counts: Sequence[int], layers: int) -> None:
    """The last group may be cut short, by the end of the prefill or of a partial profile."""
    for group, count in enumerate(counts[:-1], 1):
        allowed = LAST_LAYER_GEMMS if group % layers == 0 else (LAYER_GEMMS,)
        if count not in allowed:
            raise ProfileError(
                f"{count} GEMMs between attention {group} and {group + 1}, not {LAYER_GEMMS}, so "
                "gate-up cannot be told by order; use --tool torch, which knows shapes"
            )


def per_layer_ms(kernels: Sequence[Kernel], labels: Sequence[str], layers: int) -> dict[str, float]:
    """Milliseconds of each label over the whole prefill, per decoder layer."""
    total = dict.fromkeys(LABELS, 0.0)
    for kernel, name in zip(kernels, labels, strict=True):
        total[name] += kernel.duration_ms
    return {name: duration / layers for name, duration in total.items()}


def span_ms(kernels: Sequence[Kernel]) -> float:
    """Milliseconds from the start of the first kernel to the end of the last one."""
    end = max(kernel.start_ms + kernel.duration_ms for kernel in kernels)
    return end - min(kernel.start_ms for kernel in kernels)
