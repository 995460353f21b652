# make demo   see it work, end to end        make lint   format and static checks
# make test   all checks and tests           make build  the wheel, in dist/
# make clean  remove what the others made     make matrix the nginx versions for the proofs
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUST_SOURCES := $(shell find probes/src -name '*.rs') probes/Cargo.toml probes/Cargo.lock
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
UNTESTED := $(abspath $(VENV))/.untested

.PHONY: demo test lint build clean pytest matrix

demo: $(READY)
	@tools/demo $(BIN)

# Its last lines say what was not tested on this machine.
test:
	@rm -f $(UNTESTED)
	$(MAKE) lint
	@if command -v cargo >/dev/null; then cd probes && cargo test --release --locked; \
	else echo "all Rust tests without cargo" | tee -a $(UNTESTED) >&2; fi
	$(MAKE) pytest
	@if [ -s $(UNTESTED) ]; then echo "Not tested on this machine:"; cat $(UNTESTED); \
	else echo "Nothing was left untested on this machine."; fi

# What measures, takes devices or compares the host (`alone`) runs one by one, what mostly waits
# (`paired`) two files at a time, the rest side by side.
pytest: $(READY_DEV)
	UNTESTED_FILE=$(UNTESTED) $(BIN)/pytest -m 'not alone and not paired' --numprocesses=auto --dist=worksteal $(PYTEST_ARGS)
	UNTESTED_FILE=$(UNTESTED) $(BIN)/pytest -m paired --numprocesses=2 --dist=loadfile $(PYTEST_ARGS)
	UNTESTED_FILE=$(UNTESTED) $(BIN)/pytest -m alone --durations=40 $(PYTEST_ARGS)

lint: $(READY_DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/dead-code
	$(BIN)/deptry --no-ansi .
	@if cargo fmt --version >/dev/null 2>&1; then cd probes && cargo fmt --check; \
	else echo "format of the Rust code without rustfmt" | tee -a $(UNTESTED) >&2; fi
	@if cargo clippy --version >/dev/null 2>&1; then \
	cd probes && cargo clippy --all-targets --locked --release -- -D warnings; \
	else echo "lint of the Rust code without clippy" | tee -a $(UNTESTED) >&2; fi

build: $(READY_DEV)
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

$(READY): pyproject.toml build_hook.py $(RUST_SOURCES)
	PYTHON=$(PYTHON) tools/prepare-system
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable .
	@touch $@

$(READY_DEV): pyproject.toml build_hook.py $(RUST_SOURCES)
	PYTHON=$(PYTHON) tools/prepare-system development
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $(READY) $@

matrix:
	tools/nginx-matrix
	tools/nginx-matrix --modules

clean:
	rm -rf $(VENV) dist build demo nginx_tune/_bin probes/target
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
