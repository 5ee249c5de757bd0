# Two commands do all set-up on a machine with Python 3.11 or later and make: `make demo`, `make test`.
PYTHON ?= python3
BIN := .venv/bin
# Half of the cores stay with the compiler of the other test process.
WORKERS ?= 2

.PHONY: demo quick test floors lint format bench results scale browser docs faults fuzz soak audit clean

demo: .venv/installed
	$(BIN)/untuned demo --out demo --overwrite

# What a change is tried with. pyproject.toml says what the markers mean.
QUICK := not slow and not long and not process and not browser and not real_data
quick: lint
	$(BIN)/python -m pytest -n $(WORKERS) -q -m '$(QUICK)'

test: lint browser
	$(BIN)/python -m pytest -n $(WORKERS) -q

# The tests of `quick` on the oldest versions that pyproject.toml allows. Old packages use names that
# newer ones beneath them deprecate, which is no fault of ours.
OLD := -W ignore::DeprecationWarning -W ignore::FutureWarning
floors: .venv-floors/installed
	.venv-floors/bin/python -m pytest -n $(WORKERS) -q -m '$(QUICK)' $(OLD)

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

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

# Proof that takes longer than a test (docs/faults.md).
faults: .venv/installed-test
	$(BIN)/python -m pytest -q -m slow tests/run/test_faults.py

FUZZ ?= 50
SECONDS ?= 60
fuzz: .venv/installed-fuzz
	UNTUNED_FUZZ=$(FUZZ) $(BIN)/python -m pytest -q tests/test_bad_input.py tests/tables/test_bad_files.py tests/tables/test_user_records.py
	$(BIN)/python fuzz/run.py all --seconds $(SECONDS) --count $(FUZZ)

MINUTES ?= 60
soak: .venv/installed-test
	$(BIN)/python benchmarks/soak.py --minutes $(MINUTES)

# The list of known weaknesses is on the network: where it is not, that is said and is no failure.
audit: .venv/installed-audit
	@$(BIN)/python .ci/audit.py

bench: .venv/installed-test
	$(BIN)/python benchmarks/run_all.py

# The tables of docs/results.md, from one run of everything; started again, it goes on.
RESULTS ?= results
results: .venv/installed-test
	$(BIN)/untuned reproduce all --quick --out $(RESULTS)
	$(BIN)/python benchmarks/results_page.py $(RESULTS)

# Every method with 1, 2 and 4 processes, which takes minutes.
scale: .venv/installed-test
	$(BIN)/python -m pytest -q -m slow tests/ops/test_group.py tests/ops/test_sharded.py

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

# One pip call with torch pinned: an unpinned torch would bring gigabytes of GPU libraries.
.venv/installed-test: .venv/bin/python pyproject.toml paper/pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]' --editable ./paper
	touch $@

.venv-floors/installed: pyproject.toml paper/pyproject.toml .ci/floors.txt
	$(PYTHON) -m venv --clear .venv-floors
	.venv-floors/bin/pip install --quiet --constraint .ci/floors.txt --editable '.[test]' --editable ./paper
	touch $@

.venv/installed-audit .venv/installed-fuzz: .venv/installed-%: .venv/installed-test
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test,$*]'
	touch $@

clean:
	rm -rf .venv .venv-floors demo site build dist .mypy_cache .pytest_cache .ruff_cache
