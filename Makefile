# Every target works as the first command after a clone on Debian 12+ or Ubuntu 24.04+ as root: it
# installs missing packages, prints their names, and stops the processes that it starts.
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help lint unit test test-ci test-faults test-host test-games mutants demo up bench fuzz clean lock install
.PHONY: soak wheel install-agent install-controlplane uninstall-agent uninstall-controlplane
.DELETE_ON_ERROR:

# PART=, with test-faults: one part of it. AGAIN=1 also runs tests that passed at this commit. SEED=
# repeats random choices. With CI=true, a test that needs Docker fails where it would be skipped, as
# while another engine is running.
DEBIAN := $(shell . /etc/os-release && echo $$VERSION_CODENAME)
ENGINES := bookworm trixie sid
PARTS := rounds prepared soak $(filter-out $(DEBIAN),$(ENGINES)) python
ifneq ($(filter $(ENGINES),$(PART)),)
ENGINE := $(PART)
endif
ifeq ($(PART),python)
export PYTHON := $(or $(shell .ci/prerequisites find-newest-python),$(error there is no such Python))
endif
TESTS_OF_PART := -m 'not host$(if $(ENGINE), and (docker or fault))'
ifeq ($(PART),rounds)
TESTS_OF_PART := -m 'not host and not soak and (fault or thorough or fuzz)' --long
endif
# The faults of a real engine once more, with agents that keep prepared containers.
ifeq ($(PART),prepared)
export TILTYARD_TEST_PREPARED := 8
TESTS_OF_PART := -m 'fault and docker and not host and not soak'
endif
# Examples of each call. The gate runs a twentieth of them, too few to reach every response.
ifneq ($(filter rounds,$(PART))$(filter fuzz,$(MAKECMDGOALS)),)
export COUNT ?= 200
endif
ifeq ($(PART),soak)
MINUTES ?= $(if $(HOURS),$$(($(HOURS) * 60)))
TESTS_OF_PART := -m soak tests/docker/test_soak.py --capture=no --long \
  $(if $(MINUTES),--minutes=$(MINUTES))
endif

# ENGINE=bookworm|trixie|sid, with any target: the Docker Engine of that Debian, not this machine's.
ifdef ENGINE
export TILTYARD_TEST_ENGINE := $(ENGINE)
export PATH := $(CURDIR)/build/engines/$(ENGINE)/bin:$(PATH)
endif

# PYTHON=<path>, with any target: that Python, in an environment of its own.
VENV := $(if $(PYTHON),build/$(notdir $(PYTHON)),.venv)
PYTEST := $(VENV)/bin/python -m pytest
# Tests begin hundreds of processes, which should not compile the same modules again.
unexport PYTHONDONTWRITEBYTECODE
# One worker more than cores, because tests wait; tests that share an engine or a registry run in one.
BESIDE := --dist loadgroup --no-loadscope-reorder --numprocesses $(shell expr $$(nproc) + 1)
SLOWEST := --durations=40 --durations-min=5
STAMP := $(VENV)/.tiltyard-installed
# npm writes this file last.
NODE_PACKAGES := build/node/node_modules/.package-lock.json
BUILDER := build/wheel-venv/bin/python
# A copy of the sources, with the first process of containers for the machines of the wheel.
UNPACKED := build/wheel-sources

# The first process of containers, a C program without a C library: neither the compiler nor the
# machine that runs it needs one. ARCH=x86_64|aarch64, with wheel: the machines of the wheel.
MACHINE := $(shell uname -m)
ARCH ?= $(MACHINE)
INIT := agent/init/bin/tiltyard-init
INIT_FLAGS := -std=gnu17 -Os -Wall -Wextra -Wconversion -Werror -ffreestanding -nostdlib \
  -fno-tree-loop-distribute-patterns -fno-stack-protector -fvisibility=hidden \
  -fno-unwind-tables -fno-asynchronous-unwind-tables \
  -fPIE -static-pie -s -Wl,--no-dynamic-linker,--build-id=none,-z,noexecstack,-z,norelro

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 24

# Prints the lines that lock one package.
LOCKED_ONLY = awk '/^[^ \#]/ {wanted = /^$(1)==/} wanted' requirements-dev.txt

