"""Part: a row's bits in different company."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import checks
import torch
import weights
from binary import Binary
from clock import Clock
from report import Report
from settings import Settings


def run(s: Settings, binary: Binary, clock: Clock, report: Report, folder: Path) -> dict[str, Any]:
    """All pairs together, in another order, and some of them each in a batch of its own."""
    weights.saved(folder, s)
    generator = torch.Generator().manual_seed(9)
    lengths = torch.randint(s.shortest, s.longest + 1, (s.pairs,), generator=generator).tolist()
    pairs = weights.sequences(lengths, s.vocab, 10)
    together, timing = binary.forward(folder, "score", pairs)
    report.outcome("invariance: scores differ from one another", checks.scores_differ(together))
    # The next pass takes as long as the one that was just seen, with its start.
    clock.need(2 * timing["seconds"][0] + 8, "all pairs in another order")
    order = torch.randperm(s.pairs, generator=generator)
    other, _ = binary.forward(folder, "score", [pairs[i] for i in order])
    report.outcome(f"invariance: {s.pairs} pairs in another order", checks.same_bits(other, together[order]))
    clock.need(10, "pairs alone")
    chosen = order[: s.alone]
    alone, _ = binary.forward(folder, "score", [pairs[i] for i in chosen], alone=True)
    report.outcome(f"invariance: {s.alone} pairs, each alone", checks.same_bits(alone, together[chosen]))
    report.figure(f"invariance   {s.pairs} pairs of {s.shortest} to {s.longest} tokens, {s.layers} layers")
    return {"pairs": s.pairs, "tokens": sum(lengths), "seconds": timing["seconds"], "layers": s.layers}
