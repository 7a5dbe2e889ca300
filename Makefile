# `make demo` and `make test` need nothing but Python 3.11+ and git: each sets up .venv by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo real real-short test test-browser test-clients test-gpu test-postgres test-ray test-sandboxes test-vllm wheel reference quick check lint types clean

$(VENV)/demo.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing ostinato into $(VENV): one to three minutes, once"
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[demo,code]'
	touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing ostinato and what its tests need into $(VENV): one to three minutes, once"
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(VENV)/demo.stamp
	$(BIN)/ostinato demo $(ARGS)

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal --durations 20 $(ARGS)

test-browser: $(VENV)/dev.stamp
	$(BIN)/python -m tests.dashboard.install $(ARGS)

test-clients: $(VENV)/dev.stamp
	$(BIN)/python -m tests.clients.install $(ARGS)

test-vllm: $(VENV)/dev.stamp
	$(BIN)/python -m tests.vllm.install $(ARGS)

test-gpu: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -m gpu $(ARGS)

test-ray: $(VENV)/dev.stamp
	$(BIN)/python -m tests.loop.placement.install $(ARGS)

test-postgres: $(VENV)/dev.stamp
	$(BIN)/python -m tests.store.install $(ARGS)

real: $(VENV)/dev.stamp
	$(BIN)/python -m tests.real.install
	$(BIN)/ostinato run recipes/real.toml $(ARGS)

real-short: $(VENV)/dev.stamp
	$(BIN)/python -m tests.real.install
	$(BIN)/python -m pytest -m real tests/real $(ARGS)

test-sandboxes: $(VENV)/dev.stamp
	$(BIN)/python -m tests.sandbox.install $(ARGS)

wheel:
	$(PYTHON) tests/wheel.py

reference: $(VENV)/dev.stamp
	$(BIN)/python docs/reference/make.py

quick: $(VENV)/dev.stamp
	$(BIN)/python -m pytest --numprocesses auto -m "not slow and not machines and not clients and not vllm and not real and not corpus and not ray and not postgres" $(ARGS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

check: lint types
	$(MAKE) test

clean:
	rm -rf $(VENV) .clients runs dist .mypy_cache .ruff_cache .pytest_cache
