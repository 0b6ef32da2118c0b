#!/bin/sh
# As RUSTC_WORKSPACE_WRAPPER: counts, in this workspace's code alone, which edges run, so that libFuzzer sees them. The
# dependencies are those of every other build. "$@": rustc and its arguments.
exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