# If the Python of the environment is gone, as after an upgrade of the system, it is created again.
define INSTALLED
@$(VENV)/bin/python -c '' 2>/dev/null || rm -f $(STAMP) 2>/dev/null \
  || { echo 'install: $(VENV) is another user'"'"'s: be that user, or remove it' >&2; exit 1; }
@$(MAKE) --silent $(STAMP)
endef

install: ## create .venv with the locked packages and both programs
	@.ci/prerequisites python
	$(INSTALLED)
	@$(MAKE) --silent $(INIT)

lint: install ## run ruff, mypy and the check of the import layers
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports --no-cache
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy docs/examples/*.py

unit: install ## run tests/unit, without root or Docker, in about a minute; PYTEST_ARGS=...
	@exec $(PYTEST) $(BESIDE) tests/unit $(PYTEST_ARGS)

test: everything ## run all tests except slow ones, with real Docker; PYTEST_ARGS=... ENGINE=sid
	@exec $(PYTEST) $(BESIDE) $(SLOWEST) -m "not slow and not host and not thorough" $(PYTEST_ARGS)

test-ci: everything ## run the slow tests; PYTEST_ARGS=...
	@exec $(PYTEST) $(BESIDE) $(SLOWEST) -m "slow and not host and not soak and not thorough" \
	  $(PYTEST_ARGS)

ifdef PART
test-faults: everything
	@exec env CI=true $(PYTEST) $(if $(filter-out soak,$(PART)),$(BESIDE)) $(TESTS_OF_PART) \
	  --part=$(PART) --evidence=docs/evidence.md $(if $(AGAIN),--again) $(if $(SEED),--seed=$(SEED)) $(PYTEST_ARGS)
else
test-faults: ## run the fault tests; PART=rounds|prepared|soak|trixie|sid|python AGAIN=1
	@failed=; for part in $(PARTS); do \
	  $(MAKE) test-faults PART=$$part || failed="$$failed $$part"; \
	done; [ -z "$$failed" ] || { echo "test-faults: failed:$$failed" >&2; exit 1; }
endif

soak: ## run the soak of test-faults for a given time; HOURS=24 or MINUTES=3; SEED=...
	@$(MAKE) test-faults PART=soak AGAIN=1

test-host: everything ## install on a whole Debian 13 in QEMU, and inject faults
	@exec $(PYTEST) -m host --part=host --evidence=docs/evidence.md $(if $(AGAIN),--again) \
	  $(if $(findstring tests/host/,$(PYTEST_ARGS)),,tests/host) $(PYTEST_ARGS)

test-games: everything ## build real game servers and play each in a session; PYTEST_ARGS=...
	@exec $(PYTEST) --page=docs/games.md tests/games $(PYTEST_ARGS)

mutants: everything ## apply each known defect and expect a test to fail; ONLY=<part of name or file> FIRST=<name>
	@exec $(VENV)/bin/python -m tests.mutants $(if $(ONLY),--only '$(ONLY)') $(if $(FIRST),--first '$(FIRST)')

demo: everything ## play one session through the public API, step by step
	@exec $(VENV)/bin/python -m tests.demo

up: everything ## run a deployment until Ctrl-C, see .tiltyard/dev.json; ADDRESS=<where games are reached>
	@exec $(VENV)/bin/python -m tests.up $(if $(ADDRESS),--address '$(ADDRESS)')

bench: everything ## run the benchmarks, or one part of them; ONLY=cold
	@exec $(VENV)/bin/python -m tests.bench $(if $(ONLY),--only $(ONLY))

fuzz: everything ## send bad requests to the API; COUNT=<examples of each call> SEED=...
	@exec $(PYTEST) tests/controlplane/test_schemathesis.py

lock: install ## resolve the dependencies of pyproject.toml and package.json again
	$(VENV)/bin/pip-compile --quiet --upgrade --allow-unsafe --generate-hashes --strip-extras \
	  --no-emit-find-links --no-emit-index-url --no-emit-options \
	  --output-file=requirements.txt pyproject.toml
	$(VENV)/bin/pip-compile --quiet --upgrade --allow-unsafe --generate-hashes --strip-extras \
	  --no-emit-find-links --no-emit-index-url --no-emit-options \
	  --extra=dev --constraint=requirements.txt \
	  --output-file=requirements-dev.txt pyproject.toml
	cd tests/support/node && npm update --package-lock-only --omit-lockfile-registry-resolved \
	  --no-audit --no-fund

wheel: ## build the package that the two targets below install, into dist/; ARCH=aarch64
	@.ci/prerequisites python
	@$(BUILDER) -c 'import setuptools' 2>/dev/null || $(MAKE) --silent build/wheel-venv
	@$(MAKE) --silent build/init/$(ARCH)/tiltyard-init
	@rm -rf $(UNPACKED) dist/tiltyard-*.whl
	@mkdir -p $(UNPACKED)
	@cp -R LICENSE MANIFEST.in README.md pyproject.toml agent controlplane tiltyard $(UNPACKED)
	@install -D build/init/$(ARCH)/tiltyard-init $(UNPACKED)/$(INIT)
	@$(BUILDER) -m pip wheel --quiet --disable-pip-version-check --no-input --no-deps \
	  --no-build-isolation --no-index --wheel-dir dist \
	  --config-settings=--build-option=--plat-name=manylinux2014_$(ARCH) ./$(UNPACKED)

# The environment in which `wheel` builds: the locked setuptools alone.
.PHONY: build/wheel-venv
build/wheel-venv:
	@rm -rf $@; "$$(.ci/prerequisites find-python)" -m venv $@
	@$(call LOCKED_ONLY,setuptools) >$@/requirements.txt
	@$@/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
	  --require-hashes -r $@/requirements.txt

install-agent: wheel ## install or upgrade the agent on this machine as a service, with Docker
	@.ci/prerequisites host
	@systemd/install install agent dist/tiltyard-*.whl

install-controlplane: wheel ## install or upgrade the control plane on this machine as a service
	@.ci/prerequisites service
	@systemd/install install controlplane dist/tiltyard-*.whl

uninstall-agent: ## remove the agent from this machine; PURGE=1 with its data
	@systemd/install uninstall agent

uninstall-controlplane: ## remove the control plane from this machine; PURGE=1 with its data
	@systemd/install uninstall controlplane

clean: ## remove the files that these targets created in this folder, including .venv
	@[ ! -e .tiltyard/dev.json ] || { echo 'make up is running here: end it first' >&2; exit 1; }
	rm -rf .venv .tiltyard build dist bench *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: everything
everything:
	@.ci/prerequisites all $(firstword $(MAKECMDGOALS))
	$(if $(ENGINE),@.ci/engine $(ENGINE))
	$(INSTALLED)
	@$(MAKE) --silent $(INIT) $(if $(filter demo up,$(MAKECMDGOALS)),,$(NODE_PACKAGES))

# Replaced by a rename, since an agent may be executing the previous file.
$(INIT): build/init/$(MACHINE)/tiltyard-init
	@mkdir -p $(@D)
	@cp $< $@.new
	@mv $@.new $@

build/init/%/tiltyard-init: $(wildcard agent/init/*.[ch]) Makefile
	@mkdir -p $(@D)
	@$(if $(filter $(MACHINE),$*),gcc,$*-linux-gnu-gcc) $(INIT_FLAGS) -o $@ $(filter %.c,$^)

# The locked pip comes first: it takes half of the time of an earlier one.
# pyproject.toml, too: it names the programs that are installed.
$(STAMP): requirements-dev.txt pyproject.toml
	@$(VENV)/bin/python -c 'import sys' 2>/dev/null \
	  || { rm -rf $(VENV); "$$(.ci/prerequisites find-python)" -m venv $(VENV); }
	@echo 'install: locked packages into $(VENV)' >&2
	@$(call LOCKED_ONLY,pip) >$(VENV)/pip.txt
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
	  --require-hashes -r $(VENV)/pip.txt
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
	  --require-hashes -r requirements-dev.txt
	@$(VENV)/bin/python -m pip install -qq --disable-pip-version-check --no-input \
	  --no-deps --no-build-isolation --no-index --editable .
	@touch $@

$(NODE_PACKAGES): tests/support/node/package.json tests/support/node/package-lock.json
	@echo 'install: locked packages of npm into build/node' >&2
	@mkdir -p build/node
	@cp $^ build/node
	@npm ci --prefix build/node --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
	@touch $@
