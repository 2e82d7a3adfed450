# Every target first sets up what it needs: `make demo` or `make test` is enough on a fresh clone.

PYTHON ?= python3
DEST ?= .broker
UV_VERSION := 0.13.8
BIN := .venv/bin
SYNC := UV_PYTHON_DOWNLOADS=never $(BIN)/uv sync --locked
LOCKED := $(BIN)/uv pyproject.toml uv.lock
FAST := tests/unit tests/property tests/conformance tests/architecture
COMPILED_FAST := $(addprefix tests/unit/,core domain openwire store transports) tests/property tests/conformance
COMPILED_SLOW := $(addprefix tests/integration/test_,openwire_conversations.py stomp_conversations.py tls.py kills.py) tests/java

.DEFAULT_GOAL := help
.PHONY: help demo start broker test check fast-tests compiled-tests wheel kills fences format lock setup clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.runtime ## Two brokers, one store: kill the master, lose nothing; with STORE=postgres in a database
	$(if $(filter postgres,$(STORE)),$(SYNC) --quiet --inexact --extra postgres)
	$(BIN)/python examples/demo.py $(STORE)

start: .venv/.runtime ## Run one broker on ./data with its default listeners
	$(BIN)/pybroker start --store ./data

# Not editable, so that the environment does not need the checkout any more; and always built anew, for uv goes by
# pyproject.toml alone when it looks whether a package has changed. The files there are for every user to read.
broker: export UV_PROJECT_ENVIRONMENT = $(abspath $(DEST))
broker: $(BIN)/uv ## Install a broker and no more into DEST (.broker), as /opt/pybroker; COMPILED=1: with the message path compiled
	$(if $(COMPILED),HATCH_BUILD_HOOKS_ENABLE=1) $(SYNC) --no-editable --reinstall-package pybroker --extra postgres
	@echo "Run $(DEST)/bin/pybroker start --help"

# The slow tests measure and kill processes, so they run alone, after the fast ones.
test: .venv/.complete fast-tests ## Run the whole test suite
	$(BIN)/python -m pytest $(addprefix --ignore=,$(FAST))

check: .venv/.complete ## Format, lint, types, import contracts, spelling and the fast tests
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(MAKE) --no-print-directory fast-tests

fast-tests: .venv/.complete ## Run the tests without sockets and processes: unit, property, conformance, architecture
	$(BIN)/python -m pytest --numprocesses=auto $(FAST)

# The same tests, of what the wheel has: PYTHONPATH comes before what is installed, PYTHONSAFEPATH keeps ./pybroker out.
compiled-tests: .venv/.complete ## Compile the message path and run the tests that touch it
	export PYTHONPATH=$$($(BIN)/python -m benchmarks.compiled) PYTHONSAFEPATH=1 && \
	$(BIN)/python -m pytest --numprocesses=auto $(COMPILED_FAST) && \
	$(BIN)/python -m pytest $(COMPILED_SLOW)

wheel: .venv/.complete ## Build a wheel for this platform into ./dist, with the message path compiled
	HATCH_BUILD_HOOKS_ENABLE=1 $(BIN)/uv build --no-build-isolation

# A failure names its seed; the same kills again: make kills PYBROKER_SEED=...
kills: export PYBROKER_KILLS ?= 200
kills: export PYBROKER_KILL_SECONDS ?= 600
kills: .venv/.complete ## Kill masters under load, 200 times for STOMP and Java, ten minutes for each client for Python
	$(BIN)/python -m pytest -s tests/integration/test_kills.py tests/integration/test_soak.py tests/java/test_java_kills.py tests/client/test_kills.py

format: .venv/.complete ## Format the sources and mend what the linter can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

fences: export PYBROKER_FENCE_RUNS ?= 20
fences: .venv/.complete ## Have two members be master at once, by mixed locks and a stalled database, 20 times each
	$(BIN)/python -m pytest -s tests/integration/test_two_masters.py

lock: $(BIN)/uv ## Write uv.lock anew after a change of dependencies
	$(BIN)/uv lock

setup: .venv/.complete ## Set up .venv with every extra, as uv.lock pins it

clean: ## Remove the environment and every cache; ./data stays
	rm -rf .venv .broker .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist

# What a broker needs and no more: the demo does not wait for Spark and the checkers. --inexact keeps what is there.
.venv/.runtime: $(LOCKED)
	$(SYNC) --quiet --inexact
	@touch $@

.venv/.complete: $(LOCKED)
	@echo "Setting up .venv with every extra; the first time downloads about 500 MB, most of it Spark"
	$(SYNC) --all-extras
	@touch .venv/.runtime $@

# uv comes from PyPI through pip, so nothing but PyPI need be reachable. Debian and Ubuntu keep pip apart from Python.
$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo 'pybroker needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3 ...'; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || .ci/install python3-venv
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
