"""`ppas profile` with stand-ins for vLLM and NVIDIA's tools that leave prepared exports."""

import os
import sys
from pathlib import Path

import pytest
import yaml

from ppas import cli
from ppas.profiling import command
from ppas.profiling.rows import read_rows

from .cases import DATA, RECORDED, make_model

GPU = "NVIDIA GeForce RTX 5090"
PREFILL = """
out = pathlib.Path(argument("--out"))
result = {"seconds": [0.2, 0.4], "device": os.environ["DEVICE"], "vllm": "0.33.0",
          "prompt_tokens": int(argument("--prompt-tokens"))}
(out / "prefill.json").write_text(json.dumps(result))
if argument("--record") == "torch":
    shutil.copy(os.environ["TRACE"], out)
"""
NSYS = """
base = next(a for a in sys.argv if a.startswith("--output=")).removeprefix("--output=")
if sys.argv[1] == "profile":
    run_target()
else:
    for kind in ("cuda_gpu_trace", "cuda_gpu_kern_sum"):
        shutil.copy(f"{DATA}/nsys_{kind}.csv", f"{base}_{kind}.csv")
"""
NCU = """
if "--import" in sys.argv:
    print(pathlib.Path(f"{DATA}/ncu_raw.csv").read_text())
else:
    run_target()
"""
COMMON = f"""#!{sys.executable}
import json, os, pathlib, shutil, subprocess, sys
DATA = {str(DATA)!r}
def argument(name):
    return sys.argv[sys.argv.index(name) + 1]
def run_target():
    at = next(k for k, word in enumerate(sys.argv) if word.endswith("/vllm-python"))
    subprocess.run(sys.argv[at:], check=True)
"""


