# Each target does its own set-up: a .venv in this folder, made once and reused.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/
READY := $(VENV)/.ready

.PHONY: demo test lint types pytest format clean

demo: $(READY)
	$(RUN)python -m sb3_extra_buffers demo

test: lint types pytest

lint: $(READY)
	$(RUN)ruff check .
	$(RUN)ruff format --check .

types: $(READY)
	$(RUN)mypy

pytest: $(READY)
	$(RUN)pytest tests -n auto

format: $(READY)
	$(RUN)ruff check --fix .
	$(RUN)ruff format .

# torch is installed first and pinned: on Linux an unpinned torch brings several GB of CUDA packages.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN)python -m pip install -q --upgrade pip
	$(RUN)python -m pip install -q -c constraints.txt torch
	$(RUN)python -m pip install -q -c constraints.txt -e ".[dev]"
	touch $(READY)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis demo_output
