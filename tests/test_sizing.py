"""KV capacity: what fits on a GPU, computed from the model's and the GPU's facts."""

import pytest

from ppas.config import ConfigError, experiments, load
from ppas.runs import enumerate_runs
from ppas.sizing import kv_blocks, kv_bytes_per_token, state_blocks

QWEN = "experiment=rtx5090_heterogeneous_qwen3_8_27b"
NEMOTRON = "experiment=rtx5090_heterogeneous_nemotron_30b"
LONGEST = "workload.prompt_tokens=[131072]"


def test_bytes_per_token_count_attention_layers_only():
    assert kv_bytes_per_token(load(["experiment=rtx5090_primary"])) == 2 * 36 * 2 * 128 * 2
    assert kv_bytes_per_token(load([QWEN])) == 2 * 16 * 4 * 256
    assert kv_bytes_per_token(load([NEMOTRON])) == 2 * 6 * 2 * 128 * 2


def test_recurrent_state_takes_blocks_of_its_own():
    assert state_blocks(load(["experiment=rtx5090_primary"])) == 0
    config = load([QWEN])
    held = state_blocks(config) * config.engine.block_size * kv_bytes_per_token(config)
    assert held == pytest.approx(config.model.state_mib * 2**20, rel=0.01)


def test_qwen_3_8_runs_out_of_memory_at_128k_and_nemotron_does_not():
    """Section 7.1: with a 16-bit cache; hence the 8-bit one on the paper's command line."""
    with pytest.raises(ConfigError, match=r"Qwen3\.8-27B-NVFP4 on RTX5090 has room for"):
        load([QWEN, LONGEST, "model.kv_bytes=2", "engine.max_model_len=null"])
    load([NEMOTRON, LONGEST])
    load([QWEN, "model.kv_bytes=2"])  # up to 64k, the lengths of the study


def test_a_larger_startup_budget_leaves_less_room():
    config = load([QWEN])
    sizes = [kv_blocks(config, config.schedulers[f"mbt_{mbt}"]) for mbt in (512, 2048, 8192)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


@pytest.mark.parametrize("name", experiments())
def test_every_experiment_holds_its_longest_request(name):
    config = load([f"experiment={name}"])
    longest = max(config.workload.prompt_tokens) + max(config.workload.output_tokens)
    for scheduler in config.schedulers.values():
        blocks = kv_blocks(config, scheduler) - state_blocks(config)
        assert blocks * config.engine.block_size >= longest


@pytest.mark.parametrize(
    "experiment, requests, first_ten_seeds", [(QWEN, 525, 488), (NEMOTRON, 1045, None)]
)
def test_matched_requests(experiment, requests, first_ten_seeds):
    """Section 7.2 counts 488 and 1,045; eleven seeds give Qwen3.8 525."""
    config = load([experiment])
    for slug in config.schedulers:
        runs = [run for run in enumerate_runs(config) if run.slug == slug]
        assert len(runs) == 6 * 11
        assert sum(len(run.trace) for run in runs) == requests
        if first_ten_seeds:
            assert sum(len(run.trace) for run in runs if run.seed < 10) == first_ten_seeds
