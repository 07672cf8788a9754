# Everything a person needs is a target here; `make help` lists them.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
TORCH := 2.13.0
SOAK_SECONDS ?= 14400
TEST_WORKERS ?= 3

.DEFAULT_GOAL := help
.PHONY: help setup demo check format test soak audit lock bench clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.installed: requirements.lock pyproject.toml python_env.yaml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet torch==$(TORCH)
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -m rapid_lab.environment
	touch $@

setup: $(VENV)/.installed ## make .venv from the lock file

demo: setup ## the main job through mlflow run, then six methods on three seeds of the twin
	PATH="$(CURDIR)/$(BIN):$$PATH" mlflow run . -P method=rapid -P dataset=agnews -P data=twin
	$(BIN)/rapid-lab demo --dataset agnews

check: setup ## lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup ## format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: setup ## the tests; a file stays with one worker, so that what it makes once is made once. Many wait, so three workers fill two cores
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=$(TEST_WORKERS) --dist=loadfile --no-loadscope-reorder

soak: setup ## the tests that take long, or those of the folders SOAK names; none begins after SOAK_SECONDS
	SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/python -m pytest -m soak -x $(SOAK)

audit: ## known advisories of what requirements.lock pins and of torch, where the network allows
	$(PYTHON) .ci/audit.py

bench: setup ## measure, and write dated reports to benchmarks/reports
	for name in pair_term step_overhead throughput compare_store sweep_overhead queue_simulator soak; do \
		$(BIN)/python benchmarks/$$name.py --report || exit 1; done

lock: ## make requirements.lock anew (needs uv); torch stays out, see docs/decisions
	printf 'torch\n' > $(VENV)/excluded.txt
	uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes \
		--no-header --excludes $(VENV)/excluded.txt --output-file requirements.lock

clean: ## remove .venv and what tools leave behind
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
