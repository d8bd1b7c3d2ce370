"""A bundle made here installs and runs where there is no network: ``make test-bundle``.

It downloads some 200 MB, so it is no part of ``make test``. Where the kernel allows it, the
installation runs in a network namespace of its own, in which nothing can be reached.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUNDLE = [sys.executable, str(ROOT / "env/bundle.py")]
UNSHARE = ["unshare", "--net", "--map-root-user"]
isolated = subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0
OFFLINE = UNSHARE if isolated else []


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A bundle without vLLM, carried to another place."""
    made = tmp_path_factory.mktemp("made") / "bundle"
    subprocess.run([*BUNDLE, str(made)], check=True)
    return shutil.move(made, tmp_path_factory.mktemp("host") / "bundle")


def run(*command: str, cwd: Path) -> str:
    env = {"HOME": str(cwd), "PATH": os.environ["PATH"], "PYTHON": sys.executable}
    done = subprocess.run([*OFFLINE, *command], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_bundle_installs_and_runs_without_a_network(bundle):
    run("sh", "install.sh", cwd=bundle)
    checkout = bundle / "ppas"
    assert "ppas" in run(".venv/bin/ppas", "--help", cwd=checkout)
    shown = run(
        ".venv/bin/ppas", "run", "experiment=rtx5090_primary", "scheduler=ppas", "seed=3",
        cwd=checkout,
    )  # fmt: skip
    assert shown.strip()
    output = run(
        "env", f"PATH={checkout}/.venv/bin:{os.environ['PATH']}",
        "snakemake", "--cores", "1", "simulate_rtx5090_primary_high_load",
        cwd=checkout,
    )  # fmt: skip
    assert (checkout / "results/simulated/rtx5090_primary_high_load/manifest.json").exists(), output


def test_what_is_no_bundle_is_not_deleted(tmp_path):
    (tmp_path / "precious").touch()
    done = subprocess.run([*BUNDLE, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == f"ppas: {tmp_path}: not a bundle; name a new folder with BUNDLE=\n"
    assert (tmp_path / "precious").exists()


def test_unknown_vllm_is_refused_before_anything_is_collected(tmp_path):
    done = subprocess.run(
        [*BUNDLE, "--vllm", "0.1", str(tmp_path / "new")], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "VLLM=0.1: no file env/vllm-0.1.lock; known: none, 0.22.1" in done.stderr
    assert not (tmp_path / "new").exists()
