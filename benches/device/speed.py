"""Part: our scores a second beside PyTorch's, on the same weights and pairs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import checks
import peers
import torch
import weights
from binary import Binary
from clock import Clock, OutOfTime
from peers import Packed, Pass
from report import Report
from settings import Settings
from torch import Tensor

# The targets: 128 pairs of 300 tokens, and ratios of tokens a second.
EVEN_MS = 55.0
OVER_PADDED = 1.3
OVER_COMPILED = 1.0
# A peer whose scores are ordered otherwise computes something else, and its time means nothing.
PEER_ORDER = 0.99


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


@torch.inference_mode()
def time_peer(s: Settings, run: Pass, seconds: float) -> tuple[list[float], Tensor]:
    """Times after two rounds for warmth, `repeat` of them or as many as fit."""
    for _ in range(2):
        scores = run()
    synchronize(s.torch_device)
    times: list[float] = []
    while len(times) < s.repeat and (len(times) < 3 or sum(times) < seconds):
        began = time.perf_counter()
        run()
        synchronize(s.torch_device)
        times.append(time.perf_counter() - began)
    return times, scores


def sets(s: Settings) -> dict[str, list[Tensor]]:
    mixed = weights.log_normal(s.mixed_pairs, s.mixed_mean, 12, 8, s.longest)
    return {
        "even": weights.sequences([s.even_length] * s.even_pairs, s.vocab, 11),
        "mixed": weights.sequences(mixed, s.vocab, 13),
    }


def figure(times: list[float], pairs: list[Tensor]) -> dict[str, float | int]:
    median = statistics.median(times)
    tokens = sum(len(p) for p in pairs)
    return {
        "milliseconds": median * 1e3,
        "tokens_per_second": tokens / median,
        "pairs_per_second": len(pairs) / median,
        "repeats": len(times),
        "spread": (max(times) - min(times)) / median,
    }


def run(s: Settings, binary: Binary, clock: Clock, report: Report, folder: Path) -> dict[str, Any]:
    weights.saved(folder, s)
    all_pairs = sets(s)
    figures: dict[str, Any] = {name: {"pairs": len(p), "tokens": sum(map(len, p))} for name, p in all_pairs.items()}
    scores: dict[str, Tensor] = {}
    for name, pairs in all_pairs.items():
        # The first two warm: memory is made in the first.
        rows, timing = binary.forward(folder, "score", pairs, repeat=s.repeat + 2)
        scores[name] = rows.flatten()
        figures[name]["ours"] = figure(timing["seconds"][2:], pairs)
    took = figures["even"]["ours"]["milliseconds"]
    name = f"{_dry(s)}{s.even_pairs} pairs of {s.even_length} tokens, ms"
    report.speed(name, took, f"at most {EVEN_MS:g}", took <= EVEN_MS)

    model = weights.model(s, torch.bfloat16)
    how, attend, passed = peers.attention(s.torch_device)
    figures["packed attention"] = {"used": how, "passed over": passed}
    packed = Packed(s, model, attend)
    makers: dict[str, Callable[[str], Pass]] = {
        "padded": lambda name: peers.padded(s, model, all_pairs[name]),
        "packed": lambda name: peers.packed(s, packed, all_pairs[name]),
        # Of the even set all batches but the last have one shape.
        "compiled": lambda name: peers.packed(s, packed.compiled(dynamic=name == "mixed"), all_pairs[name]),
    }
    # The compiled ones come last: compiling may take long, or fail.
    for peer, make in makers.items():
        for name in all_pairs:
            try:
                clock.need(45 if peer == "compiled" and s.torch_device == "cuda" else 8, f"{peer}, {name}")
                times, got = time_peer(s, make(name), clock.left() / 4)
            except OutOfTime as e:
                report.skip(f"speed: {peer}, {name}", str(e))
                continue
            except Exception as e:  # A peer that does not run is no reason to lose the others.
                report.skip(f"speed: {peer}, {name}", f"it failed: {repr(e)[:300]}")
                continue
            own = figure(times, all_pairs[name])
            order = checks.spearman(got, scores[name])
            own["order of scores beside ours"] = order
            figures[name][peer] = own
            own["ours / peer"] = figures[name]["ours"]["tokens_per_second"] / own["tokens_per_second"]
            if order < PEER_ORDER:
                report.skip(f"speed: {peer}, {name}", f"its scores are not ours (rank correlation {order:.4f})")
                continue
            _verdict(report, peer, _dry(s) + name, own["ours / peer"], how)
    for name in all_pairs:
        report.figure(_line(name, figures[name]))
    return figures


def _dry(s: Settings) -> str:
    return "(dry: says nothing) " if s.torch_device == "cpu" else ""


def _verdict(report: Report, peer: str, name: str, ratio: float, how: str) -> None:
    target = {"padded": OVER_PADDED, "compiled": OVER_COMPILED}.get(peer)
    if target is not None:
        by = "padded, sorted SDPA" if peer == "padded" else f"packed + compile ({how})"
        report.speed(f"{name} pairs: ours / {by}, tokens a second", ratio, f"at least {target:g}", ratio >= target)


def _line(name: str, figures: dict[str, Any]) -> str:
    parts = [
        f"{who} {figures[who]['milliseconds']:.1f} ms ({figures[who]['tokens_per_second'] / 1e3:.0f}k tokens/s)"
        for who in ("ours", "padded", "packed", "compiled")
        if who in figures
    ]
    return f"speed, {name:6}{figures['pairs']} pairs, {figures['tokens']} tokens: " + ", ".join(parts)
