"""A discrete-event simulator of one vLLM V1 engine, calibrated on published static rows.

Importing it sets up the compiler's cache: numba only watches the file that a cached function
stands in, so the cache folder is named after everything the engine compiles.
"""

import os
from pathlib import Path

from ppas.digest import code_digest

_PACKAGE = Path(__file__).parents[1]
COMPILED = [
    _PACKAGE / "policies.py",
    _PACKAGE / "simulator" / "cost_model.py",
    _PACKAGE / "simulator" / "engine.py",
]

if "NUMBA_CACHE_DIR" not in os.environ:
    os.environ["NUMBA_CACHE_DIR"] = str(
        Path(__file__).parent / "__pycache__" / f"numba-{code_digest(COMPILED)}"
    )
