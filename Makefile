# Everything that is run by hand or by CI. `make` alone lists it.

# One step after another: they share target/, and a log is read from the top.
.NOTPARALLEL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
SHELL := /bin/sh

TARGET := $(or $(CARGO_TARGET_DIR),target)

# The binding to C: rdma-sys's where there is a libclang that it can use, else the library's own declarations.
# `make BINDING=declared` asks for them. (Not `:=`, the libclang may only come with `make deps`.)
BINDING ?= $(if $(shell .ci/libclang),verbs,declared)
ifndef LIBCLANG_PATH
export LIBCLANG_PATH = $(shell .ci/libclang)
endif

# Cargo's arguments for every crate with this binding; without libclang the benches, which measure rdma-sys, are
# left out.
verbs_crates =
declared_crates = --workspace --exclude nanoverbs-bare --exclude nanoverbs-benches --no-default-features \
    --features nanoverbs/declared,nanoverbs/tracing,nanoverbs-examples/declared
crates = $($(BINDING)_crates)
# The same for the libraries, and for the examples, alone.
verbs_libraries = -p nanoverbs-core -p nanoverbs
declared_libraries = $(verbs_libraries) --no-default-features --features nanoverbs/declared,nanoverbs/tracing
libraries = $($(BINDING)_libraries)
verbs_examples = -p nanoverbs-examples
declared_examples = -p nanoverbs-examples --no-default-features --features declared
examples = $($(BINDING)_examples)

# $(call step,NAME): a heading, so that a log shows where it stands.
step = @printf '\n== %s\n' '$(1)'
# $(call skip,NAME,WHY): for what this machine cannot do; the summary of `make test` repeats it.
skip = { echo 'skipped: $(1) ($(2))'; mkdir -p $(TARGET); echo '$(1) ($(2))' >>$(TARGET)/skipped; }

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' Makefile | while IFS='	' read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

.PHONY: deps deps-build deps-guest deps-bench
deps: ## install the Debian packages that are missing
	@.ci/deps
deps-build:
	@.ci/deps build
deps-guest:
	@.ci/deps build guest
deps-bench:
	@.ci/deps build bench crates

.PHONY: demo
demo: deps-build ## messages through the library, without RDMA hardware
	cargo run --release $(examples) --bin pingpong

.PHONY: build
build: deps-build ## every crate, as a user builds it
	cargo build --release $(crates)

.PHONY: fmt
fmt: ## the format of the sources
	$(call step,$@)
	@if cargo fmt --version >/dev/null 2>&1; then cargo fmt --all --check; else $(call skip,fmt,rustfmt is not installed); fi

.PHONY: clippy
clippy: deps-build ## lints, with each binding and without one
	$(call step,$@)
	@if cargo clippy --version >/dev/null 2>&1; then \
	    cargo clippy $(crates) --all-targets -- -D warnings && \
	    cargo clippy -p nanoverbs -p nanoverbs-examples --no-default-features -- -D warnings && \
	    cargo clippy -p nanoverbs $(declared_examples) --all-targets -- -D warnings; \
	else $(call skip,clippy,clippy is not installed); fi

.PHONY: doc
# As docs.rs does it: with the declarations, so that neither libclang nor a C library is needed.
doc: ## the documentation, without a broken link, on a machine without C libraries
	$(call step,$@)
	PKG_CONFIG=false RUSTDOCFLAGS='-D warnings' cargo doc --no-deps $(declared_crates)
	RUSTDOCFLAGS='-D warnings' cargo doc --no-deps -p nanoverbs --no-default-features

.PHONY: test-unit
test-unit: deps-build ## unit tests, doctests, whole paths on the soft device
	$(call step,$@)
	cargo test $(crates)
	cargo test -p nanoverbs --no-default-features
	# Any error will do for a stable rustdoc; asked so, it wants the one that is named.
	RUSTC_BOOTSTRAP=1 cargo test --doc $(libraries)

.PHONY: bindings chosen
bindings: deps-build ## both ways to C: with libclang 14, with 16, with none
	$(call step,$@)
	@if .ci/libclang >/dev/null; then cargo build && cargo check -p nanoverbs --features declared; \
	else $(call skip,rdma-sys,no libclang older than 16); fi
	@if folder=$$(.ci/libclang-16 $(TARGET)); then LIBCLANG_PATH=$$folder $(MAKE) --no-print-directory chosen; \
	else $(call skip,libclang 16,it cannot be had); fi
	@mkdir -p $(TARGET)/no-libclang && LIBCLANG_PATH=$(TARGET)/no-libclang $(MAKE) --no-print-directory chosen
	cargo test -p nanoverbs --no-default-features --features declared
