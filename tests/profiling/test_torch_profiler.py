"""PyTorch's traces: a recorded one of the CPU, one of CUDA written by hand, and broken ones."""

import gzip
import json
import shutil

import pytest

from ppas.profiling import torch_profiler
from ppas.profiling.kernels import (
    GATE_UP,
    ProfileError,
    by_order,
    by_shape,
    label,
    per_layer_ms,
)

from .cases import DATA, RECORDED, make_model

ON_CPU, ON_CUDA = DATA / "cpu.pt.trace.json", DATA / "cuda.pt.trace.json"


def test_recorded_cpu_trace():
    trace = torch_profiler.read_trace(ON_CPU)
    assert trace.device == "cpu"
    # Per chunk two layers of attention and four GEMMs, and the head.
    assert len(trace.kernels) == 2 * (2 * 5 + 1)
    times = per_layer_ms(trace.kernels, label(trace.kernels, RECORDED, chunks=2), layers=2)
    recorded = [event for event in json.loads(ON_CPU.read_text())["traceEvents"]]
    attention = sum(
        e["dur"] for e in recorded if e["name"] == "vllm::unified_attention_with_output"
    )
    wide = sum(e["dur"] for e in recorded if [2048, 256] in e["args"].get("Input Dims", []))
    assert times["flash_attention"] == pytest.approx(attention / 1000 / 2)
    assert times["gate_up"] == pytest.approx(wide / 1000 / 2)


def test_both_rules_agree_on_a_recorded_prefill():
    kernels = torch_profiler.read_trace(ON_CPU).kernels
    without_shapes = [kernel._replace(shapes=()) for kernel in kernels]
    assert by_order(without_shapes, RECORDED.layers) == by_shape(kernels, RECORDED)
    assert by_shape(kernels, RECORDED).count(GATE_UP) == 4


def test_kernels_take_the_shapes_of_the_ops_that_launched_them():
    trace = torch_profiler.read_trace(ON_CUDA)
    assert trace.device == "cuda"
    times = per_layer_ms(trace.kernels, label(trace.kernels, make_model(), chunks=1), layers=2)
    # The tail of a GEMM counts, its activation of the same shape does not.
    assert times == pytest.approx({"flash_attention": 0.6, "gate_up": 1.025, "other": 1.1075})


def test_without_shapes_the_order_tells(tmp_path):
    trace = json.loads(ON_CUDA.read_text())
    for event in trace["traceEvents"]:
        event["args"].pop("Input Dims", None)
    path = tmp_path / "plain.pt.trace.json"
    path.write_text(json.dumps(trace))
    kernels = torch_profiler.read_trace(path).kernels
    assert not any(kernel.shapes for kernel in kernels)
    with_shapes = torch_profiler.read_trace(ON_CUDA).kernels
    assert label(kernels, make_model(), 1) == label(with_shapes, make_model(), 1)


def test_a_gzipped_trace_reads_the_same(tmp_path):
    path = tmp_path / "rank0.pt.trace.json.gz"
    path.write_bytes(gzip.compress(ON_CPU.read_bytes()))
    assert torch_profiler.find_trace(tmp_path) == path
    assert torch_profiler.read_trace(path) == torch_profiler.read_trace(ON_CPU)


@pytest.mark.parametrize(
    "text, problem",
    [
        ("", "not a Chrome trace"),
        ("{", "not a Chrome trace"),
        ("[]", "not a Chrome trace"),
        ('{"traceEvents": []}', "no events; was the prefill profiled"),
        ('{"traceEvents": [{"ph": "M", "name": "process_name"}]}', "neither GPU kernels nor"),
        ('{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "nvjet"}]}', "without 'args'"),
    ],
)
def test_a_bad_trace_is_named(tmp_path, text, problem):
    path = tmp_path / "bad.pt.trace.json"
    path.write_text(text)
    with pytest.raises(ProfileError, match=f"bad.pt.trace.json: .*{problem}") as error:
        torch_profiler.read_trace(path)
    assert "\n" not in str(error.value)


def test_a_cut_gzip_is_named(tmp_path):
    path = tmp_path / "cut.pt.trace.json.gz"
    path.write_bytes(gzip.compress(ON_CPU.read_bytes())[:500])
    with pytest.raises(ProfileError, match="not a Chrome trace"):
        torch_profiler.read_trace(path)


@pytest.mark.parametrize("names", [(), ("rank0.pt.trace.json", "rank1.pt.trace.json")])
def test_there_must_be_one_trace(tmp_path, names):
    for name in names:
        shutil.copy(ON_CPU, tmp_path / name)
    with pytest.raises(ProfileError, match=f"{len(names)} files .*, not one"):
        torch_profiler.find_trace(tmp_path)
