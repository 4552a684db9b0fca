# MEAH: `make run` starts it, `make test` tests it. Nothing but Python 3.11 or later has to be there.
PYTHON ?= python3
PORT ?= 7817
VENV ?= .venv
JOBS ?= 4
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev run test test-again test-all test-postgres lint bench smoke screenshots lock clean

help: ## Say what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

setup: $(VENV)/installed ## Install the locked requirements into .venv/
setup-dev: $(VENV)/installed-dev

# uv where it is there, since it is quicker; else pip. Both check every hash.
define install
	@echo "Installing what $(1) locks into $(VENV)/ (one to three minutes, once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@if command -v uv >/dev/null 2>&1; then uv pip install --quiet --python $(BIN)/python --require-hashes -r $(1); \
	else $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(1); fi
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m compileall -q $(VENV)/lib >/dev/null 2>&1 || true
endef

$(VENV)/installed: requirements/base.txt
	$(call install,$<)
	@touch $@

$(VENV)/installed-dev: requirements/dev.txt
	$(call install,$<)
	@touch $@ $(VENV)/installed

run: setup ## Start MEAH on http://127.0.0.1:7817 (PORT=… for another port)
	@exec $(BIN)/python manage.py up --port $(PORT)

smoke: setup ## Try the real MCP server over stdio, offline
	$(BIN)/python manage.py smoke

test: setup-dev ## Lint, types and tests, within five minutes
	$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest -m "not slow" -n $(JOBS) --dist worksteal

test-all: setup-dev ## All tests with full counts; the output is kept under benchmarks/results/
	mkdir -p benchmarks/results && rm -f benchmarks/results/faults.txt
	KEEP_FAULT_FIGURES=1 bash -o pipefail -c '$(BIN)/python -m pytest -v 2>&1 | tee benchmarks/results/test-all.txt'

test-postgres: setup-dev ## The database tests on PostgreSQL (MEAH_TEST_DATABASE_URL)
	$(BIN)/python -m pytest -m "not slow" -n $(JOBS) --dist worksteal tests/audit tests/approvals tests/workers tests/meah_site

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python manage.py check
	$(BIN)/python manage.py makemigrations --check --dry-run

bench: setup-dev ## Speed and size, each beside its yardstick
	$(BIN)/python -m benchmarks

screenshots: setup-dev ## Make docs/screenshots/ again, by a script in a real browser (needs chromium)
	$(BIN)/python -m tests.e2e.screenshots

lock: ## Compile requirements/*.txt from pyproject.toml (needs uv)
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" --extra postgres -p 3.11 pyproject.toml -o requirements/base.txt
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" --extra postgres --group dev -p 3.11 pyproject.toml -o requirements/dev.txt

clean: ## Remove the installed environments; var/ stays
	rm -rf .venv .venv-*

test-again: setup-dev ## Only the tests that failed in the last run, one at a time
	$(BIN)/python -m pytest -m "not slow" --last-failed --last-failed-no-failures none
