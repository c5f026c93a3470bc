# Each target does its own set-up: a .venv in this folder, made once and reused.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/
READY := $(VENV)/.ready
CONSTRAINTS ?= constraints.txt

NATIVE := src/sb3_extra_buffers/native
LIBRARY := $(NATIVE)/$(if $(filter Darwin,$(shell uname -s)),libsb3x.dylib,libsb3x.so)

# Options of pip for torch alone. PyPI's torch for Linux brings several GB of CUDA packages; without them:
#   make test TORCH_FLAGS="--index-url https://download.pytorch.org/whl/cpu"
TORCH_FLAGS ?=

.PHONY: demo test lint types pytest docs bench bench-check torture kills extras constraints format native wheels clean

demo: $(LIBRARY)
	$(RUN)python -m sb3_extra_buffers demo

test: lint types pytest

lint: $(READY)
	$(RUN)ruff check .
	$(RUN)ruff format --check .

types: $(READY)
	$(RUN)mypy

pytest: $(LIBRARY)
	$(RUN)pytest tests -n auto --dist loadgroup

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

# Trainings on Ray whose collectors, shards and learners are killed at random, 30 times. About a quarter of an hour.
kills: $(LIBRARY)
	$(RUN)python -m tests.distributed_kills

# The wheel with no extra, with each alone and with all. About a quarter of an hour.
extras: $(READY)
	TORCH_FLAGS="$(TORCH_FLAGS)" $(RUN)python build_support/check_extras.py

# Pins for Python 3.10 to 3.13 on all platforms. Keeps the pins that still fit; `make constraints UV_FLAGS=--upgrade` takes new ones.
constraints: $(READY)
	$(RUN)python -m pip install -q uv
	$(RUN)uv pip compile -q pyproject.toml --extra dev --group wheels --universal --python-version 3.10 --no-annotate \
	    --custom-compile-command "make constraints" $(UV_FLAGS) -o constraints.txt

format: $(READY)
	$(RUN)ruff check --fix .
	$(RUN)ruff format .

native: $(LIBRARY)

# Here warnings are errors; in builds of users, with compilers we do not know, they are not.
$(LIBRARY): $(wildcard $(NATIVE)/*.[ch]) build_support/compile.py $(READY)
	CFLAGS="-Werror $(CFLAGS)" $(RUN)python build_support/compile.py

# Wheels for all platforms, compiled by zig (a package of 100 MB). The first time takes some minutes, most for Windows.
wheels: $(READY)
	$(RUN)python -m pip install -q -c $(CONSTRAINTS) --group wheels
	rm -rf build dist/*.whl
	for platform in $$($(RUN)python build_support/compile.py --platforms); do \
	    CFLAGS="-Werror $(CFLAGS)" SB3_EXTRA_BUFFERS_PLATFORM=$$platform \
	    $(RUN)python -m build --wheel --no-isolation || exit 1; \
	done
	$(RUN)python build_support/check_wheels.py dist/*.whl

# torch is installed first, because TORCH_FLAGS are for it alone.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN)python -m pip install -q --upgrade pip
	$(RUN)python -m pip install -q -c $(CONSTRAINTS) torch $(TORCH_FLAGS)
	$(RUN)python -m pip install -q -c $(CONSTRAINTS) -e ".[dev]"
	touch $(READY)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis demo_output
	rm -f $(NATIVE)/libsb3x.* $(NATIVE)/sb3x.dll

include native.mk