# With a libclang that is too new, and with none, the choice is the declarations, and they need no bindgen.
chosen:
	@echo "LIBCLANG_PATH=$$LIBCLANG_PATH: $(BINDING)"; [ $(BINDING) = declared ]
	@if cargo tree -e normal,build $(crates) | grep -E 'bindgen|rdma-sys'; then exit 1; fi
	cargo build $(crates)

.PHONY: static
static: deps-build ## programs that are one file, with the C libraries inside: pingpong, and a crate outside of the workspace
	$(call step,$@)
	@if [ "$$(uname -m)" = x86_64 ]; then .ci/static; else $(call skip,static,this machine is not x86_64); fi

.PHONY: package deny semver minimal
package: ## the two library crates as they would be published, built from their packages
	$(call step,$@)
	@.ci/package $(declared_libraries)
deny: ## licences, duplicates and sources of what is depended on; installs cargo-deny under target/ where there is none
	$(call step,$@)
	@PATH=$(abspath $(TARGET))/tools/bin:$$PATH; \
	if cargo deny --version >/dev/null 2>&1 || cargo install -q --locked --root $(TARGET)/tools cargo-deny@0.20.2; then \
	    cargo deny --log-level error check licenses bans sources && \
	    if timeout 60 cargo deny fetch db >/dev/null 2>&1; then cargo deny check --disable-fetch advisories; \
	    else $(call skip,advisories,their database cannot be reached); fi; \
	else $(call skip,deny,cargo-deny is not installed and cannot be had); fi
# With the declarations: the public interface does not depend on the binding.
semver: ## the public interface against the last release's; needs cargo-semver-checks
	$(call step,$@)
	@if ! tag=$$(git describe --tags --abbrev=0 2>/dev/null); then $(call skip,semver,no release is tagged); \
	elif ! cargo semver-checks --version >/dev/null 2>&1; then $(call skip,semver,cargo-semver-checks is not installed); \
	else cargo semver-checks -p nanoverbs-core --baseline-rev "$$tag" && \
	    cargo semver-checks -p nanoverbs --baseline-rev "$$tag" --only-explicit-features --features declared,tracing; fi
minimal: ## the libraries with the oldest dependencies that their manifests allow; needs a nightly toolchain
	$(call step,$@)
	@if RUSTUP_AUTO_INSTALL=0 cargo +nightly --version >/dev/null 2>&1; then \
	    rm -rf $(TARGET)/minimal && mkdir -p $(TARGET)/minimal && \
	    cp -r Cargo.toml core std-adapter $(TARGET)/minimal && cd $(TARGET)/minimal && \
	    sed -i -E 's/^((default-)?members) = .*/\1 = ["core", "std-adapter"]/' Cargo.toml && \
	    RUSTUP_AUTO_INSTALL=0 cargo +nightly generate-lockfile -q -Z direct-minimal-versions && \
	    cargo check --locked $(declared_libraries) --target-dir ../minimal-target; \
	else $(call skip,minimal,no nightly toolchain); fi

.PHONY: no-std
no-std: ## the core on bare metal: built for two targets, and a program that runs
	$(call step,$@)
	@for target in thumbv7em-none-eabihf aarch64-unknown-none; do \
	    if [ -d "$$(rustc --print sysroot)/lib/rustlib/$$target" ] || timeout 120 rustup target add $$target; then \
	        cargo build -p nanoverbs-core --target $$target || exit; \
	    else $(call skip,no-std for '$$target',the target cannot be had); fi; \
	done
	cargo run --profile bare -p nanoverbs-bare

.PHONY: loom
loom: ## every interleaving of what two threads share
	$(call step,$@)
	RUSTFLAGS='--cfg loom' cargo test --release -p nanoverbs-loom-tests --target-dir $(TARGET)/loom

.PHONY: loom-mutants
loom-mutants: ## weaken one ordering after the other and see that its loom model fails
	$(call step,$@)
	@loom-tests/mutants $(if $(MUTANTS),'$(MUTANTS)')

