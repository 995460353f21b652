# make demo      see it work, end to end        make lint   format and static checks
# make test      the gate: all that a merge needs
# make check     lint, types and the tests that compute for less than half a second: while you write
# make test-all  every version, sandbox part and ending, with a fresh seed: before a release
# make docs      the documentation as a site    make build     the wheel, in dist/
# make advice    docs/copied-advice.md, measured anew as root
# make sites     docs/sites.md: every command on every ordinary site, an hour at most, as root
# make pictures  those of the docs               make clean     remove what the others made
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUST_SOURCES := $(shell find probes/src -name '*.rs') probes/Cargo.toml probes/Cargo.lock
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
READY_ALL := $(VENV)/.ready-all
LOWEST := $(VENV)-lowest
# uv fetches a Python that it does not find, and finds none of pyenv's that is not chosen.
LOWEST_PYTHON ?= $(or $(lastword $(wildcard $(HOME)/.pyenv/versions/3.10.*/bin/python3.10)),3.10)
UNTESTED := $(abspath $(VENV))/.untested
# Tests that start an nginx wait for it half of their time, so twice as many run as there are CPUs,
# each in a process with a network and process numbers of its own.
WORKERS := $(shell expr 2 '*' $$(nproc))
SIDE_BY_SIDE := -m 'not alone' --dist=worksteal --tx '$(WORKERS)*popen//python=tests/own-namespaces $(BIN)/python'
# Tests start Python many times, in sandboxes too, and never compile twice what was compiled.
unexport PYTHONDONTWRITEBYTECODE
# uv believes only the authorities that it brings along; a company's own are the system's, as for pip.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt),)
export UV_NATIVE_TLS := true
endif
UV_INSTALL := $(BIN)/uv pip install --quiet --python $(BIN)/python
COMPILE := $(BIN)/python -m compileall -q -j 0 nginx_tune
BUILD_AHEAD := { ! command -v cargo >/dev/null || \
	(cd probes && MAKEFLAGS= cargo test --quiet --no-run --profile checked --locked || true); }

.PHONY: demo test test-all check test-rust lint lint-python lint-rust build docs pictures advice sites clean
.PHONY: computing other-nginx all-nginx collected

demo: $(READY)
	@tools/demo $(BIN)

# All is run, whatever failed before; the last lines say what was not tested on this machine. Lint
# computes while tests wait, and has ended before those that nothing else may run beside.
test: $(READY_DEV)
	@rm -f $(UNTESTED)
	@failed=0; \
	nice $(MAKE) --output-sync=target lint & lint=$$!; trap "kill $$! 2>/dev/null" EXIT; \
	$(MAKE) --jobs=3 --keep-going --output-sync=target test-rust other-nginx collected || failed=1; \
	$(call side-by-side,tests); wait $$lint || failed=1; $(call alone,tests); \
	$(TELL_UNTESTED); exit $$failed

# Most run side by side; what compares what the host has, or times (`alone`), one by one: of the
# files that have such tests, since to read all takes ten seconds. Status 5 is no test at all.
pytest = { echo "pytest" $(1); UNTESTED_FILE=$(UNTESTED) $(BIN)/pytest $(1) $(PYTEST_ARGS) --durations=20 \
	|| [ $$? = 5 ] || failed=1; }
side-by-side = $(call pytest,$(1) $(SIDE_BY_SIDE))
alone = files=$$(grep -rl --include='test_*.py' 'mark[.]alone' $(patsubst --ignore=tests/%,--exclude-dir=%,$(1)) | sort); \
	[ -z "$$files" ] || $(call pytest,$$files -m alone)

TELL_UNTESTED = if [ -s $(UNTESTED) ]; then echo "Not tested on this machine:"; cat $(UNTESTED); \
	else echo "Nothing was left untested on this machine."; fi

check: $(READY_DEV)
	@$(MAKE) --jobs=2 --output-sync=target lint-python computing

computing: $(READY_DEV)
	@$(BIN)/pytest -q -m 'not needs and not alone and not long' --numprocesses=$$(nproc) --dist=worksteal

# In parts that can be run apart: make test-all-sandbox SEED=1234. What a fresh seed finds becomes a
# fixed case of the gate.
PARTS := test-all-rust test-all-lowest test-all-probe test-all-labs test-all-sandbox test-all-rest
.PHONY: $(PARTS)
test-all-probe: TESTS := tests/probe tests/load
test-all-labs: TESTS := tests/lab tests/experiment tests/scenario tests/validate tests/rehearse tests/window
test-all-sandbox: TESTS := tests/sandbox_parts tests/sandbox
test-all-rest: TESTS := tests $(patsubst %,--ignore=%,tests/probe tests/load tests/lab tests/experiment \
	tests/scenario tests/validate tests/rehearse tests/window tests/sandbox_parts tests/sandbox)

test-all:
	@rm -f $(UNTESTED)
	@failed=0; export SEED=$${SEED:-$$(shuf -n 1 -i 1-999999)}; \
	for part in lint $(PARTS); do $(MAKE) $$part || failed=1; done; \
	echo "SEED=$$SEED make test-all"; $(TELL_UNTESTED); exit $$failed

