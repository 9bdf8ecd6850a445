# make demo             trains an agent on generated ALFWorld games
# make test             runs the test suite
# make lint             checks style, types and who imports whom
# make bench            runs the benchmarks; GAMES=FOLDER names the games of ALFWorld's, ARGS=--sweep times every size of the kernels
# make test-textworld   installs the public ALFWorld engine (it compiles, minutes) and tests beside it
# make parity           plays both engines side by side on every game of GAMES=FOLDER
# make fuzz             feeds RUNS=N damaged games to the loader, under sanitizers; SEED=N names which
# make soak             kills processes that count in a shared state table, and training runs, at 200 random points each
# make clean            removes the environment and what was built
# ARGS="..." goes on to the command: make demo ARGS="--seed 1", make test ARGS="tests/envs -k expert".
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
GAMES ?= $(ALFWORLD_DATA)
RUNS ?= 200000
SEED ?= 1

ifneq ($(words $(VENV)),1)
$(error VENV=$(VENV): make needs a path without spaces here; this folder's own path may have them)
endif

SOURCES := $(shell find csrc -name '*.[ch]pp*') $(wildcard python/spo_fast/envs/alfworld/data/*)

.PHONY: help setup demo test lint bench test-textworld parity games-given fuzz soak clean

help:
	@sed -n 's/^# //p; /^$$/q' Makefile

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml CMakeLists.txt scripts/setup.sh $(SOURCES)
	@sh scripts/setup.sh
	@touch $@

demo: $(VENV)/.ready
	$(VENV)/bin/spo-fast train --preset demo $(if $(OUTPUT),--output "$(OUTPUT)") $(ARGS)

test: $(VENV)/.ready
	$(VENV)/bin/python -m pytest $(ARGS)

bench: $(VENV)/.ready
	SPO_FAST_GAMES="$(GAMES)" $(VENV)/bin/python -m pytest benchmarks --csv benchmarks/results/cpu.csv $(ARGS)
	$(VENV)/bin/python -m benchmarks.plot benchmarks/results/cpu.csv benchmarks/results/cpu.png

test-textworld: $(VENV)/.textworld
	$(VENV)/bin/python -m pytest tests/envs/test_textworld.py tests/envs/test_parity_command.py $(ARGS)
	$(VENV)/bin/python -m spo_fast.envs.alfworld.parity --generated 20

parity: games-given $(VENV)/.textworld
	$(VENV)/bin/python -m spo_fast.envs.alfworld.parity --games "$(GAMES)" $(ARGS)

games-given:
	@test -n "$(GAMES)" || { echo "make: GAMES=FOLDER must name a folder of game.tw-pddl files" >&2; exit 1; }

$(VENV)/.textworld: $(VENV)/.ready
	@EXTRAS="$(EXTRAS),alfworld" sh scripts/setup.sh
	@touch $@

fuzz: $(VENV)/.ready
	SPO_FAST_FUZZ_RUNS=$(RUNS) SPO_FAST_FUZZ_SEED=$(SEED) \
	  $(VENV)/bin/python -m pytest --timeout 0 tests/envs/test_alfworld_fuzz.py $(ARGS)

soak: $(VENV)/.ready
	SPO_FAST_KILLS=200 $(VENV)/bin/python -m pytest -k "killed_processes or killed_at_random" \
	  tests/memory/test_state_table_files.py tests/train/test_resume.py $(ARGS)

lint: $(VENV)/.ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

clean:
	rm -rf $(VENV) build dist
