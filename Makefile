# Two commands do all set-up on a machine with Python 3.11 or later and make: `make demo`, `make test`.
PYTHON ?= python3
BIN := .venv/bin
# Half of the cores stay with the compiler of the other test process.
WORKERS ?= 2

.PHONY: demo test lint format bench scale browser docs clean

demo: .venv/installed
	$(BIN)/untuned demo --out demo --overwrite

test: lint browser
	$(BIN)/python -m pytest -n $(WORKERS) -q

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

APT := apt-get update -qq && apt-get install --yes -qq chromium chromium-driver >/dev/null
# The report's tests drive Debian's Chromium; where it may not be installed they are skipped.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && $(APT); } \
	|| sudo -n sh -c '$(APT)' 2>/dev/null \
	|| echo "No Chromium here and none could be installed: the tests in a browser will be skipped."

# Strict: a link that leads nowhere or a page left out of the menu is an error.
docs: .venv/installed-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: .venv/installed-test
	$(BIN)/python benchmarks/run_all.py

# Every method with 1, 2 and 4 processes, which takes minutes.
scale: .venv/installed-test
	$(BIN)/python -m pytest -q -m slow tests/test_group.py tests/test_sharded.py

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
