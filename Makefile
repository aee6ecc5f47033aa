# WaveHouse. `make help` lists what there is.
#
# CARGO_TARGET_DIR and WH_* variables are honoured everywhere.

.DEFAULT_GOAL := help
.PHONY: help run cluster cluster-down test soak bench bench-peers bench-growth bench-nats fuzz fmt lint deps clean-data build

TARGET := $(or $(CARGO_TARGET_DIR),target)
PROGRAMS := -p wavehouse-server -p wavehouse-clickhouse-embedded

help: ## Lists the goals
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

run: ## Starts a gateway with everything embedded, on loopback, data under ./data
	@scripts/deps run
	@cargo build --release --quiet $(PROGRAMS)
	@exec $(TARGET)/release/wavehouse dev

cluster: ## Starts three message servers, an engine, and two processes of each role, on loopback, data under ./data/cluster
	@scripts/deps engine nats
	@cargo build --release --quiet $(PROGRAMS)
	@scripts/cluster up

cluster-down: ## Ends them; what was stored stays
	@scripts/cluster down

build: ## Builds both programs for use
	cargo build --release $(PROGRAMS)

test: ## Runs every test, with real engines and the official clients; nothing is skipped
	scripts/deps test
	cargo build --profile test $(PROGRAMS)
	cargo test --workspace
	cargo test --manifest-path fuzz/Cargo.toml --target-dir $(TARGET)/fuzz

soak: ## Kills the gateway and the engine a hundred times under load and counts the rows
	scripts/deps run
	cargo build --release $(PROGRAMS)
	WAVEHOUSE_SOAK_KILLS=$(or $(KILLS),100) cargo test --release -p wavehouse-server --test it -- --nocapture --test-threads 1 soak

bench: ## Prints figures: ingest, end to end, and what they are held against
	scripts/deps run
	scripts/deps nats
	cargo build --release $(PROGRAMS)
	scripts/bench

bench-peers: ## The same beside other servers that do a part of the job; fetches them
	scripts/deps run
	cargo build --release $(PROGRAMS)
	scripts/bench-peers

bench-growth: ## Prints figures for 1 to 10,000 tables
	scripts/deps run
	cargo build --release $(PROGRAMS)
	scripts/bench-growth

bench-nats: ## Prints figures of the queue on a message server
	scripts/deps run
	scripts/deps nats
	cargo build --release $(PROGRAMS)
	scripts/bench-nats

fuzz: ## Feeds the parsers bytes of a fuzzer's making, FUZZ_S seconds each (3600); needs nightly and cargo-fuzz
	for target in lines values block request; do \
		mkdir -p fuzz/found/$$target && cargo +nightly fuzz run --features fuzzer $$target fuzz/found/$$target \
		fuzz/corpus/$$target -- -max_total_time=$(or $(FUZZ_S),3600) -max_len=4096 -timeout=10 || exit 1; \
	done

fmt: ## Formats the code
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml

lint: ## Checks format and lints; warnings are errors
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --manifest-path fuzz/Cargo.toml --target-dir $(TARGET)/fuzz --lib --tests -- -D warnings

deps: ## Fetches the engine, sample rows and official clients into .deps/
	scripts/deps test

clean-data: ## Removes ./data, the rows of `make run`
	rm -rf data