.PHONY: fuzz
fuzz: ## any bytes from the other side, and any steps, SECONDS=60 a target; needs a nightly toolchain and cargo-fuzz
	$(call step,$@)
	@if RUSTUP_AUTO_INSTALL=0 cargo +nightly fuzz --version >/dev/null 2>&1; then \
	    for target in model completions wire private_data; do \
	        cargo +nightly fuzz run $$target -- -max_total_time=$(or $(SECONDS),60) -max_len=4096 || exit; \
	    done; \
	else $(call skip,fuzz,no nightly toolchain with cargo-fuzz); fi

.PHONY: soak
soak: ## the random cases of the reference model without end: SECONDS=300
	$(call step,$@)
	NANOVERBS_SOAK_SECONDS=$(or $(SECONDS),300) cargo test --release -p nanoverbs-core --test model -- --ignored --nocapture soak

.PHONY: miri
# What tests leak on purpose is theirs.
miri: ## undefined behaviour in the core's tests and the soft device, under both models of borrows
	$(call step,$@)
	@if RUSTUP_AUTO_INSTALL=0 cargo +nightly miri --version >/dev/null 2>&1; then \
	    printf '%s\n' -Zmiri-strict-provenance '-Zmiri-strict-provenance -Zmiri-tree-borrows' | \
	    xargs -P 2 -I '{}' env MIRIFLAGS='{} -Zmiri-ignore-leaks' cargo +nightly miri test -p nanoverbs-core \
	        --target-dir $(TARGET)/miri --lib --test accounting --test refusals --test hostile --test model --test noise; \
	else $(call skip,miri,no nightly toolchain with miri); fi

.PHONY: rxe rxe-bench
rxe: deps-guest ## real librdmacm on a kernel's Soft-RoCE device, in a virtual machine; CASES=PATTERN for some
	$(call step,$@)
	@BINDING=$(BINDING) std-adapter/rxe/run $(if $(CASES),'$(CASES)')
rxe-bench: deps-guest ## pingpong beside perftest there, ROUNDS=15 times, and target/bench/perftest.txt
	$(call step,$@)
	@BINDING=$(BINDING) NANOVERBS_RXE_VERBOSE=1 NANOVERBS_RXE_ROUNDS=$(or $(ROUNDS),15) NANOVERBS_RXE_LIMIT=7200 \
	    std-adapter/rxe/run '^perftest$$'

.PHONY: bench-build bench bench-check figures
bench-build:
	cargo build --profile measured -p nanoverbs-benches --bins --examples
bench: deps-bench bench-build ## everything measured beside C, a table, and target/bench/report.json
	$(call step,$@)
	cargo build --profile measured-lto -p nanoverbs-benches --example contenders
	@# Other crates bring build steps of their own; where those fail, the report says so.
	@cargo build --release --manifest-path benches/crates/Cargo.toml --examples --target-dir $(TARGET)/bench/crates || \
	    { rm -f $(TARGET)/bench/crates/release/examples/libcrate_*.so; $(call skip,bar 7,benches/crates does not build here); }
	$(TARGET)/measured/bench
figures: bench ## make bench, and its table and plot put into the README, with what make rxe-bench has measured
	$(TARGET)/measured/bench publish
bench-check: deps-build ## the instruction bars alone
	$(call step,$@)
	@if [ $(BINDING) != verbs ]; then $(call skip,bench-check,rdma-sys needs a libclang older than 16); \
	elif ! command -v valgrind >/dev/null; then $(call skip,bench-check,valgrind is not installed); \
	else $(MAKE) --no-print-directory bench-build && $(TARGET)/measured/bench check; fi

.PHONY: test
test: begin deps fmt clippy doc test-unit bindings static package deny semver minimal bench-check no-std loom miri demo rxe ## everything
	@began=$$(cat $(TARGET)/began); \
	printf '\nmake test: every step passed, in %s s\n' $$(($$(date +%s) - began)); \
	if [ -s $(TARGET)/skipped ]; then sed 's/^/  but skipped: /' $(TARGET)/skipped; fi

.PHONY: begin
begin:
	@mkdir -p $(TARGET) && rm -f $(TARGET)/skipped && date +%s >$(TARGET)/began

.PHONY: clean
clean: ## remove everything that was built, the guest image included
	cargo clean
