# make demo          a simulated study, fitted and shown; says where its report is
# make test          the test suite, without studies
# make test-studies  the tests marked `study`: studies in small, simulations of many data sets
# make studies-check reruns cells of every study: do committed results still hold? Eight minutes; DATA=DIR
# make test-cpus     the numerical tests as on other processors: all kinds, or CPUS="Haswell Nehalem+no-avx2"
# make test-oldest   the test suite with the oldest dependencies that pyproject.toml allows
# make trust         the long forms of what docs/trust.md shows: hours; SHARE=0.05 for a twentieth
# make coverage      lines and branches that no test reaches
# make docs          the documentation; says where it is
# make lint          style, types, imports, spelling
# make dist-check    wheel and sdist, built twice, installed and tried in an empty environment
# make lock          the versions that CI installs, anew: packaging/constraints.txt
# make audit         known vulnerabilities of what is installed; fails, too, where the advisories cannot be reached
# make hooks         the same before every commit, by pre-commit
# make clean         remove the environments and caches
#
# Each command makes .venv and installs what it needs; nothing is installed twice. To use another
# interpreter: make test PYTHON=python3.13 (after make clean). More for pytest: make test ARGS="-k prior".

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two workers; each gets one BLAS thread, because more workers than cores at one product slow all of them.
WORKERS ?= 2
ARGS ?=
# Kinds of processors; see tools/test_on_cpus.py.
CPUS ?=
SHARE ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-studies studies-check test-cpus test-oldest trust coverage docs lint dist-check lock audit hooks clean

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

demo: $(VENV)/.installed
	@$(BIN)/foldless demo

test: $(VENV)/.installed-test
	@$(BIN)/python -m pytest -n $(WORKERS) -m "not study" $(ARGS)

test-studies: $(VENV)/.installed-test
	@$(BIN)/python -m pytest -n $(WORKERS) -m study $(ARGS)

studies-check: $(VENV)/.installed-test
	@$(BIN)/python -m benchmarks.check $(if $(DATA),--data $(DATA)) $(ARGS)

test-cpus: $(VENV)/.installed-test
	@$(BIN)/python tools/test_on_cpus.py --cpus "$(CPUS)" -- -n $(WORKERS) -m "not study" $(ARGS)

test-oldest: $(VENV)-oldest/.installed-test
	@$(VENV)-oldest/bin/python -m pytest -n $(WORKERS) -m "not study" $(ARGS)

trust: $(VENV)/.installed-test
	@$(BIN)/python -m benchmarks.trust.run --share $(SHARE) $(ARGS)

coverage: $(VENV)/.installed-coverage
	@$(BIN)/python -m pytest -n $(WORKERS) -m "not study" --cov --cov-report=term --cov-report=html $(ARGS)
	@echo "Line by line: htmlcov/index.html"

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

dist-check: $(BIN)/pip
	@$(BIN)/python -m pip install --quiet build
	@$(BIN)/python tools/check_dist.py

lock: $(BIN)/pip
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade --no-header --no-annotate \
	  --no-emit-index-url --extra test --extra docs --extra lint --extra coverage \
	  --output-file packaging/constraints.txt pyproject.toml

audit: $(BIN)/pip
	@$(BIN)/python -m pip install --quiet pip-audit
	@$(BIN)/pip-audit --local --skip-editable --strict --progress-spinner off

hooks: $(VENV)/.installed-lint
	@$(BIN)/pre-commit install

clean:
	rm -rf $(VENV) $(VENV)-oldest docs/_build docs/gallery docs/api/generated dist htmlcov .coverage .coverage.*
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

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

$(VENV)/.installed-coverage: pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --editable '.[coverage]'
	@touch $@ $(VENV)/.installed-test $(VENV)/.installed

# The lowest version of every direct dependency that has a wheel for this Python.
$(VENV)-oldest/.installed-test: pyproject.toml
	rm -rf $(VENV)-oldest
	"$(PYTHON)" -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet uv
	$(VENV)-oldest/bin/uv pip compile --quiet --resolution lowest-direct --only-binary :all: --extra test \
	  --python $(VENV)-oldest/bin/python --output-file $(VENV)-oldest/oldest.txt pyproject.toml
	$(VENV)-oldest/bin/python -m pip install --quiet --requirement $(VENV)-oldest/oldest.txt
	$(VENV)-oldest/bin/python -m pip install --quiet --no-deps --editable .
	@touch $@

# pip is the last thing that venv puts in place, so half an environment does not pass for a whole one.
$(BIN)/pip:
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "No $(PYTHON) found. Install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "foldless needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name a newer one: make PYTHON=python3.13" >&2; exit 1; }
	@"$(PYTHON)" -m venv $(VENV) || { \
	  echo "$(PYTHON) cannot make environments; on Debian and Ubuntu install the package python3-venv." >&2; exit 1; }
