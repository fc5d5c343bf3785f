# Every target sets up its own virtual environment from nothing: Python 3.11 and make are enough.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
PYTEST_WORKERS ?= 3

.DEFAULT_GOAL := help
.PHONY: help demo test storm check fmt bench projects clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (about a minute the first time)"
	@BIN=$(BIN) PYTHON=$(PYTHON) sh tools/setup.sh
	@touch $@

demo: $(STAMP) ## run the flash sale under chaos and prove it
	@$(BIN)/penstock demo $(ARGS)

test: $(STAMP) ## run every test
	@PYTEST_WORKERS=$(PYTEST_WORKERS) BIN=$(BIN) sh tools/test.sh $(ARGS)

storm: $(STAMP) ## 20,000 payments under kills, stops, cuts and replays (minutes); SEED=7 repeats one
	@TEST_ROUNDS=10000 $(BIN)/python -m pytest -q -n 0 tests/sql/payments/test_races.py
	@TEST_SEED=$(SEED) TEST_PAYMENTS=$(or $(PAYMENTS),20000) TEST_PARTICIPANTS=$(or $(PARTICIPANTS),200) $(BIN)/python -m pytest -q -s -n 0 tests/integration/payments/test_storm.py

check: $(STAMP) ## lint, types, layering, docs
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --num-workers 2
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python tools/reference.py --check
	@$(BIN)/python tools/supabase_trees.py --check

fmt: $(STAMP) ## format the code and regenerate the reference
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/python tools/reference.py
	@$(BIN)/python tools/supabase_trees.py

bench: $(STAMP) ## measure this machine (figures, goals); ARGS="intake --json" for another part
	@$(BIN)/penstock bench $(or $(ARGS),kernel)

projects: $(STAMP) ## both databases of the intake engine: ARGS="start|status|reset|test|stop [db1|db2]"
	@PYTHONPATH=. $(BIN)/python tools/projects.py $(ARGS)

clean: ## remove the virtual environment and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache dist build
