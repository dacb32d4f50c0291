# What a person types. All of it is thin over the presets of CMakePresets.json. The preset native
# compiles kernels for this processor alone; release, for every one.
# TTR_WERROR=ON turns warnings into errors, as continuous integration does.
export TTR_WERROR ?= OFF
PYTHON ?= python3
PREFIX ?= $(HOME)/.local

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup build install demo test test-python test-tables test-targets test-sanitizers test-clang test-arm fuzz check bench performance wheel format format-check clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## install what is missing, with apt
	@scripts/setup

build: setup  ## build everything for this processor into build/native
	@scripts/build native

install: setup  ## the command and the library into PREFIX (~/.local)
	@scripts/build native ttr ttr_command
	@cmake --install build/native --prefix "$(PREFIX)" >build/native/install.log
	@echo "ttr is in $(PREFIX)/bin"
	@case ":$$PATH:" in *":$(PREFIX)/bin:"*) ;; *) echo "which is not on the PATH yet: export PATH=$(PREFIX)/bin:\$$PATH" ;; esac

demo: setup  ## experiments, recall and forecast on one page
	@scripts/build native ttr_command
	@scripts/demo

test: setup  ## build everything and run the tests, then those of the Python package
	@scripts/build native
	@scripts/test native
	@$(MAKE) --no-print-directory test-python

test-python: setup  ## the Python package in build/python/venv, and its tests
	@scripts/setup --python
	@scripts/build native ttr ttr_command
	@PYTHON=$(PYTHON) scripts/test_python

test-sanitizers: setup  ## the tests once more under the sanitizers
	@scripts/build asan
	@scripts/test asan
	@scripts/build tsan ttr_test_engines ttr_test_layer
	@scripts/test tsan

test-tables: setup  ## every engine's tables of cases on this processor's other SIMD targets
	@scripts/build native ttr_test_tables
	@scripts/test tables

test-targets: setup  ## a release on all targets that this processor runs: without vectors everything
	@scripts/build release ttr_test_linalg ttr_test_engines ttr_test_layer
	@scripts/test release --label-regex '^targets$$'

test-clang: setup  ## the tests once more, compiled by clang
	@scripts/setup --developer
	@scripts/build clang
	@scripts/test clang

test-arm:  ## tests of every engine, compiled for 64-bit Arm, under emulation
	@scripts/setup --arm
	@scripts/build arm ttr_test_linalg ttr_test_engines ttr_test_layer
	@scripts/test_arm

fuzz:  ## the fuzzers, a minute each: FUZZ_SECONDS=600 for longer, FUZZ="calls tables" for some of them
	@scripts/setup --developer
	@scripts/fuzz $(FUZZ)

check: test test-targets test-sanitizers format-check  ## all of these: before a release, and for changed kernels

bench: setup  ## time every engine beside the machine's limits, half an hour: tables and pictures in build/bench
	@scripts/build native ttr_command
	build/native/tools/ttr bench --repeats 5 --out build/bench

performance: bench  ## make bench, the peers that PYTHON has, and docs/performance* from both
	@scripts/build release ttr_command
	-TTR_TARGET=AVX2 build/release/tools/ttr bench gated_deltanet retnet --measure limits prefill --out build/bench/AVX2
	$(PYTHON) bench/peers/run.py --json build/bench/peers.json
	$(PYTHON) bench/peers/run.py --unlock --peers torch --json build/bench/peers-unlocked.json
	$(PYTHON) bench/peers/run.py --gradients --json build/bench/peers-gradients.json
	$(PYTHON) bench/peers/run.py --layers rls weighted_rls mesa --heads 4 --json build/bench/peers-least-squares.json
	$(PYTHON) bench/peers/run.py --layers rls weighted_rls mesa --heads 4 --gradients --json build/bench/peers-least-squares-gradients.json
	$(PYTHON) bench/report.py build/bench $(if $(MACHINE),--machine '$(MACHINE)')

wheel: setup  ## a wheel for every processor, tried, and the source distribution: build/wheel
	@scripts/setup --python
	@PYTHON=$(PYTHON) scripts/wheel

format:  ## format the code
	@scripts/format

format-check:  ## say which files are not formatted
	@scripts/format --check

clean:  ## remove build/
	rm -rf build
