# From a machine with Python 3.11 or newer, its headers and a C compiler: `make demo`, `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := $(VENV)/.peers
KEPT := $(VENV)/.kept
SITE := $(VENV)/.site

# Each file's tests in one process, in the order of tests/scheduling.py. They wait for clusters and for
# deadlines: four of them keep two cores busy, and two of the four have no lab.
WORKERS ?= 4
BY_FILE := --dist loadfile --no-loadscope-reorder

# Many processes are started here: none of them is to compile its modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo nightly test test-failed test-unit check bench instructions profile bench-reconcile calibrate scenarios oracle simulate \
  flips mutants peers lock clean images kafka-image prometheus-image test-docker local-base \
  check-chart kept-lab kept-spark kept-tests e2e-kubernetes dashboards check-dashboards dashboard-linter \
  e2e-prometheus docs reference screenshots wheel

demo: $(READY)  ## the main job: two Kafka clusters, a mirror that is killed, the verdict
	$(BIN)/mirrortest run demo

NIGHTLY ?= one-pair latency-at-rates kill-source-broker restart-mirror
nightly: $(READY)  ## scenarios compared with the nights before; NIGHTLY="NAME..." ARGS="--set KEY=VALUE"
	$(BIN)/mirrortest run $(NIGHTLY) --history build/nightly --keep 30 $(ARGS)

test: $(KEPT)  ## every check, on the real lab
	$(BIN)/python -m pytest -n $(WORKERS) $(BY_FILE)

test-failed: $(READY)  ## what failed in the last run, one after the other
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none

test-unit: $(READY)  ## the checks that start no cluster, no Spark, no browser and no other server
	$(BIN)/python -m pytest -n $(WORKERS) $(BY_FILE) tests/unit

check: $(PEERS)  ## lint, format, types: of the benchmarks, too
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

oracle: $(READY)  ## 200,000 random histories, judged as the brute-force judge does; ARGS="--spark"
	$(BIN)/python -m tests.oracle $(ARGS)

flips: $(READY)  ## 20,000 single bits flipped in a run's logs: each is refused or reported as damage
	$(BIN)/python -m tests.flips $(ARGS)

simulate: $(READY)  ## 200,000 random histories of the real applications, in virtual time; ARGS="--replay TAPE"
	$(BIN)/python -m tests.simulation $(ARGS)

mutants: $(READY)  ## a million changed records of every kind that is read from a topic; ARGS="--count 40000"
	$(BIN)/python -m tests.mutants $(ARGS)

bench: $(PEERS)  ## CPU per message, beside the tools that people use; ARGS="--parts curves memory"
	$(BIN)/python -m tests.bench $(ARGS)

docs: $(SITE)  ## the documentation as a site, in build/docs; needs no network once installed
	$(BIN)/sphinx-build -q -n -W --keep-going -j auto -c docs -d build/doctrees -b html . build/docs
	@echo "open build/docs/docs/index.html"

reference: $(READY)  ## write what docs/reference has from the code
	$(BIN)/python -m docs.generated

screenshots: $(READY)  ## docs/images, of a run of the demo, in Chromium; ARGS=DIRECTORY of a run that is there
	$(BIN)/python -m docs.screenshots $(ARGS)

instructions: $(READY)  ## machine instructions per message, which no busy machine changes (valgrind)
	$(BIN)/python -m tests.bench.instructions

profile: $(PEERS)  ## where the time of producing and verifying goes; ARGS="--size 100"
	$(BIN)/python -m tests.bench.profile $(ARGS)

bench-reconcile: $(PEERS)  ## ours, naive Spark, DuckDB and Polars on the same logs; ARGS="--sizes 1e6"
	$(BIN)/python -m tests.bench_reconcile $(ARGS)

scenarios: $(READY)  ## those that come with it, each at a small size; ARGS="NAME... --output DIR"
	$(BIN)/python -m tests.scenarios $(ARGS)

calibrate: $(READY)  ## recall and precision of every finding over 5 million messages
	$(BIN)/mirrortest calibrate --messages 5000000 --rate 0.0001 --seed 7 \
	  --throughput 20000 --deadline 60s

# The images of deploy/Dockerfile. Where no image can be pulled: `make local-base`, then
# `make images BASE_IMAGE=mirrortest-base:local BUILD_IMAGE=mirrortest-build:local`.
DOCKER ?= docker
IMAGE ?= mirrortest
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' mirrortest/__init__.py)
TAG ?= $(VERSION)
KAFKA_IMAGE ?= mirrortest-kafka:local
PROMETHEUS_IMAGE ?= mirrortest-prometheus:local
IMAGE_ARGUMENTS = --build-arg VERSION=$(VERSION) \
  --build-arg REVISION=$(or $(shell git rev-parse HEAD 2>/dev/null),unknown) \
  $(foreach name,BASE_IMAGE BUILD_IMAGE PIP_INDEX_URL UV_DEFAULT_INDEX,\
    $(if $($(name)),--build-arg $(name)=$($(name)))) \
  $(if $(SOURCE),--label org.opencontainers.image.source=$(SOURCE))

