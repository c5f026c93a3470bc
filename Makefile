# Each target does its own set-up: a .venv in this folder, made once and reused.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/
READY := $(VENV)/.ready
CONSTRAINTS ?= constraints.txt

NATIVE := src/sb3_extra_buffers/native
LIBRARY := $(NATIVE)/$(if $(filter Darwin,$(shell uname -s)),libsb3x.dylib,libsb3x.so)

.PHONY: demo test lint types pytest docs bench bench-check torture format native wheels clean

demo: $(LIBRARY)
	$(RUN)python -m sb3_extra_buffers demo

test: lint types pytest

lint: $(READY)
	$(RUN)ruff check .
	$(RUN)ruff format --check .

types: $(READY)
	$(RUN)mypy

pytest: $(LIBRARY)
	$(RUN)pytest tests -n auto

docs: $(LIBRARY)
	$(RUN)sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Benchmarks want a quiet machine.
bench: $(LIBRARY)
	$(RUN)python -m sb3_extra_buffers bench --out benchmarks/results

bench-check: $(LIBRARY)
	$(RUN)python -m sb3_extra_buffers bench --check

# Saved buffers: processes that are killed, damaged and hostile files, full disks. About ten minutes; as root also full disks.
torture: $(LIBRARY)
	$(RUN)python -m tests.torture

format: $(READY)
	$(RUN)ruff check --fix .
	$(RUN)ruff format .

native: $(LIBRARY)

# Here warnings are errors; in builds of users, with compilers we do not know, they are not.
$(LIBRARY): $(wildcard $(NATIVE)/*.[ch]) build_support/compile.py $(READY)
	CFLAGS="-Werror $(CFLAGS)" $(RUN)python build_support/compile.py

# Wheels for all platforms, compiled by zig (a package of 100 MB). The first time takes some minutes, most for Windows.
wheels: $(READY)
	$(RUN)python -m pip install -q -c $(CONSTRAINTS) ziglang
	rm -rf build dist/*.whl
	for platform in $$($(RUN)python build_support/compile.py --platforms); do \
	    CFLAGS="-Werror $(CFLAGS)" SB3_EXTRA_BUFFERS_PLATFORM=$$platform \
	    $(RUN)python -m build --wheel --no-isolation || exit 1; \
	done
	$(RUN)python build_support/check_wheels.py dist/*.whl

# torch is installed first and pinned: on Linux an unpinned torch brings several GB of CUDA packages.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN)python -m pip install -q --upgrade pip
	$(RUN)python -m pip install -q -c $(CONSTRAINTS) torch
	$(RUN)python -m pip install -q -c $(CONSTRAINTS) -e ".[dev]"
	touch $(READY)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis demo_output
	rm -f $(NATIVE)/libsb3x.* $(NATIVE)/sb3x.dll

include native.mk
