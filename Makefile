# make demo    trains an agent on generated ALFWorld games
# make test    runs the test suite
# make bench   times the CPU kernels against their peers; ARGS=--sweep for every size
# make soak    kills processes that count in a shared state table, at 200 random points
# Everything goes into $(VENV); nothing outside this folder is changed.

export PYTHON ?= python3
export VENV ?= .venv
export TORCH ?= torch==2.13.0
# where PyTorch's CPU build comes from when there is no GPU; empty: the default build
export TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
export EXTRAS ?= train,dev
OUTPUT ?= runs/demo-$(shell date +%Y%m%d-%H%M%S)
ARGS ?=

SOURCES := $(shell find csrc -name '*.[ch]pp*')

.PHONY: help setup demo test soak lint bench clean

help:
	@sed -n 's/^# make/make/p' Makefile

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml CMakeLists.txt scripts/setup.sh $(SOURCES)
	@sh scripts/setup.sh
	@touch $@

demo: $(VENV)/.ready
	$(VENV)/bin/spo-fast train --preset demo --output $(OUTPUT) $(ARGS)

test: $(VENV)/.ready
	$(VENV)/bin/python -m pytest $(ARGS)

soak: $(VENV)/.ready
	SPO_FAST_KILLS=200 $(VENV)/bin/python -m pytest tests/memory/test_state_table_files.py -k killed_processes $(ARGS)

lint: $(VENV)/.ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: $(VENV)/.ready
	$(VENV)/bin/python -m pytest benchmarks --csv benchmarks/results/cpu.csv $(ARGS)
	$(VENV)/bin/python -m benchmarks.plot benchmarks/results/cpu.csv benchmarks/results/cpu.png

clean:
	rm -rf $(VENV) build dist
