# `make demo` and `make test` do their own set-up in $(VENV); both can be repeated and redo only what changed.
#
#   PYTHON=python3.12           the interpreter the virtual environment is made with (3.10 or newer)
#   VENV=/tmp/venv              where it lies
#   TORCH_INDEX_URL=URL         where to take torch from; PyTorch's own CPU index keeps a machine without a GPU
#                               from downloading the CUDA build
#   PYTEST_ARGS="-k uring"      passed to pytest

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX_URL ?=
PYTEST_ARGS ?=

BIN := $(abspath $(VENV))/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints-cpu.txt
BUILD_TOOLS := "scikit-build-core>=0.11" "cmake>=3.20" "ninja>=1.11"
# Without the CuPy and CUDA it asks for: tests read to host memory with it, which takes neither.
KVIKIO := "kvikio-cu13==26.10.*" "libkvikio-cu13==26.10.*" "rapids-logger==0.3.*" nvidia-cufile cuda-pathfinder
NATIVE_FILES := CMakeLists.txt $(wildcard bam/native/src/*) $(wildcard bam/native/include/bam/*)

.PHONY: help install demo test test-nvme lint lint-versions pytest docs explore sanitize bench-io check-python clean

help:
	@echo "make demo      install, read from cold files, train an RGAT beside memory maps; ends with report.html"
	@echo "make test      install, then linters, types, layer contracts and the test suite"
	@echo "make test-nvme the NVMe driver against QEMU's drives in virtual machines (installs qemu-system-x86; no KVM)"
	@echo "make install   only the set-up: $(VENV) with everything for tests"
	@echo "make explore   shared headers under every schedule of 2 and 3 threads"
	@echo "make sanitize  stress builds under ASan, UBSan and TSan"
	@echo "make lint      only the linters;   make pytest   only the test suite"
	@echo "make lint-versions   types as Python 3.11, 3.12 and 3.13 see them (3.10 is part of make lint)"
	@echo "make docs      pages and reference of all public names, in build/docs; warnings are errors"
	@echo "make bench-io  random-read benchmark (4 GiB file in BENCH_FILE)"

check-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Python 3.10 or newer is needed: make PYTHON=python3.x ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "The venv module is missing: apt-get install python3-venv (Debian, Ubuntu)" >&2; exit 1; }
	@command -v c++ >/dev/null || command -v g++ >/dev/null || command -v "$${CXX:-}" >/dev/null || \
	  echo "Note: no C++ compiler, so the native library is not built (apt-get install g++)." >&2

# 1. The environment, CPU torch first.  2. The runtime dependencies and this package.  3. What tests need.
$(VENV)/.stamp-torch: constraints-cpu.txt | check-python
	@echo "== $(VENV): PyTorch and build tools"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) $(if $(TORCH_INDEX_URL),--extra-index-url $(TORCH_INDEX_URL)) torch
	@$(PIP) $(BUILD_TOOLS)
	@touch $@

$(VENV)/.stamp-install: $(VENV)/.stamp-torch pyproject.toml $(NATIVE_FILES)
	@echo "== $(VENV): this package and what it needs (compiles the native library)"
	@$(PIP) --no-build-isolation --editable .
	@touch $@

$(VENV)/.stamp-test: $(VENV)/.stamp-install pyproject.toml
	@echo "== $(VENV): what the tests need"
	@$(PIP) --no-build-isolation --editable '.[test,dev,docs,dgl,pyg]'
	@$(PIP) --no-deps $(KVIKIO) || echo "Note: kvikio is not installed (Python 3.11 or newer), its tests are skipped" >&2
	@touch $@

install: $(VENV)/.stamp-test

test: lint pytest

lint: $(VENV)/.stamp-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

pytest: $(VENV)/.stamp-test
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# The configuration names the oldest version, with which `make lint` runs mypy; newer ones see newer stubs.
lint-versions: $(VENV)/.stamp-test
	$(BIN)/ruff check --target-version py310 .
	for version in 3.11 3.12 3.13; do $(BIN)/mypy --python-version $$version; done

docs: $(VENV)/.stamp-test
	$(BIN)/mkdocs build

# NVME_ARGS="faults -k removed" runs one guest, or some tests, alone.
NVME_ARGS ?=
test-nvme: $(VENV)/.stamp-test
	$(BIN)/python tests/vm/run.py $(NVME_ARGS)

explore sanitize:
	$(MAKE) -C tests/native $@

$(VENV)/.stamp-demo: $(VENV)/.stamp-install pyproject.toml
	@echo "== $(VENV): what the models need"
	@$(PIP) --no-build-isolation --editable '.[pyg]'
	@touch $@

# The second one writes 450 MB to build/demo and report.html; what is there already is not made again.
demo: $(VENV)/.stamp-demo
	$(BIN)/python examples/demo_storage.py
	$(BIN)/python examples/demo_training.py

BENCH_FILE ?= build/bench-io.bin
BENCH_JSON ?= build/bench-io.json
bench-io: $(VENV)/.stamp-install
	mkdir -p $(dir $(BENCH_FILE)) $(dir $(BENCH_JSON))
	$(BIN)/python -m bam.bench io $(BENCH_FILE) --json $(BENCH_JSON)

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
