# make demo    build, fetch the small model, and make slates from data/demo
# make test    everything that must hold before a change lands
# make bench   what recall and the whole path cost beside their Python peers (installed under ~/.cache/memslate/peers)

SHELL := /bin/sh
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
MEMSLATE := $(TARGET)/release/memslate
TOOLS := . .ci/tools.sh &&
OUT := out

.PHONY: all demo build model test format lint bench

all: build

build:
	@$(TOOLS) cargo build --release --quiet

model: build
	@$(MEMSLATE) models fetch minilm >/dev/null

demo: model
	@rm -rf $(OUT)/demo
	@$(MEMSLATE) import chat data/demo --out $(OUT)/demo/input
	@$(MEMSLATE) run jobs/nightly.toml --input $(OUT)/demo/input --lake $(OUT)/demo/lake
	@echo
	@echo "A slate: the question, and what an agent reads for it"
	@$(MEMSLATE) show --lake $(OUT)/demo/lake --store amara --request amara-q05 | head -n 30
	@echo
	@echo "Completeness: is all the evidence of a question in its pool, in its slate?"
	@$(MEMSLATE) eval --lake $(OUT)/demo/lake
	@echo
	@echo "The tables are Delta tables in $(OUT)/demo/lake; \`$(MEMSLATE) status --lake $(OUT)/demo/lake\` lists them."

format:
	@cargo fmt --check

lint:
	@$(TOOLS) cargo clippy --release --all-targets --quiet -- -D warnings

test: format lint
	@$(TOOLS) cargo test --release
	@$(MAKE) --no-print-directory demo

bench:
	@$(TOOLS) benches/peers/run.sh recall
	@$(TOOLS) benches/peers/run.sh path
