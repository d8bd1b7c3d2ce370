"""A discrete-event simulator of one vLLM V1 engine, calibrated on published static rows.

Importing it sets up the compiler's cache. Numba watches only the file that a cached function
stands in, and versions of it drop each other's work: the cache folder is therefore named after
numba's version and everything that the engine compiles.
"""

import os
from importlib.metadata import version
from pathlib import Path

from ppas.digest import code_digest

_PACKAGE = Path(__file__).parents[1]
COMPILED = [
    _PACKAGE / "policies.py",
    _PACKAGE / "work.py",
    _PACKAGE / "simulator" / "cost_model.py",
    _PACKAGE / "simulator" / "engine.py",
]

if "NUMBA_CACHE_DIR" not in os.environ:
    name = f"numba-{version('numba')}-{code_digest(COMPILED)}"
    os.environ["NUMBA_CACHE_DIR"] = str(Path(__file__).parent / "__pycache__" / name)
