"""Shows for each correctness check that the right result passes it, and that wrong ones do not.

The wrong results are those of mistakes that kernels, masks and batches are made with, computed from the same operands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import cases
import checks
import parity
import settings
import torch
import torch.nn.functional as F
import weights
from cases import Case, Maker, Results
from checks import Outcome
from report import Report
from torch import Tensor

Judge = Callable[[], list[Outcome]]


class Shown:
    """What was put to the checks, and what they said."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failed: set[str] = set()
        self.wrong: list[str] = []

    def right(self, label: str, outcomes: list[Outcome]) -> None:
        for o in outcomes:
            self.passed.add(o.check) if o.ok else self.wrong.append(f"{label}: {o.check} fails what is right ({o.measured})")

    def mistake(self, label: str, outcomes: list[Outcome]) -> None:
        """At least one check has to see it."""
        seen = {o.check for o in outcomes if not o.ok}
        self.failed |= seen
        if not seen:
            self.wrong.append(f"{label}: not seen ({', '.join(f'{o.check} {o.measured}' for o in outcomes)})")


def _outcomes(case: Case, got: Results) -> list[Outcome]:
    return [outcome for _, outcome in case.judge(case, got)]


def _half(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16)


def _with(x: Tensor, row: int, value: float) -> Tensor:
    other = x.clone()
    other[row, 0] = value
    return other


def _kernels(shown: Shown) -> None:
    make = Maker(1, "cpu")

    def put(case: Case, mistakes: dict[str, Results], name: str = "out", rounded: bool = True) -> None:
        right = case.expected()
        shown.right(case.label, _outcomes(case, {name: _half(right) if rounded else right.float()}))
        for mistake, got in mistakes.items():
            shown.mistake(f"{case.label}: {mistake}", _outcomes(case, got))

    for epilogue in ("bias", "gelu", "residual"):
        case = make.gemm(130, 96, 64, epilogue)
        x, out = cases.product(case), "out.tile"
        right = _half(case.expected())
        mistakes = {
            "no bias": {out: _half(case.expected() - case.of("bias"))},
            "a row not written": {out: _with(right, 129, float("nan"))},
            "two rows in each other's place": {out: torch.cat([right[1:2], right[:1], right[2:]])},
            "the last step of depth left out": {out: _half(case.expected() - case.of("a")[:, 48:] @ case.of("w")[:, 48:].T)},
        }
        if epilogue == "gelu":
            mistakes["the tanh form"] = {out: _half(F.gelu(x, approximate="tanh"))}
        if epilogue == "residual":
            mistakes["the residual left out"] = {out: _half(x)}
        put(case, mistakes, out)

    case = make.layer_norm(9, 96)
    x, scale = case.of("x"), case.of("gain")
    plain = (x / x.square().mean(1, keepdim=True).sqrt()) * scale + case.of("shift")
    sample = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True) * scale + case.of("shift")
    put(case, {"no mean taken off": {"out": _half(plain)}, "divided by one less": {"out": _half(sample)}})

    case = make.embed(20, 64)
    moved = replace(case, operands=case.operands | {"places": (case.operands["places"] + 1) % 514}, held={})
    put(case, {"positions off by one": {"out": _half(moved.expected())}})

    lengths = [1, 7, 65]
    case = make.attention(lengths, 2, 64)
    shifted = replace(case, settings=case.settings | {"lengths": [1, 8, 64]}, held={})
    unscaled = replace(case, operands={"qkv": _scaled_queries(case.operands["qkv"], 2**0.5)}, held={})
    mistakes = {"a neighbour's token seen": {"out": _half(shifted.expected())}}
    put(case, mistakes | {"scores of another scale": {"out": _half(unscaled.expected())}})

    case = make.gather(40, 12, 64)
    other = case.expected().clone()
    other.view(torch.int16)[3, 5] ^= 1
    put(case, {"one bit": {"out": other}})

    for mean in (False, True):
        case = make.pool([3, 1, 6], 64, mean)
        parts = case.of("x").split([3, 1, 6])
        short = torch.stack([p[:-1].mean(0) if mean and len(p) > 1 else p[-1] for p in parts])
        put(case, {"another row, or one less": {"out": F.normalize(short, dim=1).float()}}, rounded=False)
        put(case, {"not of unit length": {"out": case.expected().float() * 1.01}}, rounded=False)

    case = make.score_head(17, 64)
    case_no_tanh = case.of("x") @ case.of("dense_weight").T + case.of("dense_bias")
    linear = (case_no_tanh @ case.of("projection_weight").T + case.of("projection_bias")).flatten()
    put(case, {"no tanh": {"out": linear.float()}, "in bf16": {"out": _half(case.expected()).float()}}, rounded=False)

    case = make.top_k([(2, 40), (1, 3)], 24, 6)
    indices, scores = case.expected()
    given = torch.where(indices < 0, cases.NO_ITEM, indices)
    shown.right(case.label, _outcomes(case, {"indices": given, "out": scores.float()}))
    order = torch.cat([given[:, 1:2], given[:, :1], given[:, 2:]], 1)
    assert bool((scores[:, 0] == scores[:, 1]).any()), "items tie"
    tied = scores[:, 0] == scores[:, 1]
    ties = torch.where(tied[:, None], order, given)
    shown.mistake("top_k: a tie to the higher index", _outcomes(case, {"indices": ties, "out": scores.float()}))
    none = scores.float().nan_to_num(0)
    shown.mistake("top_k: an item where there is none", _outcomes(case, {"indices": given, "out": none}))


