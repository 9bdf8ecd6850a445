# make demo    trains an agent on generated ALFWorld games
# make test    runs the test suite
# Everything goes into $(VENV); nothing outside this folder is changed.

export PYTHON ?= python3
export VENV ?= .venv
export TORCH ?= torch==2.13.0
# where PyTorch's CPU build comes from when there is no GPU; empty: the default build
export TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
export EXTRAS ?= train,dev
# the demo's folder; empty: one of its own under runs/
OUTPUT ?=
ARGS ?=

SOURCES := $(shell find csrc -name '*.[ch]pp*')

.PHONY: help setup demo test lint bench clean

help:
	@sed -n 's/^# make/make/p' Makefile

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml CMakeLists.txt scripts/setup.sh $(SOURCES)
	@sh scripts/setup.sh
	@touch $@

demo: $(VENV)/.ready
	$(VENV)/bin/spo-fast train --preset demo $(if $(OUTPUT),--output "$(OUTPUT)") $(ARGS)

test: $(VENV)/.ready
	$(VENV)/bin/python -m pytest $(ARGS)

lint: $(VENV)/.ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

clean:
	rm -rf $(VENV) build dist
