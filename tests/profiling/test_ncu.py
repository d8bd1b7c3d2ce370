"""Nsight Compute's export: the gate-up projection's counters, or one line that says why not."""

import re
from pathlib import Path

import pytest

from ppas.profiling import ncu
from ppas.profiling.kernels import ProfileError

from .cases import DATA

RAW = DATA / "ncu_raw.csv"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"


def edited(tmp_path, old: str, new: str) -> Path:
    path = tmp_path / "edited.csv"
    text = RAW.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def test_counters_are_means_over_gate_up_weighted_by_time():
    found = ncu.read_counters(RAW, layers=36)
    # Two projections of 1 and 3 ms: 44 and 40%, 92 and 90%, 8 and 10%.
    assert found["sm_pct"].value == pytest.approx(41)
    assert found["l2_hit_pct"].value == pytest.approx(90.5)
    assert found["dram_pct"].value == pytest.approx(9.5)
    assert found["sm_pct"].std == pytest.approx(8**0.5)


def test_dram_may_be_counted_elsewhere(tmp_path):
    path = edited(tmp_path, DRAM, "dram__throughput.avg.pct_of_peak_sustained_elapsed")
    assert ncu.read_counters(path, 36) == ncu.read_counters(RAW, 36)


@pytest.mark.parametrize(
    "old, new, problem",
    [
        (DRAM, "gone", "no counter gpu__dram_throughput.* or dram__throughput"),
        ('"44.0"', '"n/a"', "sm__throughput.*: 'n/a' is not a number"),
        ('"%","ns"', '"%","fortnight"', "gpu__time_duration.sum: unknown unit 'fortnight'"),
        ('"ID"', '"Nr"', "no column ID"),
        ("Flash", "Flush", "no gate-up projection among 13 kernels"),
    ],
)
def test_a_bad_export_is_named(tmp_path, old, new, problem):
    with pytest.raises(ProfileError, match=f"edited.csv: .*{problem}") as error:
        ncu.read_counters(edited(tmp_path, old, new), 36)
    assert "\n" not in str(error.value)


def test_refused_counters_leave_no_table(tmp_path):
    path = tmp_path / "raw.csv"
    path.write_text("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n")
    with pytest.raises(ProfileError, match=r"raw\.csv: no table with the columns ID"):
        ncu.read_counters(path, 36)


def test_the_command_counts_what_the_order_rule_needs():
    command = ncu.capture_command(Path("prefill.ncu-rep"), ["python"])
    assert command[-1] == "python"
    assert command[command.index("--profile-from-start") + 1] == "off"
    pattern = command[command.index("--kernel-name") + 1].removeprefix("regex:")
    for name in ("nvjet_tst", "flash::FlashAttnFwdSm90", "ampere_bf16_s16816gemm"):
        assert re.search(pattern, name)
    for name in ("triton_red_fused_add", "vllm::reshape_and_cache_flash_kernel"):
        assert not re.search(pattern, name)
    export = ncu.export_command(Path("prefill.ncu-rep"))
    assert export[export.index("--page") + 1] == "raw"
