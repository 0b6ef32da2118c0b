#!/bin/sh
# benches/peers/run.sh PART: runs benches/PART.rs and its Python peer by turns, and prints their ratios.
# The peers live in a virtual environment under ~/.cache/memslate/peers. One thread each, CPU time.
# ROUNDS (3) times; MEMSLATE_BENCH_STORE names a store of one's own (see benches/support/data.rs).
set -eu

part=$1
peers=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/memslate
venv=$cache/peers
if ! cmp -s "$peers/requirements.txt" "$venv/installed.txt"; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --requirement "$peers/requirements.txt" >&2
    cp "$peers/requirements.txt" "$venv/installed.txt"
fi

# tiktoken would fetch its table; the Rust crate has it among its sources.
TIKTOKEN_CACHE_DIR=$venv/tiktoken
export TIKTOKEN_CACHE_DIR
table=$TIKTOKEN_CACHE_DIR/fb374d419588a4632f3f557e76b4b70aebbca790
if [ ! -f "$table" ]; then
    mkdir -p "$TIKTOKEN_CACHE_DIR"
    for source in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/tiktoken-rs-*/assets/o200k_base.tiktoken; do
        [ -f "$source" ] && cp "$source" "$table"
    done
fi

export RAYON_NUM_THREADS=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1
MEMSLATE_BENCH_DATA=$(mktemp -d)
export MEMSLATE_BENCH_DATA
trap 'rm -r "$MEMSLATE_BENCH_DATA"' EXIT
case $part in
recall) peer="$peers/recall.py $MEMSLATE_BENCH_DATA" ;;
path) peer="$peers/reference.py $MEMSLATE_BENCH_DATA $peers/../../data/ranker/lite.txt" ;;
encoder) peer=$peers/encoder.py ;;
*)
    echo "run.sh: no part $part" >&2
    exit 2
    ;;
esac
criterion=${CARGO_TARGET_DIR:-$peers/../../target}/criterion/$part
for round in $(seq "${ROUNDS:-3}"); do
    cargo bench --quiet --bench "$part" >&2
    ours=
    for estimates in "$criterion"/*/new/estimates.json; do
        name=$(basename "$(dirname "$(dirname "$estimates")")")
        seconds=$("$venv/bin/python" -c 'import json,sys; print(json.load(open(sys.argv[1]))["median"]["point_estimate"] / 1e9)' "$estimates")
        ours="$ours${ours:+, }\"$name\": $seconds"
    done
    # shellcheck disable=SC2086 # the peer's arguments are words
    "$venv/bin/python" $peer >"$MEMSLATE_BENCH_DATA/peer" 2>"$MEMSLATE_BENCH_DATA/said" || {
        cat "$MEMSLATE_BENCH_DATA/said" >&2
        exit 1
    }
    # Libraries may talk before the last line.
    theirs=$(tail -n 1 "$MEMSLATE_BENCH_DATA/peer")
    echo "{\"ours\": {$ours}, \"peer\": $theirs}" >"$MEMSLATE_BENCH_DATA/round-$round.json"
done
"$venv/bin/python" "$peers/ratios.py" "$part" "$MEMSLATE_BENCH_DATA"
