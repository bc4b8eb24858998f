# Every target sets itself up: the first call makes .venv, later ones find it as it should be and go on at once.
#
#   PYTHON3=python3.12      the Python that .venv is made with, 3.11 or newer
#   PYTHON=/path/python     use this Python's torch, triton and numpy; install nothing and leave .venv alone

.DEFAULT_GOAL := help
.PHONY: help setup bench gate gate-emulated test test-slow lint clean

PYTHON3 ?= python3
# Only from the command line: a PYTHON that happens to be in the environment was not meant for us.
ifeq ($(origin PYTHON),command line)
  RUN := "$(PYTHON)"
else
  RUN := .venv/bin/python
endif

# As many at once as there are cores; what measures time is `alone`, after them.
PARALLEL := -n auto --maxprocesses 8 --dist worksteal

help: ## this list
	@awk -F ': .*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## the environment in .venv, at the tested versions
ifeq ($(origin PYTHON),command line)
	@$(RUN) scripts/check_python.py
else
	@"$(PYTHON3)" scripts/check_python.py
	@"$(PYTHON3)" scripts/install.py --venv .venv --editable bench test lint cuda
endif

bench: setup ## what works on this machine, measured quickly and drawn as a page
	@$(RUN) scripts/bench.py

gate: setup ## numeric gate on the CPU: every implementation against the float64 reference
	$(RUN) nvfp4bench.py gate --on cpu

gate-emulated: setup ## the same of kernels for GPUs, whose PTX the CPU executes
	$(RUN) nvfp4bench.py gate --on emulated:sm_120a --impl a4q,triton,triton-native,smem-unpack
	$(RUN) nvfp4bench.py gate --on emulated:sm_80 --impl a4q,triton
	$(RUN) nvfp4bench.py gate --on emulated:sm_90a --impl a4q

test: setup ## the tests that take seconds
	$(RUN) -m pytest -m "not slow and not alone" $(PARALLEL)
	$(RUN) -m pytest -m alone

test-slow: setup ## the tests that take minutes
	$(RUN) -m pytest -m slow $(PARALLEL)

lint: setup ## ruff and mypy
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

clean: ## remove what the other targets made, .venv too; results/ stays
	rm -rf .venv .asv build dist dashboard *.egg-info .benchmarks .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
