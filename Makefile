# Every command of the project; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Instead of pip, which compiles one file after the other: on all processors, without what packages have of tests. As
# with pip, a file that cannot be compiled is left as it is.
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x /tests/ $(VENV)/lib || true

# Names, versions and hashes only, for every platform and Python from 3.11 on; no addresses.
LOCK = $(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-header

define LOCK_NOTE
# Pinned versions of everything fepflow needs; made by `make lock`, installed with pip's --require-hashes.
# fastapi is held below 0.151: Prefect 3.8.8 answers 422 to read_flow_runs() with 0.151 to 0.154, and does not start
# with 0.155 and newer.
# sqlalchemy is held below 2.1: with it Prefect 3.8.8's scheduler fails once a minute, and no scheduled run ever comes.
endef
export LOCK_NOTE

# Prefect asks for sqlalchemy[asyncio]; pip before 23.3 takes a pin of the plain name for another package. So both stand.
define LOCK_EXTRA
{ print }
/^sqlalchemy==/ { pinned = 1 }
pinned { block = block $$0 "\n" }
pinned && !/\\$$/ { pinned = 0; sub(/^sqlalchemy==/, "sqlalchemy[asyncio]==", block); printf "%s", block }
endef
export LOCK_EXTRA

.DEFAULT_GOAL := help
.PHONY: help setup demo test unit battery check format proto docs bench dist audit lock clean

help: ## List the commands.
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(VENV)/.installed ## Install fepflow into .venv, from pinned versions.

demo: setup ## Run the shipped suite against a stand-in agent, and show where to look.
	@$(BIN)/python -m fepflow.deployments.demo

test: $(VENV)/.installed-dev ## Run all tests.
	@$(BIN)/python -m pytest -n 5 --dist loadfile --no-loadscope-reorder

unit: $(VENV)/.installed-dev ## Run the tests that need neither server, browser nor database.
	@$(BIN)/python -m pytest -m "unit and not battery" -n 2 --dist loadfile --no-loadscope-reorder

battery: $(VENV)/.installed-dev ## Kill and cut off everything, many times; takes two hours, PART=1/12 a twelfth of it.
	@$(BIN)/python -m pytest -m battery -v -o log_cli=true -o log_cli_level=INFO $(if $(PART),--part $(PART))

check: $(VENV)/.installed-dev ## Check format, lint, types, floors and dead code.
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy .
	@$(BIN)/python -m pytest -q tests/test_floors.py tests/test_project.py
	@$(BIN)/vulture

format: $(VENV)/.installed-dev ## Format the code.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

proto: $(VENV)/.installed-dev ## Make the code of the gRPC messages from their description.
	@$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. fepflow/api/grpc/fep/v1/fep.proto

docs: $(VENV)/.installed-dev ## Build the documentation's site into build/site.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "Open build/site/index.html; \`$(BIN)/mkdocs serve\` rebuilds it while you write."

bench: $(VENV)/.installed-bench ## Measure speed and memory against the budgets.
	@$(BIN)/python -m benchmarks

# The time of the commit in place of today's makes a wheel that is the same to the byte wherever it is built.
dist: $(VENV)-release/.installed ## Build the wheel, the sdist and the SBOM into dist, and check them.
	@rm -rf dist build/lib build/bdist.* build/from-git
	@export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) PATH="$(CURDIR)/$(VENV)-release/bin:$$PATH"; set -e; \
		python -m build --quiet; \
		python -m build --quiet --wheel --outdir build/from-git; \
		cmp dist/*.whl build/from-git/*.whl || { echo "error: the sdist builds another wheel than git's files"; exit 1; }; \
		twine check --strict dist/*; \
		check-wheel-contents dist/*.whl; \
		version=$$(basename dist/*.tar.gz .tar.gz); version=$${version#fepflow-}; \
		sed "s/^dynamic = .*/version = \"$$version\"/" pyproject.toml > build/from-git/pyproject.toml; cp LICENSE build/from-git; \
		python -W ignore -m cyclonedx_py requirements requirements.lock --pyproject build/from-git/pyproject.toml \
			--output-reproducible --output-file dist/fepflow-$$version.cdx.json; \
		ls -l dist

audit: $(VENV)-release/.installed ## Look for known vulnerabilities in the pinned versions.
	@$(VENV)-release/bin/pip-audit --requirement requirements.lock --disable-pip --strict --progress-spinner off

lock: ## Resolve the pinned versions anew (requirements*.lock).
	@$(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/pip install --quiet uv
	@$(LOCK) --extra dev pyproject.toml -o requirements-dev.lock
	@$(LOCK) --extra serve --extra postgres --extra a2a --extra mcp --extra otel --extra remote \
		-c requirements-dev.lock pyproject.toml -o requirements.lock
	@$(LOCK) --group release -o requirements-release.lock
	@for lock in requirements.lock requirements-dev.lock; do \
		{ echo "$$LOCK_NOTE"; awk "$$LOCK_EXTRA" $$lock; } > $$lock.new && mv $$lock.new $$lock; done
	@sed -i '1i # Pinned versions of the programs of `make dist` and `make audit`; made by `make lock`.' requirements-release.lock

clean: ## Remove the environment and everything built.
	rm -rf $(VENV) $(VENV)-lock $(VENV)-release build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fepflow needs Python 3.11 or newer: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements.lock pyproject.toml | $(BIN)/python
	@echo "Installing into $(VENV); this takes a minute or two, once."
	@$(PIP) install --no-compile --require-hashes -r requirements.lock
	@$(PIP) install --no-deps -e .
	@$(COMPILE)
	@$(BIN)/python -m compileall -q fepflow fepflow/checks fepflow/tasks fepflow/flows fepflow/deployments
	@touch $@

$(VENV)/.installed-dev: requirements-dev.lock $(VENV)/.installed
	@$(PIP) install --no-compile --require-hashes -r requirements-dev.lock
	@$(COMPILE)
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed-dev
	@$(PIP) install "flex-evals==0.4.0" "pydantic-evals>=1"
	@touch $@

$(VENV)-release/.installed: requirements-release.lock
	@$(PYTHON) -m venv $(VENV)-release
	@$(VENV)-release/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r $<
	@touch $@
