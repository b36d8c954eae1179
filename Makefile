# Everything a person needs, from a fresh clone: `make demo`, `make test`. Each target sets up what it
# needs, and does nothing twice.

PYTHON ?= python3.11
BIN := .venv/bin
# The bootstrap of the virtual environment; the lock file holds the same version.
UV := uv==0.13.8
FAST := not spark and not kafka and not airflow
# Of the tests on real servers, which these share.
PROCESSES ?= 2
RUNS ?= 50
BENCH_EVENTS ?= 2000000

.DEFAULT_GOAL := help
.PHONY: help setup check test sim demo up down bench torture lock

help: ## print this
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.jars ## prepare .venv (with .venv/bin/lockstep) and the jars, from the lock files

# One stamp a step: a changed lock file redoes its own step and those after it.
.venv/.packages: requirements.txt
	@echo "setting up .venv"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@test -x $(BIN)/uv || $(BIN)/pip install --quiet --disable-pip-version-check $(UV)
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.txt
	@touch $@

.venv/.installed: .venv/.packages pyproject.toml
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.jars: .venv/.installed plugins/lockstep/jars.toml
	@echo "fetching the jars of Spark and Kafka"
	@$(BIN)/python -m lockstep.adapters.jars > .venv/jars.log 2>&1 || (tail -n 5 .venv/jars.log; false)
	@touch $@

check: setup ## lint, types, layers and the fast tests, in five minutes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -m "$(FAST)" --numprocesses auto --dist worksteal

test: check ## all of it: check, then the tests on real Kafka, Spark, Iceberg and Airflow
	$(BIN)/pytest -m "not ($(FAST))" --numprocesses $(PROCESSES) --dist loadgroup \
		--durations=25 --durations-min=20

demo: setup ## real flights through Kafka, Airflow and Spark, with a kill; under six minutes
	$(BIN)/python examples/demo.py

up: setup ## start the stack and leave it running
	$(BIN)/lockstep up

down: setup ## stop the stack that `make up` started
	$(BIN)/lockstep down

bench: setup ## BENCH_EVENTS=2000000: Nexmark beside Flink, Structured Streaming and DBSP, for hours
	$(BIN)/python benchmarks/nexmark.py --events $(BENCH_EVENTS)
	$(BIN)/python benchmarks/nexmark_report.py

torture: setup ## RUNS=50 [SEED=7] kills of everything that can be killed; nothing may be lost or doubled
	$(BIN)/python benchmarks/torture.py --runs $(RUNS) $(if $(SEED),--seed $(SEED))

sim: RUNS ?= 200
sim: setup ## RUNS=5000 [SEED=7] lives of a pipeline with crashes, zombies and lost replies, in memory
	$(BIN)/python tests/simulation/simulate.py --runs $(RUNS) $(if $(SEED),--seed $(SEED))

lock: ## resolve requirements.txt anew from pyproject.toml
	@test -x $(BIN)/uv || ($(PYTHON) -m venv .venv && $(BIN)/pip install --quiet $(UV))
	$(BIN)/uv pip compile --quiet --generate-hashes --python-version 3.11 --extra dev \
		--extra postgres --custom-compile-command "make lock" --output-file requirements.txt pyproject.toml
