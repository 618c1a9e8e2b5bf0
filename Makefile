# What one does with a checkout. Every target sets itself up and may be run again.

.DEFAULT_GOAL := help
.PHONY: help demo run test lint format wheel smoke bench fire clean

# Relative, so that a checkout may stand in a folder with a space in its name.
BIN := .venv/bin
SOURCES := services shared tests bench

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /make \1|/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-12s %s\n", $$1, $$2}'

demo:  ## show the whole gateway at work on this machine; no token, no Telegram
	@.ci/setup run
	@$(BIN)/python -m telegrammer_demo $(DEMO_ARGS) supervisord.conf

run:  ## run the gateway with the token in TELEGRAMMER_BOT_TOKEN or TELEGRAMMER_BOT_TOKEN_FILE
	@.ci/setup run
	@test -n "$$TELEGRAMMER_BOT_TOKEN$$TELEGRAMMER_BOT_TOKEN_FILE" || \
	    { echo "No bot token: set TELEGRAMMER_BOT_TOKEN or TELEGRAMMER_BOT_TOKEN_FILE (or try: make demo)" >&2; exit 78; }
	@$(BIN)/telegrammer check || { test $$? -ne 78 || exit 78; echo "Starting all the same."; }
	@echo "Logs: .run/*.log   Another terminal: .venv/bin/telegrammer status   Stop: Ctrl-C"
	@umask 077; mkdir -p .run; PATH="$(CURDIR)/$(BIN):$$PATH" exec $(BIN)/supervisord -n -c supervisord.conf

test:  ## run every test (ARGS="tests/unit -k backoff" for some)
	@.ci/setup dev
	@$(BIN)/python -X dev -W error -m pytest $(ARGS)

lint:  ## ruff and mypy, as strict as in .ci/run
	@.ci/setup dev
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/mypy $(SOURCES)

format:  ## put the code into its one form
	@.ci/setup dev
	@$(BIN)/ruff check --fix $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)

wheel:  ## build dist/telegrammer-*.whl
	@.ci/setup dev
	@rm -rf build dist
	@$(BIN)/python -m pip wheel -qq --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir dist .
	@ls dist/*.whl

smoke: wheel  ## install that wheel into an empty environment and try it there
	@.ci/smoke dist/telegrammer-*.whl

fire:  ## hours of kills, full disks and hostile input (FIRE_MINUTES=60 FIRE_SEED=1; docs/fire.md)
	@.ci/setup dev
	@PYTHONPATH=shared:services:tests $(BIN)/python -X dev -W error -m fire

bench:  ## measure, and write docs/performance.md (BENCH="dispatcher --quick" for a part)
	@.ci/setup dev
	@PYTHONPATH="$(CURDIR)" $(BIN)/python -m bench $(BENCH)

clean:  ## remove what building, testing and the demo have left
	@rm -rf build dist .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis shared/*.egg-info services/*.egg-info *.egg-info
	@find $(SOURCES) -name __pycache__ -prune -exec rm -rf {} +
