"""Prints ours beside the peer's: ratios.py PART FOLDER, after benches/peers/run.sh has filled FOLDER.

Each round has Criterion's medians of ours and the peer's; of the rounds' ratios the median is shown.
"""

import json
import statistics
import sys
from pathlib import Path

part, folder = sys.argv[1], Path(sys.argv[2])
rounds = [json.loads(path.read_text()) for path in sorted(folder.glob("round-*.json"))]


def row(name, of):
    """`of` gives seconds from a round's times; the same for both."""
    ours, peer = [[of(r[who]) for r in rounds] for who in ("ours", "peer")]
    ratio = statistics.median(p / o for o, p in zip(ours, peer))
    print(f"{name:<44}{1e6 * min(ours):14,.1f}{1e6 * min(peer):14,.1f}{ratio:9.2f}")


print(f"{part}: microseconds of CPU time, the least of {len(rounds)} rounds; ratio = peer / ours, their median")
print(f"{'':<44}{'ours':>14}{'peer':>14}{'ratio':>9}")
if part == "encoder":
    # The texts of benches/encoder.rs.
    texts = {"32": [32] * 64, "128": [128] * 16, "256": [256] * 8, "mixed": [8 + i * 37 % 249 for i in range(16)]}
    for precision, peer in ("f32", "PyTorch"), ("int8", "ONNX Runtime"):
        for shape, lengths in texts.items():
            row(f"{precision}, {shape} tokens a text, a token ({peer})", lambda t: t[f"{precision}_{shape}"] / sum(lengths))
    sys.exit()
store = json.loads((folder / "store.json").read_text())
turns, questions = len(store["turns"]), len(store["questions"])
if part == "recall":
    row(f"tokenise and index {turns} turns", lambda t: t["index"])
    row("BM25, best 128, a query", lambda t: t["bm25_128"] / questions)
    row(f"dense 1,024, best 128, a query of {questions} at once", lambda t: t["dense_128"] / questions)
if part == "path":
    one, all_ = "requests_1", f"requests_{questions}"
    request = lambda t: (t[all_] - t[one]) / (questions - 1)
    row(f"a store of {turns} turns", lambda t: t[one] - request(t))
    row("a request", request)
    for name, share in rounds[-1]["peer"]["same"].items():
        print(f"{name:<44}{share:14.3f}")
