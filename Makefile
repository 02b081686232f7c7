# make demo    a simulated study, fitted and shown; says where its report is
# make test    the test suite
# make docs    the documentation; says where it is
# make lint    style, types, imports, spelling
# make clean   remove the environment and caches
#
# Each command makes .venv and installs what it needs; nothing is installed twice. To use another
# interpreter: make test PYTHON=python3.13 (after make clean). More for pytest: make test ARGS="-k prior".

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two workers; each gets one BLAS thread, because more workers than cores at one product slow all of them.
WORKERS ?= 2
ARGS ?=
export OPENBLAS_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test docs lint clean

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

demo: $(VENV)/.installed
	@$(BIN)/foldless demo

test: $(VENV)/.installed-test
	@$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

# Every warning is an error: a page that cannot be built as it is meant, or a link that leads nowhere. Nothing is
# fetched.
docs: $(VENV)/.installed-docs
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build/html
	@echo "The documentation is in docs/_build/html/index.html"

# All checks run, so that one visit shows everything there is to mend.
lint: $(VENV)/.installed-lint
	@failed=""; \
	check() { echo "--- $$*"; "$$@" || failed="$$failed $$(basename $$1)"; }; \
	check $(BIN)/ruff check .; \
	check $(BIN)/ruff format --check .; \
	check $(BIN)/mypy; \
	check $(BIN)/lint-imports; \
	check $(BIN)/codespell; \
	if [ -n "$$failed" ]; then echo "lint failed:$$failed" >&2; exit 1; fi

clean:
	rm -rf $(VENV) docs/_build docs/gallery .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

# The package is installed in place: only a change of pyproject.toml asks for a new installation.
$(VENV)/.installed: pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-test: pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-lint: pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --editable '.[test,lint]'
	@touch $@ $(VENV)/.installed-test $(VENV)/.installed

# pip is the last thing that venv puts in place, so half an environment does not pass for a whole one.
$(BIN)/pip:
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "No $(PYTHON) found. Install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "foldless needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name a newer one: make PYTHON=python3.13" >&2; exit 1; }
	@"$(PYTHON)" -m venv $(VENV) || { \
	  echo "$(PYTHON) cannot make environments; on Debian and Ubuntu install the package python3-venv." >&2; exit 1; }
