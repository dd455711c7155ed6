# On a fresh machine with Python 3.11 and pip:
#   make demo    train a real model on two nodes
#   make test    lint, type check and test
# Slower: make demos, make test-all
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# three workers for two cores, since some tests wait; worksteal keeps the tests of a module together
PYTEST := $(BIN)/pytest -n 3 --dist worksteal --durations=20
# a test that cannot be interrupted ends its worker, with the stacks of its threads
FAST_TESTS := $(PYTEST) -m "not slow" -o faulthandler_timeout=1200 -o faulthandler_exit_on_timeout=true
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# an advertisement
export NO_MKDOCS_2_WARNING := 1
# tests start thousands of interpreters, which should all use the compiled modules
unexport PYTHONDONTWRITEBYTECODE
# a module is compiled when it is imported first: most are not, and compiling all takes two minutes
PIP_INSTALL := $(BIN)/pip install --quiet --no-compile

# two pips must not run in one environment, even with -j
.NOTPARALLEL:
.PHONY: demo demos test test-all lint bench seeds docs contract pictures site mutation clean

demo: $(VENV)/.pytorch
	@rm -f examples/pytorch-digits/checkpoints/*.pt
	$(BIN)/muster run examples/pytorch-digits/job.yaml

# every example; horovod's only if horovod is installed
demos: $(VENV)/.heavy
	@for job in examples/*/job.yaml examples/ads/train.yaml examples/jobset/jobset.yaml; do \
	  case $$job in *horovod*) $(BIN)/python -c "import horovod" 2>/dev/null || continue;; esac; \
	  echo "== $$job"; $(BIN)/muster run $$job || exit 1; \
	done

# tests of clients and commands that `make test` repeats with a server between them and Muster;
# `make test-all` repeats all of them
OVER_HTTP := $(addprefix tests/client/test_,jobs.py lifecycle.py outputs.py scaling.py) \
  $(addprefix tests/cli/test_,accounts.py jobs.py rerun.py)

test: lint $(VENV)/.system
	$(FAST_TESTS)
	$(FAST_TESTS) --over-http $(OVER_HTTP)

test-all: lint $(VENV)/.heavy $(VENV)/.system $(VENV)/.oci-clients
	-tests/frameworks/build_horovod.sh $(BIN)/python
	$(PYTEST) --hypothesis-profile thorough
	$(FAST_TESTS) --over-http tests/client tests/cli

# mkdocs --quiet would hide broken links from `strict: true`
# mypy, on one core, takes as long as the rest, on another one
lint: $(VENV)/.dev $(VENV)/.frameworks
	$(BIN)/mypy & mypy=$$!; \
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports && $(BIN)/mkdocs build; \
	others=$$?; $(MEANWHILE) wait $$mypy && exit $$others

# with new modules, each worker would compile all of them, at the same time as the others
test test-all: MEANWHILE = $(BIN)/pytest --collect-only -q >/dev/null;

bench: $(VENV)/.dev
	$(BIN)/python bench/run.py

# simulate runs with new seeds, or a range of seeds: make seeds SEEDS=1000:2000
# when interrupted, it prints the seeds that are left
SEEDS ?= 1000000
seeds: $(VENV)/.dev
	nice -n 10 $(BIN)/python tests/simulate.py --seeds $(SEEDS)

# changes of the lifecycle that no test notices; see docs/internals/mutation.md
mutation: $(VENV)/.mutation
	nice -n 10 $(BIN)/mutmut run --max-children 1
	@$(BIN)/mutmut results

# the documentation's site: http://127.0.0.1:8000, updated while its pages are edited
site: $(VENV)/.dev
	$(BIN)/mkdocs serve

# the page with the results of the contract tests of all engines
contract: $(VENV)/.dev
	CONTRACT_PAGE=1 $(PYTEST) $(addprefix tests/engines/test_,events.py contract.py restarts.py \
	  commands.py forwards.py arrays.py) tests/engines/hosts/test_faults.py tests/engines/remote/test_faults.py \
	  tests/engines/remote/test_dialed_faults.py tests/store/sqlite/test_full_disk.py

# terminal pictures of the documentation, from real runs
pictures: $(VENV)/.dev
	$(BIN)/python docs/pictures/draw.py

# pages generated from the code
docs: $(VENV)/.dev
	$(BIN)/python -m muster.spec.generate
	$(BIN)/python -m muster.spec.schema > docs/reference/spec.md
	$(BIN)/muster schema > docs/reference/spec.schema.json
	$(BIN)/python -m muster.cli.reference > docs/reference/cli.md
	$(BIN)/python -m muster.server.oci.reference > docs/reference/oci.md
	$(BIN)/python tests/documents/table.py

$(VENV)/.base:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is required: make PYTHON=python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || sh .ci/install-venv $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.dev: $(VENV)/.base pyproject.toml
	$(PIP_INSTALL) --editable .
	$(PIP_INSTALL) $$($(BIN)/python .ci/packages dev)
	@touch $@

$(VENV)/.pytorch: $(VENV)/.base pyproject.toml
	$(PIP_INSTALL) --editable '.[pytorch]'
	@touch $@

$(VENV)/.frameworks: $(VENV)/.pytorch
	$(PIP_INSTALL) $$($(BIN)/python .ci/packages frameworks)
	@touch $@

$(VENV)/.heavy: $(VENV)/.frameworks
	$(PIP_INSTALL) $$($(BIN)/python .ci/packages heavy)
	@touch $@

# ADS and the command oci: 1.7 GB; compiling all of oci's modules would take a minute
$(VENV)/.oci-clients: $(VENV)/.base pyproject.toml
	$(PYTHON) -m venv $(VENV)/oci-clients
	$(VENV)/oci-clients/bin/pip install --quiet --no-compile $$($(BIN)/python .ci/packages oci-clients)
	@touch $@

# programs that some tests require: outgoing connections, firewall rules, file systems
$(VENV)/.system: $(VENV)/.base
	sh .ci/install-programs
	@touch $@

$(VENV)/.mutation: $(VENV)/.dev
	$(PIP_INSTALL) 'mutmut>=3.8,<4'
	@touch $@

clean:
	rm -rf $(VENV) mutants .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
