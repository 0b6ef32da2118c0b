#!/bin/sh
# Runs benches/device.rs and benches/peers/encoder.py by turns on one core and prints tokens a CPU-second and ratios.
# ROUNDS (3) times. The peers live in a virtual environment under ~/.cache/memslate/peers.
set -eu

peers=$(cd "$(dirname "$0")" && pwd)
venv=${XDG_CACHE_HOME:-$HOME/.cache}/memslate/peers
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --requirement "$peers/requirements.txt" >&2

RAYON_NUM_THREADS=1
export RAYON_NUM_THREADS
criterion=${CARGO_TARGET_DIR:-$peers/../../target}/criterion
out=$(mktemp -d)
trap 'rm -r "$out"' EXIT
cargo bench --quiet --bench device --no-run >&2
for round in $(seq "${ROUNDS:-3}"); do
    taskset -c 0 cargo bench --quiet --bench device >&2
    ROUNDS=3 taskset -c 0 "$venv/bin/python" "$peers/encoder.py" >"$out/peer-$round" 2>"$out/said" || {
        cat "$out/said" >&2
        exit 1
    }
    for part in f32 int8; do
        for shape in 32 128 256 mixed; do
            cp "$criterion/$part/$shape/new/estimates.json" "$out/$part-$shape-$round.json"
        done
    done
done
"$venv/bin/python" - "$out" <<'PYTHON'
import json, pathlib, statistics, sys

out = pathlib.Path(sys.argv[1])
TOKENS = {"32": 2048, "128": 2048, "256": 2048, "mixed": sum(8 + i * 37 % 249 for i in range(16))}
peers = [dict(line.split() for line in p.read_text().splitlines() if line.startswith(("f32/", "int8/"))) for p in sorted(out.glob("peer-*"))]
print(f"{'tokens a CPU-second':<20}{'ours':>8}{'peer':>8}{'ratio':>7}   (PyTorch f32, ONNX Runtime int8; median of {len(peers)} rounds)")
for name in (f"{p}/{s}" for p in ("f32", "int8") for s in TOKENS):
    part, shape = name.split("/")
    files = sorted(out.glob(f"{part}-{shape}-*.json"))
    ours = [TOKENS[shape] / (json.loads(f.read_text())["median"]["point_estimate"] / 1e9) for f in files]
    theirs = [float(p[name]) for p in peers]
    ratio = statistics.median(o / t for o, t in zip(ours, theirs))
    print(f"{name:<20}{statistics.median(ours):8.0f}{statistics.median(theirs):8.0f}{ratio:7.2f}")
PYTHON
