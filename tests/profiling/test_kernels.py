"""Kernels are told apart by name, shape and order, and never by a guess."""

import pytest

from ppas.profiling.kernels import (
    FLASH_ATTENTION,
    GATE_UP,
    GEMM,
    GEMM_TAIL,
    OTHER,
    Kernel,
    ProfileError,
    by_order,
    by_shape,
    family,
    label,
    per_layer_ms,
    span_ms,
)

from .cases import make_model

MODEL = make_model(layers=2, hidden=64, intermediate=100)
ATTENTION = Kernel("flash_fwd_kernel", 0, 5)
LAYER = [ATTENTION, *(Kernel(f"nvjet_{k}", 0, ms) for k, ms in enumerate((2, 9, 4, 3)))]
QKV = Kernel("nvjet_qkv", 0, 3)


@pytest.mark.parametrize(
    "name, kind",
    [
        ("void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64>>", FLASH_ATTENTION),
        ("void flash::flash_fwd_splitkv_combine_kernel<8>(Flash_fwd_params)", FLASH_ATTENTION),
        ("cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<X>>>", FLASH_ATTENTION),
        ("kernel_cutlass_flash_attncuteFlashAttentionForwardSm100_0", FLASH_ATTENTION),
        ("void flashinfer::BatchPrefillWithPagedKVCacheKernel<true>", FLASH_ATTENTION),
        ("fmhaSm100fKernel_QkvBfloat16", FLASH_ATTENTION),
        ("kernel_unified_attention_2d", FLASH_ATTENTION),
        ("vllm::unified_attention_with_output", FLASH_ATTENTION),
        ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>", OTHER),
        ("void flash::prepare_varlen_num_blocks_kernel<1, true>(int)", OTHER),
        ("vllm::unified_kv_cache_update", OTHER),
        ("nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT", GEMM),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", GEMM),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64", GEMM),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm>", GEMM),
        ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<X>>", GEMM),
        ("std::enable_if<true, void>::type internal::gemvx::kernel<int>", GEMM),
        ("triton_tem_fused_addmm_4", GEMM),
        ("aten::linear", GEMM),
        ("_C::onednn_mm", GEMM),
        ("void cublasLt::splitKreduce_kernel<32, 16, int>", GEMM_TAIL),
        ("triton_tem_fused_flex_attention_0", OTHER),
        ("triton_red_fused_add_mean_mul_pow_rsqrt_0", OTHER),
        ("void vllm::act_and_mul_kernel<__nv_bfloat16, &vllm::silu_kernel>", OTHER),
        ("aten::mul", OTHER),
        ("aten::sum", OTHER),
    ],
)
def test_names(name, kind):
    assert family(name) == kind


@pytest.mark.parametrize(
    "name, shapes, found",
    [
        ("mm", [(32, 64), (64, 200)], GATE_UP),
        ("linear", [(32, 64), (200, 64)], GATE_UP),
        ("_C::onednn_mm", [(32, 200), (32, 64)], GATE_UP),
        ("splitKreduce_kernel", [(32, 64), (64, 200)], GATE_UP),
        ("mm", [(64, 64), (64, 200)], GATE_UP),  # a chunk as long as the hidden size
        ("mm", [(32, 100), (100, 64)], OTHER),  # down
        ("mm", [(32, 64), (64, 64)], OTHER),  # output
        ("mm", [(1, 64), (64, 512)], OTHER),  # head
        ("mm", [(64, 200)], OTHER),
        ("act_and_mul_kernel", [(64, 200), (64, 64)], OTHER),
        ("mm", [], OTHER),
    ],
)
def test_gate_up_by_shape(name, shapes, found):
    assert by_shape([Kernel(name, 0, 1, tuple(shapes))], MODEL) == [found]


def test_gate_up_by_order_is_the_second_gemm_after_attention():
    tail = Kernel("splitKreduce_kernel", 0, 1)
    first, second = [*LAYER[:3], tail, *LAYER[3:]], LAYER
    found = by_order([QKV, *first, *second], layers=2)
    expected = [OTHER, FLASH_ATTENTION, OTHER, GATE_UP, GATE_UP, OTHER, OTHER]
    assert found == [*expected, FLASH_ATTENTION, OTHER, GATE_UP, OTHER, OTHER]


def test_attention_in_several_kernels_is_one_layer():
    pieces = [ATTENTION, Kernel("copy", 0, 1), ATTENTION, *LAYER[1:]]
    assert by_order([QKV, *pieces, *pieces], 2).count(GATE_UP) == 2


def test_the_head_may_come_after_the_last_layer_only():
    head = Kernel("gemvx::kernel", 0, 1)
    assert by_order([QKV, *LAYER, *LAYER, head, *LAYER], layers=2).count(GATE_UP) == 3
    with pytest.raises(ProfileError, match="5 GEMMs between attention 1 and 2, not 4"):
        by_order([QKV, *LAYER, head, *LAYER], layers=2)


@pytest.mark.parametrize(
    "kernels, layers, problem",
    [
        ([QKV, *LAYER[:-1], *LAYER], 2, "3 GEMMs between attention 1 and 2"),
        ([QKV, ATTENTION, LAYER[2], LAYER[1], *LAYER[3:]], 1, "is not the longest"),
    ],
)
def test_an_unknown_order_is_refused(kernels, layers, problem):
    with pytest.raises(ProfileError, match=problem) as error:
        by_order(kernels, layers)
    assert "\n" not in str(error.value)


def test_a_whole_prefill_has_one_gate_up_per_layer_and_chunk():
    kernels = [QKV, *LAYER, *LAYER]
    assert label(kernels, MODEL, chunks=1).count(GATE_UP) == 2
    with pytest.raises(ProfileError, match="2 gate-up projections, not 2 layers x 2 chunks"):
        label(kernels, MODEL, chunks=2)


def test_missing_attention_is_named():
    shaped = Kernel("nvjet", 0, 1, ((32, 64), (64, 200)))
    with pytest.raises(ProfileError, match="no attention kernel"):
        label([shaped, shaped], MODEL, chunks=1)


def test_times_are_summed_over_the_prompt_and_shared_by_the_layers():
    kernels = [Kernel("a", 10, 2), Kernel("b", 15, 4), Kernel("a", 20, 6)]
    times = per_layer_ms(kernels, [GATE_UP, FLASH_ATTENTION, GATE_UP], layers=2)
    assert times == {FLASH_ATTENTION: 2, GATE_UP: 4, OTHER: 0}
    assert span_ms(kernels) == 16
