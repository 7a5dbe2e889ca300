# Every target sets up what it needs on a bare machine: `make demo` and `make test` want Python 3.11+ and git alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# A test starts hundreds of processes: what each imports is compiled once, even where a shell forbids it.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: change check clean container demo docs full lint quick real real-short reference team test test-agent test-browser \
	test-clients test-deep test-gpu test-postgres test-ray test-sandboxes test-vllm types wheel

$(VENV)/demo.stamp: pyproject.toml constraints.txt
	$(PYTHON) tests/provision.py $(VENV) demo code
	touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt
	$(PYTHON) tests/provision.py $(VENV) dev
	touch $@

demo: $(VENV)/demo.stamp
	$(BIN)/ostinato demo $(ARGS)

docs: $(VENV)/dev.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

# What protects a change, and everything: tests/stages.py has the list.
change:
	$(PYTHON) tests/stages.py change $(ARGS)

full:
	$(PYTHON) tests/stages.py full $(ARGS)

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal --durations 20 $(ARGS)

# The tests of `make test`, the whole runs of studies and large corpora, and many more examples of each property.
test-deep: $(VENV)/dev.stamp
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal --durations 20 -m "$(DEEP)" --hypothesis-profile deep $(ARGS)

DEEP := not clients and not vllm and not machines and not real and not corpus and not ray and not postgres and not gpu

test-agent: $(VENV)/dev.stamp
	$(BIN)/python -m tests.clients.install --only @anthropic-ai/claude-code tests/clients/test_drive.py -k "claude or acp" $(ARGS)

test-clients: $(VENV)/dev.stamp
	$(BIN)/python -m tests.clients.install $(ARGS)

test-browser: $(VENV)/dev.stamp
	$(BIN)/python -m tests.dashboard.install $(ARGS)

test-vllm: $(VENV)/dev.stamp
	$(BIN)/python -m tests.vllm.install $(ARGS)

team: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks.team --json $(ARGS)

test-gpu: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -m gpu $(ARGS)

test-ray: $(VENV)/dev.stamp
	$(BIN)/python -m tests.loop.placement.install $(ARGS)

test-postgres: $(VENV)/dev.stamp
	$(BIN)/python -m tests.store.install --numprocesses auto $(ARGS)

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

container:
	$(PYTHON) tests/container.py

reference: $(VENV)/dev.stamp
	$(BIN)/python docs/reference/make.py

quick: $(VENV)/dev.stamp
	$(BIN)/python -m pytest --numprocesses auto -m "$(DEEP) and not deep and not slow" $(ARGS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

check: lint types
	$(MAKE) test

clean:
	rm -rf $(VENV) .clients runs dist .mypy_cache .ruff_cache .pytest_cache
