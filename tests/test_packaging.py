"""The lock, the conda environment and the package name the same versions."""

import importlib.util
from importlib.metadata import version
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("conda", ROOT / "env" / "conda.py")
conda = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(conda)


def test_conda_environment_matches_the_lock():
    text = (ROOT / "environment.yml").read_text()
    assert text == conda.environment((ROOT / "env/cpu.lock").read_text()), "run `make lock`"
    pip = yaml.safe_load(text)["dependencies"][-1]["pip"]
    assert f"snakemake=={version('snakemake')}" in pip


def test_every_locked_package_has_hashes():
    lock = (ROOT / "env/cpu.lock").read_text()
    packages = conda.requirements(lock)
    assert len(packages) > 50
    assert lock.count("--hash=sha256:") >= len(packages)
