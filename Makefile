# Two commands do all set-up on a machine with Python 3.11 or later and make: `make demo`, `make test`.
PYTHON ?= python3
BIN := .venv/bin
# Half of the cores stay with the compiler of the other test process.
WORKERS ?= 2

.PHONY: demo test lint format bench docs clean

demo: .venv/installed
	$(BIN)/untuned demo --out demo --overwrite

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) -q

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Strict: a link that leads nowhere or a page left out of the menu is an error.
docs: .venv/installed-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: .venv/installed-test
	$(BIN)/python benchmarks/run_all.py

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

# One pip call with torch pinned: an unpinned torch would bring gigabytes of GPU libraries.
.venv/installed-test: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

clean:
	rm -rf .venv demo site build dist .mypy_cache .pytest_cache .ruff_cache
