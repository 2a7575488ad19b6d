# Needs Python 3.11 or newer, and nothing else: `make lab` and `make test` make their own environment in .venv.
# Another Python: make lab PYTHON=/path/to/python3

.DEFAULT_GOAL := help
.PHONY: help lab test lint peer bench notebooks wheel format clean
export PYTHON

BIN := .venv/bin/python
root := $(if $(filter 0,$(shell id -u)),--allow-root)

help:  ## say what can be made
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/^([a-z]+):.*## */make \1\t/' | awk -F '\t' '{printf "  %-16s %s\n", $$1, $$2}'

lab:  ## open the quickstart in JupyterLab (makes .venv the first time)
	@scripts/environment.sh lab
	$(BIN) -m jupyterlab $(root) $(ARGS) notebooks/quickstart.ipynb

test:  ## run all tests (ARGS="tests/core -x" for some of them)
	@scripts/environment.sh dev
	$(BIN) -m pytest -n 2 --dist loadfile $(ARGS)

lint:  ## ruff, mypy and the arrows between the rooms
	@scripts/environment.sh dev
	$(BIN) -m ruff check .
	$(BIN) -m ruff format --check .
	$(BIN) -m mypy
	.venv/bin/lint-imports

format:  ## let ruff format and mend what it can
	@scripts/environment.sh dev
	$(BIN) -m ruff check --fix .
	$(BIN) -m ruff format .

peer:  ## fetch a llama.cpp server and a small model for the tests of real streams
	@scripts/environment.sh dev
	$(BIN) tests/peer/install.py

bench:  ## measure, against the peers, in one run (takes minutes)
	@scripts/environment.sh dev
	$(BIN) -m benchmarks $(ARGS)

notebooks:  ## execute every notebook without a person
	@scripts/environment.sh dev
	@scripts/execute_notebooks.sh

wheel:  ## build the wheel and start it in a clean environment
	@scripts/environment.sh dev
	@scripts/check_wheel.sh

clean:  ## remove what was made here
	rm -rf .venv .cache dist build