@pytest.fixture
def host(tmp_path, monkeypatch) -> Path:
    """A GPU host without NVIDIA's tools; returns the folder of its programs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    install(programs, "vllm-python", PREFILL)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("DEVICE", GPU)
    monkeypatch.setenv("TRACE", str(DATA / "cuda.pt.trace.json"))
    for group, name, values in [
        ("model", "mine", vars(make_model())),
        ("model", "tiny", vars(RECORDED)),
        ("model", "experts", vars(make_model()) | {"experts": 8}),
        ("hardware", "rtx5090", hardware("RTX5090")),
        ("hardware", "h100_sxm", hardware("H100-SXM")),
        ("hardware", "cpu", hardware("CPU")),
        ("scheduler", "mbt_8k", scheduler("MBT 8k", 8192, {"kind": "static"})),
        ("scheduler", "mbt_16k", scheduler("MBT 16k", 16384, {"kind": "static"})),
        ("scheduler", "ppas", scheduler("P-PAS", 16384, {"kind": "ppas", "b_cap": 2048})),
    ]:
        path = tmp_path / "conf" / group / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(values))
    monkeypatch.setattr(command, "CONF", tmp_path / "conf")
    monkeypatch.setattr(command, "ROOT", tmp_path)
    return programs


def install(programs: Path, name: str, code: str) -> None:
    (programs / name).write_text(COMMON + code)
    (programs / name).chmod(0o755)


DEVICES = {"RTX5090": "RTX 5090", "H100-SXM": "H100 80GB", "A100-SXM": "A100-SXM4", "CPU": ""}


def hardware(name: str) -> dict:
    rates = dict.fromkeys(("memory_gib", "memory_bandwidth_gb_s", "dense_bf16_tflop_s"), 1)
    return {"name": name, "device": DEVICES[name], **rates}


def scheduler(name: str, budget: int, policy: dict) -> dict:
    return {"name": name, "max_num_batched_tokens": budget, "policy": policy}


def profile(programs: Path, what: str, *words: str, **changed: str) -> None:
    chosen = {"model": "mine", "hardware": "rtx5090", "scheduler": "mbt_16k"} | changed
    options = [word for key, value in chosen.items() for word in (f"--{key}", value)]
    cli.main(["profile", what, *options, "--vllm-python", str(programs / "vllm-python"), *words])


def rows(programs: Path) -> dict[str, tuple[float, str]]:
    found = read_rows(programs.parent / "results")
    return {row.metric: (row.value, row.tool) for row in found.itertuples()}


def test_without_nvidias_tools_pytorch_times_the_kernels(host, capsys):
    profile(host, "times")
    assert rows(host) == {
        "prefill_ms": (pytest.approx(300), "clock"),
        "wall_ms": (pytest.approx(300), "clock"),
        "flash_attention_ms": (pytest.approx(0.6), "torch"),
        "gate_up_ms": (pytest.approx(1.025), "torch"),
        "other_ms": (pytest.approx(1.1075), "torch"),
    }
    found = read_rows(host.parent / "results")
    assert set(found["device"]) == {GPU}
    assert set(found["scheduler"]) == {"MBT 16k"}
    out = capsys.readouterr().out
    assert "results/measured/rtx5090/profiles/mine_mbt_16k_times.csv" in out


def test_nsight_systems_is_preferred_where_it_is_installed(host):
    install(host, "nsys", NSYS)
    profile(host, "times", scheduler="mbt_8k")
    found = rows(host)
    assert found["gate_up_ms"] == (pytest.approx(2.0), "nsys")
    assert found["prefill_ms"][1] == "nsys"
    assert found["wall_ms"] == (pytest.approx(300), "clock")
    profile(host, "times", "--tool", "torch")
    assert (host.parent / "results/measured/rtx5090/profiles/raw/mine_mbt_16k_times").is_dir()


def test_nsight_compute_counts(host):
    install(host, "ncu", NCU)
    profile(host, "counters")
    assert {key: value for key, (value, tool) in rows(host).items() if tool == "ncu"} == {
        "sm_pct": pytest.approx(41),
        "l2_hit_pct": pytest.approx(90.5),
        "dram_pct": pytest.approx(9.5),
    }


def test_a_cpu_profile_says_so(host, monkeypatch):
    monkeypatch.setenv("DEVICE", "cpu")
    monkeypatch.setenv("TRACE", str(DATA / "cpu.pt.trace.json"))
    profile(host, "times", "--prompt-tokens", "32768", model="tiny", hardware="cpu")
    found = read_rows(host.parent / "results")
    assert set(found["device"]) == {"cpu"}
    assert set(found["hardware"]) == {"CPU"}


@pytest.mark.parametrize(
    "words, changed, problem",
    [
        ((), {"hardware": "h100_sxm"}, f"vLLM ran on {GPU}, which is not the H100-SXM"),
        (("--tool", "nsys"), {}, "nsys: not found"),
        ((), {"scheduler": "mbt_8k"}, "2 gate-up projections, not 2 layers x 2 chunks"),
        ((), {"scheduler": "ppas"}, "conf/scheduler/ppas.yaml: policy.kind"),
        ((), {"model": "experts"}, "conf/model/experts.yaml: experts"),
        ((), {"model": "none"}, "conf/model: no file none.yaml; available: experts, mine, tiny"),
    ],
)
def test_what_cannot_be_profiled_ends_in_one_line(host, capsys, words, changed, problem):
    with pytest.raises(SystemExit) as end:
        profile(host, "times", *words, **changed)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 1
    assert read_rows(host.parent / "results").empty


def test_a_trace_without_kernels_is_not_taken_for_the_gpus(host, monkeypatch, capsys):
    monkeypatch.setenv("TRACE", str(DATA / "cpu.pt.trace.json"))
    with pytest.raises(SystemExit):
        profile(host, "times", "--prompt-tokens", "32768", model="tiny")
    assert f"no GPU kernels, though vLLM ran on {GPU}" in capsys.readouterr().err


def test_an_earlier_profile_is_not_taken_for_a_failed_one(host, capsys):
    profile(host, "times")
    install(host, "vllm-python", "sys.exit(3)")
    with pytest.raises(SystemExit):
        profile(host, "times")
    assert "vllm-python: exit status 3; its output is above" in capsys.readouterr().err


def test_counters_need_nsight_compute(host, capsys):
    with pytest.raises(SystemExit):
        profile(host, "counters")
    assert "ncu: not found; install it" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, device, same",
    [
        ("RTX5090", GPU, True),
        ("H100-SXM", "NVIDIA H100 80GB HBM3", True),
        ("A100-SXM", "NVIDIA A100-SXM4-80GB", True),
        ("CPU", "cpu", True),
        ("H100-SXM", "NVIDIA H200", False),
        ("RTX5090", "cpu", False),
    ],
)
def test_hardware_is_known_by_its_name(name, device, same):
    named = command.HardwareConfig(**hardware(name))
    if same:
        command.require_hardware(named, device, "mine")
    else:
        with pytest.raises(command.ProfileError, match="give the hardware of this host"):
            command.require_hardware(named, device, "mine")
