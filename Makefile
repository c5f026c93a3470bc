# Each target does its own set-up: a .venv in this folder, made once and reused.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/
READY := $(VENV)/.ready

.PHONY: demo test lint types pytest docs bench bench-check format clean

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

docs: $(READY)
	$(RUN)sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Benchmarks want a quiet machine.
bench: $(READY)
	$(RUN)python -m sb3_extra_buffers bench --out benchmarks/results

bench-check: $(READY)
	$(RUN)python -m sb3_extra_buffers bench --check

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
