# Every target makes its own virtual environment when it is missing or older than pyproject.toml and constraints.txt.
#   make audit                      environment, a small real model, an audit, a report
#   make test                       environment, the fast tests
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV ?= .venv
MODEL ?= smollm2-135m
BUDGET ?= quick
ROOM ?=
PEER_VENVS ?= .venvs
PYTEST_ARGS ?=
ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.intarsia-ready

# Idle threads that spin slow everything else down on a small machine; forked tokenizers warn.
export OMP_WAIT_POLICY ?= PASSIVE
export TOKENIZERS_PARALLELISM ?= false
export PIP_DISABLE_PIP_VERSION_CHECK ?= 1
export NO_MKDOCS_2_WARNING ?= 1
# Where there is a folder of test data, tests find it.
ifndef INTARSIA_DATA
ifneq ($(wildcard ../shared/data/.),)
export INTARSIA_DATA := $(abspath ../shared/data)
endif
endif

.PHONY: help env audit test test-all lint format docs docs-serve reproduce bench pin clean distclean

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\n  Variables: PYTHON=python3 VENV=.venv MODEL=%s BUDGET=%s ROOM=<room> PYTEST_ARGS= ARGS=\n' '$(MODEL)' '$(BUDGET)'

env: $(STAMP) ## Make the virtual environment

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is missing; install Python 3.11 or newer, or set PYTHON=" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: Python 3.11 or newer is needed, $(PYTHON) is `$(PYTHON) -V`; set PYTHON=" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "make: no virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	@echo "Installing into $(VENV) (a few minutes the first time) ..."
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,dev,docs]'
	@touch $@

audit: $(STAMP) ## Audit a small real model and write a report (MODEL=, BUDGET=, ARGS=)
	$(BIN)/intarsia audit $(MODEL) --budget $(BUDGET) $(ARGS)

test: $(STAMP) ## Run the fast tests
	$(BIN)/python -m pytest -m "not slow" $(PYTEST_ARGS)

test-all: $(STAMP) ## Run all tests, the slow ones too
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(STAMP) ## Check style, types and the house's floors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## Mend what checks can mend: style, the README's table of rooms
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python scripts/rooms_table.py

docs: $(STAMP) ## Build the documentation into site/
	$(BIN)/mkdocs build --strict
	@echo "Documentation: site/index.html"

docs-serve: $(STAMP) ## Serve the documentation here, with live reload
	$(BIN)/mkdocs serve

reproduce: $(STAMP) ## Measure a room's claims here (ROOM=, ARGS=)
	@test -n "$(ROOM)" || { echo "make: which room? make reproduce ROOM=<room>; \`$(BIN)/intarsia rooms\` lists them" >&2; exit 2; }
	$(BIN)/intarsia reproduce $(ROOM) $(ARGS)

bench: $(STAMP) ## Hold a room, or ROOM=target, against its peer (ROOM=, ARGS=)
	@test -f "benchmarks/$(ROOM).py" || \
	  { echo "make: there is no benchmarks/$(ROOM).py; there are:" benchmarks/*.py >&2; exit 2; }
	$(BIN)/python benchmarks/$(ROOM).py $(ARGS)

pin: ## Write constraints.txt anew from a fresh environment
	@d=$$(mktemp -d) && trap 'rm -rf "$$d"' EXIT && $(PYTHON) -m venv $$d && \
	  $$d/bin/python -m pip install --quiet '.[all,dev,docs]' && \
	  { echo "# Versions that were tested together. \`make pin\` writes this file."; \
	    $$d/bin/python -m pip freeze --exclude intarsia | sed 's/+cpu$$//'; } > constraints.txt

clean: ## Remove what builds, tests and runs left behind; keeps environments
	rm -rf build dist site runs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -not -path './$(PEER_VENVS)/*' -prune -exec rm -rf {} +

distclean: clean ## Remove the environments too
	rm -rf $(VENV) $(PEER_VENVS)
