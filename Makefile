# make demo   installs trainwiz into .venv and trains the embedded demo
# make test   installs trainwiz with its test tools into .venv-test and runs the checks and the tests
# make docs   builds the docs as a site into build/site
# make faults hurts 200 tiny runs on purpose and says what became of them (half an hour)
SHELL := /bin/bash
VENV ?= .venv
TEST_VENV ?= .venv-test
# One core stays free: many tests start real trainings, and wait for them by the clock.
TEST_WORKERS ?= $(shell python3 -c "import os; print(max(2, min(4, (os.cpu_count() or 2) - 1)))")

.PHONY: demo test test-all check benchmark faults screenshots catalogue docs clean

demo: $(VENV)/.installed
	$(VENV)/bin/trainwiz --profile cpu-demo --yes

# The checks take one core for a minute, and the tests leave one.
test: $(TEST_VENV)/.installed
	@$(MAKE) --no-print-directory check > $(TEST_VENV)/check.log 2>&1 & checks=$$!; \
	$(TEST_VENV)/bin/python -m pytest -m "not all" -n $(TEST_WORKERS) --dist loadgroup; tested=$$?; \
	wait $$checks; checked=$$?; cat $(TEST_VENV)/check.log; \
	test $$tested -eq 0 && test $$checked -eq 0

test-all: $(TEST_VENV)/.installed check
	$(TEST_VENV)/bin/python -m pytest

check: $(TEST_VENV)/.installed
	$(TEST_VENV)/bin/ruff check .
	$(TEST_VENV)/bin/ruff format --check .
	scripts/typecheck.sh $(TEST_VENV)/bin/mypy

benchmark: $(TEST_VENV)/.installed
	$(TEST_VENV)/bin/python -m tools.benchmarks

faults: $(TEST_VENV)/.installed
	$(TEST_VENV)/bin/python -m tools.faults --faults 200 --jobs 3 --report faults.json

screenshots: $(TEST_VENV)/.installed
	$(TEST_VENV)/bin/python scripts/screenshots.py

catalogue: $(TEST_VENV)/.installed
	$(TEST_VENV)/bin/python scripts/catalogue.py merge
	$(TEST_VENV)/bin/python scripts/catalogue.py compile

# The pages lie in .cache/site as in the checkout, so that their links and pictures are the same on a site and on disk.
docs: .venv-docs/.installed
	rm -rf .cache/site build/site && mkdir -p .cache/site/tools/benchmarks .cache/site/profiles .cache/site/screenshots
	cp -r README.md docs .cache/site/ && cp screenshots/*.png screenshots/*-zh.svg .cache/site/screenshots/
	cp tools/benchmarks/README.md .cache/site/tools/benchmarks/ && cp profiles/environment.yaml .cache/site/profiles/
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict
	@echo "The site: build/site/index.html"

.venv-docs/.installed: pyproject.toml
	python3 -m venv .venv-docs
	.venv-docs/bin/python -m pip --disable-pip-version-check install -q $$(.venv-docs/bin/python -c "import tomllib; \
	  print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'])")
	touch $@

$(VENV)/.installed: pyproject.toml constraints.txt scripts/install.sh
	scripts/install.sh $(VENV) qlora
	touch $@

$(TEST_VENV)/.installed: pyproject.toml constraints.txt scripts/install.sh
	scripts/install.sh $(TEST_VENV) test screenshots qlora deepspeed
	touch $@

clean:
	rm -rf build dist .cache .pytest_cache .mypy_cache .ruff_cache trainwiz.egg-info