# Each reader of strangers' bytes is fuzzed for a minute (NGINX_TUNE_FUZZ_SECONDS), here and in tests/fuzzing.py.
test-all-rust:
	@export SEED=$${SEED:-$$(shuf -n 1 -i 1-999999)} NGINX_TUNE_FUZZ_SECONDS=$${NGINX_TUNE_FUZZ_SECONDS:-60}; \
	echo "SEED=$$SEED make $@"; $(MAKE) test-rust

# On the oldest Python and with the lowest libraries that pyproject.toml declares: all that needs
# nothing of the host, and the shells, which call the program that is installed.
test-all-lowest: $(READY_DEV)
	@if ! $(BIN)/uv venv --quiet --clear --python $(LOWEST_PYTHON) $(LOWEST); then \
	echo "the lowest libraries without Python $(LOWEST_PYTHON)" | tee -a $(UNTESTED) >&2; exit; fi; \
	$(BIN)/uv pip compile --quiet --resolution lowest --python $(LOWEST)/bin/python pyproject.toml -o $(LOWEST)/lowest.txt && \
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python \
	-c $(LOWEST)/lowest.txt --editable '.[test]' && \
	$(LOWEST)/bin/pytest -q -m 'not needs and not alone and not long' --numprocesses=$$(nproc) --dist=worksteal && \
	$(LOWEST)/bin/pytest -q tests/cli/test_cli_manual.py

$(filter-out test-all-rust test-all-lowest,$(PARTS)): $(READY_ALL) all-nginx
	@export NGINX_TUNE_TESTS=all SEED=$${SEED:-$$(shuf -n 1 -i 1-999999)}; echo "SEED=$$SEED make $@"; \
	failed=0; $(call side-by-side,$(TESTS)); $(call alone,$(TESTS)); exit $$failed

# pytest compiles the test files when it first reads them. Once, while the Rust tests wait, is less
# work than in each of the processes that run side by side; what cannot be read they report.
collected: $(READY_DEV)
	@$(BIN)/pytest --collect-only -q >/dev/null || true

# What cannot be had here is named, and the tests that need it skip.
other-nginx: $(READY_DEV)
	@tools/nginx-matrix --newest || echo "the newest nginx of the matrix could not be had"
	@tools/nginx-matrix --modules || echo "modules of the installed nginx could not be had"

all-nginx: $(READY_DEV)
	@tools/nginx-matrix || echo "other nginx could not be had"
	@tools/nginx-matrix --modules || echo "modules of the installed nginx could not be had"

# They wait for most of their time, so more run side by side than there are CPUs. MAKEFLAGS names a
# job server that make keeps from all but other makes.
test-rust: $(READY_DEV)
	@if ! command -v cargo >/dev/null; then echo "all Rust tests without cargo" | tee -a $(UNTESTED) >&2; \
	else cd probes && MAKEFLAGS= RUST_TEST_THREADS=$$(( 4 * $$(nproc) )) cargo test --profile checked --locked; fi

lint: lint-python lint-rust

lint-python: $(READY_DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/dead-code
	$(BIN)/deptry --no-ansi .
	$(BIN)/proselint check --config tools/proselint.json *.md docs/*.md docs/concepts/*.md share/man/man1/*.1

lint-rust: $(READY_DEV)
	@if cargo fmt --version >/dev/null 2>&1; then cd probes && cargo fmt --check; \
	else echo "format of the Rust code without rustfmt" | tee -a $(UNTESTED) >&2; fi
	@if cargo clippy --version >/dev/null 2>&1; then \
	cd probes && MAKEFLAGS= cargo clippy --all-targets --locked --profile checked -- -D warnings; \
	else echo "lint of the Rust code without clippy" | tee -a $(UNTESTED) >&2; fi

build: $(READY_DEV)
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

docs: $(READY_ALL)
	$(BIN)/python tools/build-site build/site
	@echo "build/site/index.html"

$(READY): pyproject.toml build_hook.py $(RUST_SOURCES)
	PYTHON=$(PYTHON) tools/prepare-system
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable .
	@touch $@

$(READY_DEV): pyproject.toml build_hook.py $(RUST_SOURCES)
	PYTHON=$(PYTHON) tools/prepare-system development
	@# The Rust code is built while packages come. uv takes a fifth of the CPU time that pip takes.
	$(BUILD_AHEAD) & $(PYTHON) -m venv $(VENV) && $(BIN)/pip install --quiet --no-compile uv && \
	$(UV_INSTALL) --editable '.[dev]' && wait
	$(COMPILE)
	@touch $(READY) $@

$(READY_ALL): $(READY_DEV)
	$(UV_INSTALL) --editable '.[test-all]'
	@touch $@

pictures: $(READY)
	$(BIN)/python tools/draw-pictures

advice: $(READY)
	$(BIN)/python benchmarks/copied_advice.py -o build/copied-advice --write

# Cells that are there already are kept; build/sites is what is known of them.
sites: $(READY_DEV) all-nginx
	$(BIN)/python tools/sites build/sites

clean:
	rm -rf $(VENV) $(LOWEST) dist build demo nginx_tune/_bin probes/target
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
