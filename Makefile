# make demo   see it work, end to end        make lint   format and static checks
# make test   all checks and tests           make build  the wheel, in dist/
# make docs   the documentation as a site     make matrix the nginx versions for the proofs
# make clean  remove what the others made     make pictures those of README.md, measured
# make advice   docs/copied-advice.md, measured anew as root
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUST_SOURCES := $(shell find probes/src -name '*.rs') probes/Cargo.toml probes/Cargo.lock
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
UNTESTED := $(abspath $(VENV))/.untested
# One more than CPUs: tests that start an nginx wait for it a quarter of their time.
SIDE_BY_SIDE := $(shell expr $$(nproc) + 1)
# Tests start Python thousands of times: what it compiled is kept, whatever the environment says,
# apart from the sources, whose trees some tests compare. It halves their time.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/.cache/pycache

.PHONY: demo test test-rust lint lint-python lint-rust build docs pictures advice clean pytest matrix

demo: $(READY)
	@tools/demo $(BIN)

# All is run, whatever failed before; the last lines say what was not tested on this machine.
test:
	@rm -f $(UNTESTED)
	@failed=0; \
	$(MAKE) --jobs=2 --keep-going --output-sync=target lint test-rust || failed=1; \
	$(MAKE) pytest || failed=1; \
	if [ -s $(UNTESTED) ]; then echo "Not tested on this machine, or not at the first try:"; cat $(UNTESTED); \
	else echo "Nothing was left untested on this machine."; fi; \
	exit $$failed

# What measures, takes devices or compares the host (`alone`) runs one by one, what mostly waits
# (`waiting`) four files at a time, the rest side by side. What needs more than Python has a second
# try, for a machine that others share may be too busy for the first; the last lines name who needed
# it.
pytest: $(READY_DEV)
	@failed=0; run() { echo "pytest $$*"; UNTESTED_FILE=$(UNTESTED) $(BIN)/pytest "$$@" $(PYTEST_ARGS) || failed=1; }; \
	run -m 'not alone and not waiting' --numprocesses=$(SIDE_BY_SIDE) --dist=worksteal --reruns=1; \
	run -m waiting --numprocesses=4 --dist=loadfile --no-loadscope-reorder --reruns=1; \
	run -m alone --durations=40 --reruns=1; \
	exit $$failed

# They wait for most of their time, so more run side by side than there are CPUs. MAKEFLAGS names a
# job server that make keeps from all but other makes.
test-rust: $(READY_DEV)
	@if ! command -v cargo >/dev/null; then echo "all Rust tests without cargo" | tee -a $(UNTESTED) >&2; \
	else cd probes && MAKEFLAGS= RUST_TEST_THREADS=$$(( 2 * $$(nproc) + 1 )) cargo test --profile checked --locked; fi

lint: lint-python lint-rust

lint-python: $(READY_DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/dead-code
	$(BIN)/deptry --no-ansi .

lint-rust: $(READY_DEV)
	@if cargo fmt --version >/dev/null 2>&1; then cd probes && cargo fmt --check; \
	else echo "format of the Rust code without rustfmt" | tee -a $(UNTESTED) >&2; fi
	@if cargo clippy --version >/dev/null 2>&1; then \
	cd probes && MAKEFLAGS= cargo clippy --all-targets --locked --profile checked -- -D warnings; \
	else echo "lint of the Rust code without clippy" | tee -a $(UNTESTED) >&2; fi

build: $(READY_DEV)
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

docs: $(READY_DEV)
	$(BIN)/python tools/build-site build/site
	@echo "build/site/index.html"

$(READY): pyproject.toml build_hook.py $(RUST_SOURCES)
	PYTHON=$(PYTHON) tools/prepare-system
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable .
	@touch $@

$(READY_DEV): pyproject.toml build_hook.py $(RUST_SOURCES)
	PYTHON=$(PYTHON) tools/prepare-system development
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev,docs]'
	@touch $(READY) $@

pictures: $(READY)
	$(BIN)/python tools/draw-pictures

advice: $(READY)
	$(BIN)/python benchmarks/copied_advice.py -o build/copied-advice --write

matrix:
	tools/nginx-matrix
	tools/nginx-matrix --modules

clean:
	rm -rf $(VENV) dist build demo nginx_tune/_bin probes/target .cache/pycache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
