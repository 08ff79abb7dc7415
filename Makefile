# From a machine with Python 3.11 or newer: `make demo`, `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-unit check bench lock clean

demo: $(READY)  ## the main job: two Kafka clusters, a mirror that is killed, the verdict
	$(BIN)/mirrortest demo

test: $(READY)  ## every check, on the real lab
	$(BIN)/python -m pytest

test-unit: $(READY)  ## the checks that need no lab
	$(BIN)/python -m pytest tests/unit

check: $(READY)  ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)  ## CPU per message, beside Kafka's own tools
	$(BIN)/python -m tests.bench

lock: $(READY)  ## pin what is installed: versions and hashes, no addresses
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-annotate --no-header \
	  --python-version 3.11 --all-extras --group dev --group lock pyproject.toml -o requirements.lock

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mirrortest needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