check-chart: $(READY)  ## the chart: lint, every manifest valid for each Kubernetes, refusals; HELM= and HELM3=
	$(BIN)/python -m pytest tests/chart tests/unit/test_chart.py

# On the Kubernetes of KUBECONFIG. MIRRORTEST_E2E_HOST is an address of this machine that its pods
# reach, MIRRORTEST_E2E_LOAD what gives an image archive to its nodes (`kind load image-archive`).
# Without a cluster, as root: `tests/kubernetes/with-cluster make e2e-kubernetes`.
e2e-kubernetes: $(READY)  ## images, two releases of the chart, faults, the verdict: docs/how-to/kubernetes.md
	$(MAKE) images IMAGE=mirrortest TAG=e2e
	$(BIN)/python -m pytest -n 2 tests/kubernetes

dashboards: $(READY)  ## write dashboards and alerts anew, of grafana/*.py, and the chart's copies
	$(BIN)/python -m grafana
	$(BIN)/python -m helm.generated

check-dashboards: $(READY)  ## they are what the code makes; alerts and their tests, by promtool
	$(BIN)/python -m grafana --check
	$(BIN)/python -m pytest -q tests/unit/test_dashboards.py tests/unit/test_alerts.py \
	  tests/prometheus/test_prometheus_rules.py

dashboard-linter: $(READY)  ## Grafana's linter into the cache, by Go; with the other tools
	$(BIN)/python -m tests.prometheus.tools

e2e-prometheus: $(READY)  ## a real Prometheus on real runs: every panel has data, every alert fires
	$(BIN)/python -m pytest tests/prometheus

wheel: $(READY)  ## dist/mirrortest-*.whl, for this Python version and platform
	$(BIN)/python -m hatchling build -t wheel -d dist

images:  ## the images IMAGE:TAG (produce, consume) and IMAGE-reconcile:TAG (Spark)
	$(DOCKER) build -q -f deploy/Dockerfile --target mirrortest $(IMAGE_ARGUMENTS) -t $(IMAGE):$(TAG) .
	$(DOCKER) build -q -f deploy/Dockerfile --target reconcile $(IMAGE_ARGUMENTS) -t $(IMAGE)-reconcile:$(TAG) .

kafka-image:  ## Kafka and MirrorMaker 2 as KAFKA_IMAGE, where the public image cannot be pulled
	$(DOCKER) build -q -f deploy/kafka.Dockerfile $(IMAGE_ARGUMENTS) -t $(KAFKA_IMAGE) .

prometheus-image:  ## Prometheus as PROMETHEUS_IMAGE, likewise
	$(DOCKER) build -q -f deploy/prometheus.Dockerfile $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) \
	  -t $(PROMETHEUS_IMAGE) deploy

# Without an engine that runs, as root: `tests/docker/with-engine make test-docker`.
test-docker: $(READY)  ## images, Compose, and the lab's own tests in containers: needs a Docker Engine
	MIRRORTEST_LAB_RUNTIME=docker $(if $(shell $(DOCKER) image inspect -f 1 $(KAFKA_IMAGE) 2>/dev/null),\
	  MIRRORTEST_KAFKA_IMAGE=$(KAFKA_IMAGE)) \
	  $(BIN)/python -m pytest -n 2 $(BY_FILE) tests/docker \
	  tests/lab/test_lab_mirror.py tests/lab/test_scenarios_mirror.py

local-base:  ## base images of Debian's packages, as root, where none can be pulled
	deploy/local-base

lock: $(READY)  ## pin what is installed: versions and hashes, no addresses
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-annotate --no-header \
	  --python-version 3.11 --all-extras --group dev --group lock pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-annotate --no-header \
	  --python-version 3.11 --group bench -o requirements-bench.lock
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-annotate --no-header \
	  --python-version 3.11 --group docs --constraints requirements.lock -o requirements-docs.lock

# What is compiled is installed anew, too, when its source changes.
$(READY): requirements.lock pyproject.toml hatch_build.py $(wildcard mirrortest/wire/*.pyx)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mirrortest needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# Once for an environment: what Java keeps of Kafka and Spark, for tests start both many times; and the
# tests, compiled with what pytest makes of their assertions, for four processes import all of them.
$(KEPT): $(READY)
	$(MAKE) --no-print-directory -j 2 kept-lab kept-spark kept-tests
	touch $@

kept-lab:
	$(BIN)/python -m mirrortest.lab.archive

kept-spark:
	$(BIN)/python -m mirrortest.reconcile.archive

# What is wrong with a test is said where it is run.
kept-tests:
	-@$(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1

peers: $(PEERS)  ## install what the benchmarks compare with; their tests run where it is there

$(PEERS): requirements-bench.lock $(READY)
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-bench.lock
	touch $@

$(SITE): requirements-docs.lock $(READY)
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-docs.lock
	touch $@

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f mirrortest/wire/*.so mirrortest/wire/*.so.*.new
