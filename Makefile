# Everything happens in an environment of its own, .venv, made on first use from pyproject.toml.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test test-storage test-net test-soak test-lowest fuzz soak lint bench bench-net notebooks docs dist clean

help:
	@echo "make demo         run the whole pipeline on a generated data set"
	@echo "make test         linters, types and tests"
	@echo "make test-storage the tests on real storage servers, HDFS among them (fetches 250 MB, once; HDFS needs java)"
	@echo "make test-net     the tests on hosts that are network namespaces, with slow and cut links (needs root and iproute2)"
	@echo "make test-soak    a minute of make soak"
	@echo "make test-lowest  the tests with the oldest dependencies that pyproject.toml allows"
	@echo "make fuzz         spoiled files and texts by the thousand, in batches; COUNT=N (100000) and SEED=S (0) choose how many and which"
	@echo "make soak         a cluster at work is disturbed, and every result compared; MINUTES=M (30) and SEED=S (0)"
	@echo "make notebooks    execute the notebooks and write them back with their outputs"
	@echo "make docs         build the documentation into site/; warnings and dead links are errors"
	@echo "make dist         build wheel and sdist into dist/, check them, install the wheel elsewhere and fit a model with it"
	@echo "make bench        the benchmarks, against other solvers too; DATA=DIR takes real data from a folder,"
	@echo "                  LIMIT=S gives each solver S seconds on a data set (300 by default)"
	@echo "make bench-net    what a fit sends over a network of 1 Gbit/s, and how long that takes (needs root and iproute2)"

# What a user installs.
$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# And what tests, notebooks and benchmarks need besides.
$(VENV)/installed: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench,notebooks]'
	@touch $@

demo: $(VENV)/ready
	$(BIN)/python -m pipeline.demo demo

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# In two processes, file by file, in the order of tests/conftest.py.
test: lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

# A second S3 server, and HDFS; without Hadoop or java the tests on HDFS skip and say so.
$(VENV)/storage: $(VENV)/installed tests/services/install_hdfs.py
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[storage-tests]'
	@$(BIN)/python -m tests.services.install_hdfs && touch $@ || echo "Hadoop cannot be fetched: the tests on HDFS will skip"

test-storage: $(VENV)/storage
	$(BIN)/python -m pytest -m storage

# Without root, ip and tc they skip and say so.
test-net: $(VENV)/installed
	$(BIN)/python -m pytest -m net tests/net

test-soak: $(VENV)/installed
	$(BIN)/python -m benchmarks.soak --minutes 1 --seed 1

.venv-lowest/installed: pyproject.toml
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) tests/lowest_versions.py > .venv-lowest/constraints.txt
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check --constraint .venv-lowest/constraints.txt \
		--editable . pytest pytest-timeout hypothesis
	@touch $@

test-lowest: .venv-lowest/installed
	NUMBA_CACHE_DIR=.venv-lowest/numba .venv-lowest/bin/python -m pytest

fuzz: $(VENV)/installed
	$(BIN)/python -m tests.fuzz.run --count $(or $(COUNT),100000) --seed $(or $(SEED),0) --jobs $(or $(JOBS),1)
	$(BIN)/python -m tests.fuzz.parser --cases $(or $(COUNT),100000) --seed $(or $(SEED),0)
	$(BIN)/python -m tests.fuzz.parser --cases $(or $(COUNT),100000) --seed $(or $(SEED),0) --bounds-check

soak: $(VENV)/installed
	$(BIN)/python -m benchmarks.soak --minutes $(or $(MINUTES),30) --seed $(or $(SEED),0)

# With DATA=DIR, on the real data in it (NAME.train.svm), else on look-alikes.
bench: $(VENV)/installed
	$(BIN)/python -m benchmarks.compare $(if $(DATA),--data $(DATA)) $(if $(LIMIT),--limit $(LIMIT))
	$(BIN)/python -m benchmarks.bench_workers $(if $(DATA),--data $(DATA))
	$(BIN)/python -m benchmarks.bench_single $(if $(DATA),--data $(DATA))
	$(BIN)/python -m benchmarks.bench_scaling
	$(BIN)/python -m benchmarks.bench_convert --memory $(if $(DATA),--data $(DATA))
	$(BIN)/python -m benchmarks.bench_kernel
	$(BIN)/python -m benchmarks.bench_startup
	$(BIN)/python -m benchmarks.bench_round
	$(BIN)/python -m benchmarks.paper $(if $(DATA),--data $(DATA))
	$(BIN)/python -m benchmarks.bench_stream

# Hosts are network namespaces; without root, ip and tc it says what is missing. EXAMPLES=N (5000000) for a quicker look.
bench-net: $(VENV)/installed
	$(BIN)/python -m benchmarks.bench_net $(if $(EXAMPLES),--examples $(EXAMPLES))

notebooks: $(VENV)/installed
	$(BIN)/python notebooks/execute.py

$(VENV)/docs: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

docs: $(VENV)/docs
	$(BIN)/python docs/site.py gather build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python docs/site.py check site
	@echo "the documentation is in site/index.html"

$(VENV)/release: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[release]'
	@touch $@

dist: $(VENV)/release
	rm -rf build dist
	$(BIN)/python -m build --outdir dist . > /dev/null
	$(BIN)/twine check --strict dist/*
	$(BIN)/python tests/check_dist.py dist

clean:
	rm -rf $(VENV) .venv-lowest demo build dist site *.egg-info benchmarks/.envs benchmarks/.problems
