# make demo    build, fetch the small model, and make slates from data/demo
# make test    everything that must hold before a change lands
# make test-long   what takes longer: thirty kills, random edits of many nights, the fuzz targets' corpus and beyond, the
#              small model in 8-bit integers over the texts of data/demo
# make fuzz    each fuzz target for FUZZ_SECONDS; what it finds lies in tests/fuzz/artifacts
# make kernels   compiles the CUDA kernels (kernels/cubins) with NVRTC from PyPI; make kernels-check compares and inspects them
# make kernels-test   the kernels on a CPU: against f64, with planted bugs, under sanitizers
# make bench   what recall, the whole path and the encoder cost beside their Python peers (installed under ~/.cache/memslate/peers)
# make device-kit   memslate-device and its checks in out/device-kit, to carry to a machine with a GPU (benches/device.sh)
# make emulation   the kernels as a library for the CPU, and its path: MEMSLATE_EMULATION, for builds with --features emulated

SHELL := /bin/sh
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
MEMSLATE := $(TARGET)/release/memslate
TOOLS := . .ci/tools.sh &&
OUT := out
FUZZ_TARGETS := locomo longmemeval beam chat slates
FUZZ_SECONDS := 60
DEVICE_KIT := $(OUT)/device-kit
DEVICE_KIT_MIB := 40
EMULATION := $(abspath $(TARGET))/libmemslate-emulation.so

.PHONY: all demo build model test test-long fuzz bench format lint kernels kernels-check kernels-test device-kit emulation

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
	@$(TOOLS) cargo clippy --release --all-targets --features emulated --quiet -- -D warnings
	@$(TOOLS) cargo clippy --release --test long --quiet -- -D warnings

test: format lint kernels-check kernels-test
	@$(TOOLS) cargo test --release --features emulated
	@$(MAKE) --no-print-directory demo

kernels:
	@$(TOOLS) python3 kernels/build.py

kernels-check:
	@$(TOOLS) python3 kernels/build.py --check

kernels-test:
	@$(TOOLS) cargo test --manifest-path tests/kernels/Cargo.toml --target-dir $(TARGET)/kernel-checks

test-long: model
	@$(TOOLS) cargo test --release --test long

# Coverage is counted in this workspace's code alone: the dependencies are those of every other build.
fuzz:
	@$(TOOLS) RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/tests/fuzz/coverage.sh \
		cargo build --release --quiet --package memslate-fuzz --bins
	@set -e; for target in $(FUZZ_TARGETS); do \
		echo "$$target"; \
		mkdir -p $(TARGET)/fuzz/$$target tests/fuzz/artifacts; \
		$(TARGET)/release/$$target $(TARGET)/fuzz/$$target tests/fuzz/corpus/$$target \
			-max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
			-verbosity=0 -artifact_prefix=tests/fuzz/artifacts/$$target-; \
	done

bench: model
	@$(TOOLS) benches/peers/run.sh recall
	@$(TOOLS) benches/peers/run.sh path
	@$(TOOLS) benches/peers/run.sh encoder

# A machine with a GPU has a link of its own: what is carried there stays small.
device-kit:
	@$(TOOLS) cargo build --release --quiet --bin memslate-device
	@rm -rf $(DEVICE_KIT)
	@mkdir -p $(DEVICE_KIT)/device
	@strip -o $(DEVICE_KIT)/memslate-device $(TARGET)/release/memslate-device
	@cp benches/device.sh $(DEVICE_KIT)/
	@cp benches/device/*.py $(DEVICE_KIT)/device/
	@git describe --always --dirty --abbrev=40 >$(DEVICE_KIT)/commit.txt 2>/dev/null || rm -f $(DEVICE_KIT)/commit.txt
	@kib=$$(du -sk $(DEVICE_KIT) | cut -f1); \
		if [ "$$kib" -gt $$(($(DEVICE_KIT_MIB) * 1024)) ]; then \
			echo "device-kit: $$kib KiB, above $(DEVICE_KIT_MIB) MiB; what is large: nm --size-sort -S $(TARGET)/release/memslate-device" >&2; \
			exit 1; \
		fi; \
		echo "$(DEVICE_KIT): $$kib KiB"

# Under another name first: a test may have the old one open.
emulation:
	@$(TOOLS) mkdir -p $(dir $(EMULATION)) && \
		c++ -std=c++17 -O2 -w -Wno-psabi -fPIC -shared -x c++ kernels/emulation/launch.cc -I kernels -o $(EMULATION).new
	@mv $(EMULATION).new $(EMULATION)
	@echo $(EMULATION)
