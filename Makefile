# Everything a checkout needs; only Python (3.10 or newer) and make are taken for granted.
PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= dev
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# OpenMP threads that wait shall sleep: spinning ones take the core they wait for.
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: help install demo test serve lint bench clean

help: ## What can be made
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

install: $(READY) ## A virtual environment with all that is needed

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[$(EXTRAS)]'
	touch $(READY)

demo: $(READY) ## Segment, synthesize and look into a real brain slice; pictures in demo/
	$(BIN)/caps-med demo --out demo

test: $(READY) lint ## Lint, types, import rules and all tests
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: $(READY) ## Style, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy caps_med training api tests benchmarks
	$(BIN)/lint-imports

serve: $(READY) ## The HTTP service on http://127.0.0.1:8000
	$(BIN)/caps-med serve

bench: $(READY) ## Speed and memory against the published style and MONAI's U-Net
	$(BIN)/python -m benchmarks

clean: ## Remove what make made
	rm -rf $(VENV) build dist demo .mypy_cache .ruff_cache .pytest_cache
