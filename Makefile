# What this lab can do, in one place. `make` alone explains.
#
#   PYTHON=python3.12     the interpreter that .venv is made with (3.11 or newer)
#   TORCH=cpu             PyTorch's CPU build, which saves gigabytes of CUDA libraries on Linux
#   PIP_ARGS="..."        more options for pip
#   FROM=05 or ONLY=05    for walkthrough and notebooks: where to start, or the one to run
#   WORKERS=1             tests at a time; by default one more than there are cores, at most 4

PYTHON = python3
PIP_ARGS =
TORCH =
FROM =
ONLY =
WORKERS = auto
SHARED = -n $(WORKERS) --dist worksteal
VENV = .venv
BIN = $(VENV)/bin
LIMITS = $${FROM:+--from "$$FROM"} $${ONLY:+--only "$$ONLY"}

.PHONY: help venv walkthrough quick test test-all readers lab course site release doctor notebooks clean

help:
	@echo "make walkthrough   run the notebooks in order, compare, and open the site with what ran"
	@echo "                   FROM=05 starts at a notebook, ONLY=05 runs one"
	@echo "make quick         ruff, mypy and the quick tests, in less than two minutes; stops at the first failure"
	@echo "make test          every test that continuous integration runs, notebooks included"
	@echo "make test-all      those, and the nightly ones: slow, and rarely broken"
	@echo "make readers       what no notebook, exercise or documented command executes"
	@echo "make lab           open JupyterLab on notebooks/mine: the notebooks to work in"
	@echo "make course        what the course is, and the commands for students and teachers"
	@echo "make site          the notebooks, ledger, course and documents as a site in build/site"
	@echo "make doctor        check the installation"
	@echo "make venv          only make .venv with the pinned packages; the others do it as needed"
	@echo "make notebooks     run the notebooks in place, to commit their outputs (maintainers)"
	@echo "make release       make lab/release from lab/source (maintainers and teachers)"
	@echo "make clean         remove build/ and caches; .venv stays"
	@echo "Variables: PYTHON=python3.12, TORCH=cpu, PIP_ARGS=..., explained in the Makefile."

venv: $(VENV)/.installed

# Made anew when the pins change; otherwise every run reuses the environment.
$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is missing or older than 3.11; name a newer one: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Installing the pinned packages into $(VENV): once, a few minutes."
	@$(PYTHON) -m venv $(VENV)
	@if [ -z "$(TORCH)" ]; then \
	  $(BIN)/python -m pip install --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e ".[dev]"; \
	else \
	  $(BIN)/python -m pip install --disable-pip-version-check --quiet uv && \
	  $(BIN)/uv pip install --python $(BIN)/python --torch-backend $(TORCH) -c constraints.txt -e ".[dev]"; \
	fi
	@touch $@

walkthrough: $(VENV)/.installed
	@FROM="$(FROM)"; ONLY="$(ONLY)"; $(BIN)/cca-lab walkthrough --show $(LIMITS)

quick: $(VENV)/.installed
	@$(BIN)/python -m pytest -x $(SHARED) -m "not slow and not nightly"

test: $(VENV)/.installed
	@$(BIN)/python -m pytest $(SHARED) -m "not nightly"

test-all: $(VENV)/.installed
	@$(BIN)/python -m pytest $(SHARED)

readers: $(VENV)/.installed
	@$(BIN)/python -m tests.readers

lab: $(VENV)/.installed
	@$(BIN)/cca-lab notebooks --student notebooks/mine
	@JUPYTER_CONFIG_PATH=binder/learner $(BIN)/jupyter lab notebooks/mine  # no menus of nbgrader

course: $(VENV)/.installed
	@echo "Eight assignments. Students open lab/release/; teachers read lab/README.md."
	@echo "  $(BIN)/jupyter lab lab/release                     work on an assignment in JupyterLab"
	@echo "  $(BIN)/cca-lab course check NOTEBOOK               check a notebook"
	@echo "  $(BIN)/python -m pytest lab -m a5_2                check one task of lab/a5.py, without Jupyter"
	@echo "  $(BIN)/cca-lab course grade lab/submitted          grade a class into lab/gradebook.db"
	@echo "  $(BIN)/cca-lab course solutions                    hints and solutions, folded, in lab/solutions"

site: $(VENV)/.installed
	@$(BIN)/cca-lab site

release: $(VENV)/.installed
	@$(BIN)/cca-lab course release

doctor: $(VENV)/.installed
	@$(BIN)/cca-lab doctor

notebooks: $(VENV)/.installed
	@FROM="$(FROM)"; ONLY="$(ONLY)"; $(BIN)/cca-lab notebooks $(LIMITS)

clean:
	rm -rf build .pytest_cache .ruff_cache .hypothesis
