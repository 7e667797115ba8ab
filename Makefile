# Everything that is run by hand or by CI. `make` alone lists it.

# One step after another: they share target/, and a log is read from the top.
.NOTPARALLEL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
SHELL := /bin/sh

TARGET := $(or $(CARGO_TARGET_DIR),target)

# bindgen 0.59, inside rdma-sys, panics with libclang 16 and newer. Where such a one is installed, name
# an older; elsewhere leave the choice to bindgen. (Not `:=`, the older may only come with `make deps`.)
ifndef LIBCLANG_PATH
ifneq ($(wildcard /usr/lib/llvm-1[6-9] /usr/lib/llvm-[2-9][0-9]),)
export LIBCLANG_PATH = $(shell ls -d /usr/lib/llvm-15/lib /usr/lib/llvm-14/lib 2>/dev/null | head -n 1)
endif
endif

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
	@.ci/deps build bench

.PHONY: demo
demo: deps-build ## messages through the library, without RDMA hardware
	cargo run --release -p nanoverbs-examples --bin pingpong

.PHONY: build
build: deps-build ## every crate, as a user builds it
	cargo build --release

.PHONY: fmt
fmt: ## the format of the sources
	$(call step,$@)
	@if cargo fmt --version >/dev/null 2>&1; then cargo fmt --all --check; else $(call skip,fmt,rustfmt is not installed); fi

.PHONY: clippy
clippy: deps-build ## lints, with and without the verbs feature
	$(call step,$@)
	@if cargo clippy --version >/dev/null 2>&1; then \
	    cargo clippy --all-targets -- -D warnings && \
	    cargo clippy -p nanoverbs -p nanoverbs-examples --no-default-features -- -D warnings; \
	else $(call skip,clippy,clippy is not installed); fi

.PHONY: doc
doc: deps-build ## the documentation, without a broken link
	$(call step,$@)
	RUSTDOCFLAGS='-D warnings' cargo doc --no-deps

.PHONY: test-unit
test-unit: deps-build ## unit tests, doctests, whole paths on the soft device
	$(call step,$@)
	cargo test
	cargo test -p nanoverbs --no-default-features

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
miri: ## undefined behaviour in the core's unit tests
	$(call step,$@)
	@if RUSTUP_AUTO_INSTALL=0 cargo +nightly miri --version >/dev/null 2>&1; then \
	    MIRIFLAGS='-Zmiri-strict-provenance -Zmiri-ignore-leaks' cargo +nightly miri test -p nanoverbs-core --lib --target-dir $(TARGET)/miri; \
	else $(call skip,miri,no nightly toolchain with miri); fi

.PHONY: rxe
rxe: deps-guest ## real librdmacm on a kernel's Soft-RoCE device, in a virtual machine; CASES=PATTERN for some
	$(call step,$@)
	@std-adapter/rxe/run $(if $(CASES),'$(CASES)')

.PHONY: bench-build bench bench-check
bench-build:
	cargo build --profile measured -p nanoverbs-benches --bins --examples
bench: deps-bench bench-build ## everything measured beside C, a table, and target/bench/report.json
	$(call step,$@)
	cargo build --profile measured-lto -p nanoverbs-benches --example contenders
	$(TARGET)/measured/bench
bench-check: deps-build bench-build ## the instruction bars alone
	$(call step,$@)
	@if command -v valgrind >/dev/null; then $(TARGET)/measured/bench check; \
	else $(call skip,bench-check,valgrind is not installed); fi

.PHONY: test
test: begin deps fmt clippy doc test-unit bench-check no-std loom miri demo rxe ## everything
	@began=$$(cat $(TARGET)/began); \
	printf '\nmake test: every step passed, in %s s\n' $$(($$(date +%s) - began)); \
	if [ -s $(TARGET)/skipped ]; then sed 's/^/  but skipped: /' $(TARGET)/skipped; fi

.PHONY: begin
begin:
	@mkdir -p $(TARGET) && rm -f $(TARGET)/skipped && date +%s >$(TARGET)/began

.PHONY: clean
clean: ## remove everything that was built, the guest image included
	cargo clean
