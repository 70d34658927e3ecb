# hawser: transports for Open MPI. `make help` lists the targets.

PREFIX       ?= /usr/local
LIBDIR       ?= $(PREFIX)/lib
DESTDIR      ?=
COMPONENTDIR ?=
# The one on PATH, or the distribution's, where that is missing or too old.
CARGO        ?= PATH="$$(tests/setup.sh path)" cargo
# Everything here looks for what was built in target/, whatever the environment says.
export CARGO_TARGET_DIR := $(CURDIR)/target

.PHONY: all stage setup setup-bench setup-whole help headers check test test-all fuzz demo bench bench-quick install uninstall clean
# What is to be installed is there before anything is built.
.NOTPARALLEL:

all: stage ## build the library and stage the components in target/mca, the libfabric provider in target/fi

stage:
	@tests/setup.sh build --check
	$(CARGO) build --release
	@mkdir -p target/mca
	@cp -f target/release/libhawser.so target/mca/libhawser.so.new && mv -f target/mca/libhawser.so.new target/mca/libhawser.so
	@names=$$(pkgconfig/components.sh) && for name in $$names; do ln -sf libhawser.so target/mca/mca_$$name.so; done
	@cp -f docs/help-hawser.txt target/mca/
	@mkdir -p target/fi && ln -sfn ../mca/libhawser.so target/fi/libgni-fi.so

setup: ## install the Debian packages that the build and the tests need
	@tests/setup.sh test

setup-bench:
	@tests/setup.sh bench

setup-whole:
	@tests/setup.sh whole

headers: ## write what is generated: the headers in include/, tables in docs/
	HAWSER_BLESS=1 $(CARGO) test --profile checked --test headers --test manual

check: ## formatting, lints, documentation, drift of headers and manual pages, architecture
	$(CARGO) fmt --check
	$(CARGO) clippy --release --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --release --no-deps --document-private-items
	$(CARGO) test --profile checked --test headers --test manual --test architecture

test: setup ## all that the code can tell apart, on both hosts; an hour on two cores
	@tests/run.sh

test-all: setup-whole ## the whole matrix, for before a release; hours
	@tests/run.sh --whole

gpu: all ## device memory on a machine that has a CUDA device, in the Open MPI on PATH
	@c-tests/gpu.sh $(WORDS)

fuzz: ## the parsers and the receive path under libFuzzer, for as long as RUNS says
	@tests/fuzz.sh $(RUNS)

demo: setup all ## a real MPI job: ring and ping-pong, hawser beside the host's own
	@bench/demo.sh

bench: setup-bench all ## paired comparisons with the host's own components and bare UDP, and a page of them; QUICK=1: five minutes
	@bench/whole.sh $(if $(QUICK),--quick)

bench-quick: ## the same with few sizes and rounds
	@$(MAKE) --no-print-directory bench QUICK=1

install: all ## install under PREFIX, component links in COMPONENTDIR
	@PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" DESTDIR="$(DESTDIR)" COMPONENTDIR="$(COMPONENTDIR)" pkgconfig/install.sh install

uninstall: ## remove what install made
	@PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" DESTDIR="$(DESTDIR)" COMPONENTDIR="$(COMPONENTDIR)" pkgconfig/install.sh uninstall

clean: ## remove everything that was built here; the second host stays in the user's cache
	$(CARGO) clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile
