# Everything happens in an environment of its own, .venv, made on first use from pyproject.toml.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test test-lowest lint bench clean

help:
	@echo "make demo         run the whole pipeline on a generated data set"
	@echo "make test         linters, types and tests"
	@echo "make test-lowest  the tests with the oldest dependencies that pyproject.toml allows"
	@echo "make bench        the benchmarks, with the tables that docs/ shows"

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	@touch $@

demo: $(VENV)/installed
	$(BIN)/python -m pipeline.demo demo

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest

.venv-lowest/installed: pyproject.toml
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) tests/lowest_versions.py > .venv-lowest/constraints.txt
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check --constraint .venv-lowest/constraints.txt \
		--editable . pytest pytest-timeout hypothesis
	@touch $@

test-lowest: .venv-lowest/installed
	NUMBA_CACHE_DIR=.venv-lowest/numba .venv-lowest/bin/python -m pytest

bench: $(VENV)/installed
	$(BIN)/python -m benchmarks.bench_convert --memory
	$(BIN)/python -m benchmarks.bench_kernel
	$(BIN)/python -m benchmarks.bench_round
	$(BIN)/python -m benchmarks.bench_paper
	$(BIN)/python -m benchmarks.bench_stream

clean:
	rm -rf $(VENV) .venv-lowest demo build *.egg-info