def _scaled_queries(qkv: Tensor, by: float) -> Tensor:
    other = qkv.float().view(len(qkv), 3, -1).clone()
    other[:, 0] *= by
    return _half(other.flatten(1))


def _models(shown: Shown) -> None:
    s = settings.DRY
    state = weights.draw(s)
    model = weights.model(s, torch.float32, state)
    sequences = parity.texts(s)
    found = parity.reference(model, sequences, s.torch_device)
    right = parity.Answers(parity.unit(found.rows), found.logits)
    judged = lambda got: [o for _, o in parity.judge(s, got, right)]
    shown.right("parity", judged(right))
    for label, wrong in parity.planted(s, model, sequences).items():
        got = parity.Answers(parity.unit(wrong.rows), wrong.logits)
        shown.mistake(f"parity: {label}", judged(got))
        shown.right(f"parity: {label}", [checks.mistake_is_seen(judged(got))])
    shown.mistake("parity: a mistake that is none", [checks.mistake_is_seen(judged(right))])
    swapped = right.rows.clone()
    swapped[[0, 1]] = swapped[[1, 0]]
    shown.mistake("parity: two rows swapped", judged(replace(right, rows=swapped)))
    shown.mistake("parity: NaN", judged(replace(right, rows=right.rows * float("nan"))))
    backwards = replace(right, logits=-right.logits)
    shown.mistake("parity: scores backwards", judged(backwards))
    # Weights on which the test could not fail: all first rows alike, all scores alike.
    logits = found.logits[: s.pools * s.pool]
    shown.right("parity", [checks.scores_spread(logits, s.pool), checks.rows_differ(found.rows)])
    shown.mistake("parity: scores alike", [checks.scores_spread(logits / 100, s.pool)])
    alike = found.rows + 10 * found.rows.mean(0).norm() * F.normalize(torch.ones_like(found.rows[0]), dim=0)
    shown.mistake("parity: first rows alike", [checks.rows_differ(alike)])

    scores = found.logits[:, None]
    one_bit = scores.clone()
    one_bit.view(torch.int32)[4] ^= 1
    shown.right("invariance", [checks.same_bits(scores, scores), checks.scores_differ(scores)])
    shown.mistake("invariance: one bit", [checks.same_bits(one_bit, scores)])
    shown.mistake("invariance: never written", [checks.same_bits(scores * float("nan"), scores * float("nan"))])
    shown.mistake("invariance: scores that are one", [checks.scores_differ(torch.ones_like(scores))])


def run(report: Report) -> None:
    shown = Shown()
    _kernels(shown)
    _models(shown)
    names = set(checks.REGISTERED)
    shown.wrong += [f"{name} was never seen to pass" for name in sorted(names - shown.passed)]
    shown.wrong += [f"{name} was never seen to fail" for name in sorted(names - shown.failed)]
    report.data["parts"]["self-test"] = {"checks": sorted(names), "wrong": shown.wrong}
    ok = not shown.wrong
    report.outcome("self-test: each check passes the right and fails the wrong", _whole(shown, ok))
    for line in shown.wrong:
        report.figure(f"self-test    {line}")


def _whole(shown: Shown, ok: bool) -> Outcome:
    return Outcome("self_test", len(shown.wrong), "none amiss", ok)
