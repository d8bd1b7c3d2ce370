"""Write ``environment.yml`` from ``env/cpu.lock``, so that conda users get the same versions.

Run by ``make lock``; a test fails when the two differ.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEADER = """\
# For conda users: conda env create -f environment.yml && conda activate ppas
# and, for the `ppas` command outside of Snakemake: pip install --no-deps -e .
# Generated from env/cpu.lock by env/conda.py (make lock); edit pyproject.toml instead.
name: ppas
channels:
  - conda-forge
dependencies:
  - python=3.11
  - pip
  - pip:
"""


def requirements(lock: str) -> list[str]:
    """``name==version`` lines of a lock file with their markers, without hashes."""
    pins = re.findall(r"^([a-z0-9][^\s;]*==[^\s;\\]+)( ; [^\\\n]+)?", lock, re.MULTILINE)
    return [pin + marker.rstrip() for pin, marker in pins]


def environment(lock: str) -> str:
    """The text of ``environment.yml``."""
    lines = [f'      - "{pin}"' for pin in requirements(lock)]
    return HEADER + "\n".join(lines) + "\n"


if __name__ == "__main__":
    lock_text = (ROOT / "env/cpu.lock").read_text()
    (ROOT / "environment.yml").write_text(environment(lock_text))
