# make demo: the five studies on real images, report in runs/report.html.  make test: style, types, tests.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test lint install clean
install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[train,slurm,dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/ablate run demo
	$(BIN)/ablate report demo --out runs/report.html

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -q -n 2 -m 'not slow'
