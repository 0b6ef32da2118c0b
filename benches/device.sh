#!/bin/sh
# benches/device.sh [--dry-run] [--self-test] [--only PART] [--limit SECONDS]: checks and times memslate on a GPU.
#
# Wants beside it: memslate-device (`make device-kit` puts all of it into out/device-kit, to carry to the machine); on the
# machine a driver, Python 3.10 or newer, PyTorch, transformers, safetensors and NumPy. Nothing is fetched.
#
#   scp -r out/device-kit gpu-machine: && ssh gpu-machine device-kit/device.sh
#
# It ends within 9 minutes: each part has a share of the time, and what there is no time for is named. Parts:
#   machine     the GPU, ceilings by `memslate-device bench` and by PyTorch, our passes and their stages
#   kernels     each kernel against float64
#   parity      24 layers against transformers in f32, and two planted mistakes that the same test has to see
#   invariance  10,000 pairs together, in another order, and 50 alone: equal bits
#   speed       ours beside SDPA on padded batches, flash attention on packed ones, and that compiled
#   tuning      each kernel for matrix products, and the table (kernels/tiles.toml) that follows
#
# Writes device.json and summary.txt into $OUT (out/device), and prints the summary. Exit code 1: a correctness check failed.
# Speed targets that are missed are verdicts, no failure.
#
# --self-test shows for each correctness check that a wrong result fails it. --dry-run does all of it on a machine without a
# GPU, with tiny shapes and PyTorch on the CPU; a binary built with `--features emulated` and MEMSLATE_EMULATION (`make
# emulation` prints it) runs the kernels too, any other one has `--device cpu`.
#
# PYTHON (python3) and MEMSLATE_DEVICE name another Python and binary; MEMSLATE_COMMIT is kept in the report.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
binary=${MEMSLATE_DEVICE:-}
if [ -z "$binary" ]; then
    for binary in "$here/memslate-device" "${CARGO_TARGET_DIR:-$here/../target}/release/memslate-device"; do
        [ -x "$binary" ] && break
    done
fi
if [ ! -x "$binary" ]; then
    echo "device.sh: there is no memslate-device: \`make device-kit\` builds it, MEMSLATE_DEVICE names it" >&2
    exit 2
fi
if [ -z "${MEMSLATE_COMMIT:-}" ]; then
    MEMSLATE_COMMIT=$(cat "$here/commit.txt" 2>/dev/null || git -C "$here" rev-parse HEAD 2>/dev/null || echo unknown)
    export MEMSLATE_COMMIT
fi
# A hard end, should Python itself no longer answer: it ends of itself before.
exec timeout --kill-after=5 540 "${PYTHON:-python3}" "$here/device/main.py" --binary "$binary" "$@"
