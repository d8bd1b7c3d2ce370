# Everything on a fresh machine: Python >= 3.11, make, nothing else.
#   make reproduce   every figure, table and claim
#   make test        the test suite
#   make bench       how long things take, and how much memory
#   make lock        refresh env/ after changing pyproject.toml (needs uv)
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CORES ?= 1
.DEFAULT_GOAL := help
.PHONY: help reproduce test bench lint lock clean

help:  ## show this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

# The stamp goes last: an interrupted installation starts over.
$(VENV)/.installed: env/cpu.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ppas needs Python 3.11 or newer; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r env/cpu.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

reproduce: $(VENV)/.installed  ## regenerate every figure, table and claim (about a minute)
	PATH="$(abspath $(BIN)):$$PATH" snakemake --cores $(CORES)
	@echo "Done: figures/, tables/ and the verdict on each claim in tables/claims.md"

test: $(VENV)/.installed  ## run the tests
	PATH="$(abspath $(BIN)):$$PATH" python -m pytest

bench: $(VENV)/.installed  ## time and memory of everything above, and simulator steps per second
	PATH="$(abspath $(BIN)):$$PATH" python -m tests.bench

lint: $(VENV)/.installed  ## formatting and style
	PATH="$(abspath $(BIN)):$$PATH" ruff check .
	PATH="$(abspath $(BIN)):$$PATH" ruff format --check .
	PATH="$(abspath $(BIN)):$$PATH" snakefmt --check Snakefile workflow
	PATH="$(abspath $(BIN)):$$PATH" snakemake --lint

lock:  ## pin the newest versions that pyproject.toml allows
	uv pip compile --quiet --universal --fork-strategy fewest --python-version 3.11 --extra dev \
	    --generate-hashes --no-header pyproject.toml --output-file env/cpu.lock
	$(PYTHON) env/conda.py

clean:  ## remove results and caches, keep the installation
	rm -rf results logs .snakemake
