"""Nsight Systems' exports: every kernel, in order, or one line that says what is wrong."""

from pathlib import Path

import pytest

from ppas.profiling import nsys
from ppas.profiling.kernels import ProfileError, label, per_layer_ms, span_ms

from .cases import DATA, make_model

TRACE, SUMS = DATA / "nsys_cuda_gpu_trace.csv", DATA / "nsys_cuda_gpu_kern_sum.csv"
HEADER = TRACE.read_text().splitlines()[0]


def test_kernels_of_a_prefill_in_two_chunks():
    kernels = nsys.read_kernels(TRACE, SUMS)
    assert not any("memcpy" in kernel.name for kernel in kernels)
    times = per_layer_ms(kernels, label(kernels, make_model(), chunks=2), layers=2)
    # Attention and its combination of parts: 0.6 and 0.9 ms, once 10 us longer, and 30 us each.
    assert times["flash_attention"] == pytest.approx(0.6 + 0.9 + 0.01 + 2 * 0.03)
    assert times["gate_up"] == pytest.approx(2 * 1.0)
    assert sum(times.values()) * 2 == pytest.approx(sum(nsys.read_sums(SUMS).values()))
    assert span_ms(kernels) == pytest.approx(sum(times.values()) * 2 + 0.002 * (len(kernels) - 1))


def test_rows_may_come_in_any_order_after_remarks(tmp_path):
    header, *rows = TRACE.read_text().splitlines()
    shuffled = tmp_path / "trace.csv"
    shuffled.write_text(
        "\n".join(["Processing [x.sqlite] with [trace.py]...", "", header, *rows[::-1]])
    )
    assert nsys.read_trace(shuffled) == nsys.read_trace(TRACE)


def test_sums_by_name():
    sums = nsys.read_sums(SUMS)
    (name,) = [name for name in sums if name.startswith("ampere")]
    assert sums[name] == pytest.approx(4 * (0.3 + 1.0))


def test_a_kernel_missing_from_the_trace_is_noticed(tmp_path):
    part = tmp_path / "part.csv"
    part.write_text("\n".join(TRACE.read_text().splitlines()[:-5]))
    with pytest.raises(ProfileError, match=r"part.csv: kernels of .* ms, but .*export again"):
        nsys.read_kernels(part, SUMS)


@pytest.mark.parametrize("read", [nsys.read_trace, nsys.read_sums])
@pytest.mark.parametrize("text", ["", "\n", "SKIPPED: x.sqlite does not contain CUDA data.\n"])
def test_an_empty_export_is_named(tmp_path, read, text):
    path = tmp_path / "empty.csv"
    path.write_text(text)
    with pytest.raises(ProfileError, match=r"empty.csv: no table with the columns") as error:
        read(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "rows, problem",
    [
        ([], "no kernels; was the prefill profiled"),
        (["1,2,3" + "," * 18], "no kernels, only memory operations"),
        (["1,soon,3,1" + "," * 16 + ",kernel"], r"Duration \(ns\): 'soon' is not a number"),
    ],
)
def test_a_bad_trace_is_named(tmp_path, rows, problem):
    path = tmp_path / "bad.csv"
    path.write_text("\n".join([HEADER, *rows]))
    with pytest.raises(ProfileError, match=f"bad.csv: {problem}"):
        nsys.read_trace(path)


def test_a_missing_export_is_named(tmp_path):
    with pytest.raises(ProfileError, match=r"none\.csv: No such file or directory"):
        nsys.read_trace(tmp_path / "none.csv")


def test_commands_record_one_prefill_and_export_what_is_read():
    report = Path("out/prefill.nsys-rep")
    command = nsys.capture_command(report, ["python", "-m", "x"])
    assert command[-3:] == ["python", "-m", "x"]
    assert {"--capture-range=cudaProfilerApi", "--output=out/prefill"} <= set(command)
    assert "--report=cuda_gpu_trace,cuda_gpu_kern_sum" in nsys.stats_command(report)
    assert [p.name for p in nsys.exports(report)] == [
        "prefill_cuda_gpu_trace.csv",
        "prefill_cuda_gpu_kern_sum.csv",
    ]
