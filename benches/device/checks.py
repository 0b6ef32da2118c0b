"""The correctness checks: each takes what was computed and what is right, and says whether the one is the other.

All are plain functions of tensors, so that `self_test.py` can show for each of them that a wrong result fails it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# A row's bf16 rounding alone is off by at most 2^-9 of its length.
ROWS_LIMIT = 4e-3
ATTENTION_LIMIT = 6e-3
# These two kernels round nothing to bf16.
LOGITS_LIMIT = 1e-3
POOL_LIMIT = 1e-4
# How far towards the tanh form of GELU a result may lean: 0 is the erf form, 1 the other.
GELU_LEAN = 0.25
CENTRED_COSINE = 0.999


@dataclass(frozen=True)
class Outcome:
    check: str
    measured: float
    # What `measured` was held against, in words.
    target: str
    ok: bool


REGISTERED: dict[str, Callable[..., Outcome]] = {}


def check(function: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Lists a check by its name; `self_test.py` asks that each listed one was seen to fail."""
    REGISTERED[function.__name__] = function
    return function


def _at_most(name: str, measured: float, limit: float) -> Outcome:
    # A comparison with NaN is false, which is what is wanted here.
    return Outcome(name, measured, f"at most {limit:g}", measured <= limit)


def _at_least(name: str, measured: float, limit: float) -> Outcome:
    return Outcome(name, measured, f"at least {limit:g}", measured >= limit)


def _relative(got: Tensor, right: Tensor) -> Tensor:
    """||got - right|| / ||right|| of each row; infinite where a number is missing: a maximum may pass over NaN."""
    got, right = got.double().flatten(1), right.double().flatten(1)
    if got.shape != right.shape:
        raise ValueError(f"result of shape {tuple(got.shape)}, expected {tuple(right.shape)}")
    off = (got - right).norm(dim=1) / right.norm(dim=1).clamp_min(1e-30)
    return torch.where(torch.isfinite(got).all(1) & torch.isfinite(off), off, math.inf)


@check
def rows_near(got: Tensor, right: Tensor, limit: float = ROWS_LIMIT) -> Outcome:
    """The worst row of a matrix."""
    return _at_most("rows_near", float(_relative(got, right).max()), limit)


@check
def sequences_near(got: Tensor, right: Tensor, lengths: Sequence[int]) -> Outcome:
    """The worst sequence of packed rows."""
    parts = zip(got.split(list(lengths)), right.split(list(lengths)), strict=True)
    worst = max(float(_relative(a[None], b[None])[0]) for a, b in parts)
    return _at_most("sequences_near", worst, ATTENTION_LIMIT)


@check
def logits_near(got: Tensor, right: Tensor) -> Outcome:
    """All logits at once: one alone may be near 0."""
    return _at_most("logits_near", float(_relative(got.flatten()[None], right.flatten()[None])[0]), LOGITS_LIMIT)


@check
def gelu_is_erf(got: Tensor, x: Tensor) -> Outcome:
    """Whether GELU is the erf form. The two forms differ by less than a bf16 value's rounding, so no single value can tell:
    the difference is projected onto that of the forms, over all values, each weighed by what its rounding leaves of it."""
    erf = torch.nn.functional.gelu(x.double())
    towards = torch.nn.functional.gelu(x.double(), approximate="tanh") - erf
    weight = 1 / (erf.square() + 1e-6)
    lean = float(((got.double() - erf) * towards * weight).sum() / (towards.square() * weight).sum())
    return Outcome("gelu_is_erf", lean, f"within {GELU_LEAN:g} of 0", abs(lean) <= GELU_LEAN)


@check
def same_bits(got: Tensor, right: Tensor) -> Outcome:
    """Rows that differ in a bit. NaN fails: rows that were never written are NaN alike."""
    words = {2: torch.int16, 4: torch.int32}[got.element_size()]
    if got.shape != right.shape or got.dtype != right.dtype:
        raise ValueError(f"result {got.dtype} {tuple(got.shape)}, expected {right.dtype} {tuple(right.shape)}")
    got, right = got.contiguous().flatten(1), right.contiguous().flatten(1)
    differ = (got.view(words) != right.view(words)).any(1) | torch.isnan(got).any(1)
    return Outcome("same_bits", int(differ.sum()), "no row differs", not bool(differ.any()))


@check
def same_order(got: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> Outcome:
    """Indices and scores of the best, place by place; where a group has fewer items both are empty (-1 and NaN)."""
    differ = (got[0] != right[0]) | ((got[1].double() != right[1].double()) & ~(got[1].isnan() & right[1].isnan()))
    return Outcome("same_order", int(differ.sum()), "no place differs", not bool(differ.any()))


def centred(rows: Tensor, mean: Tensor) -> Tensor:
    return torch.nn.functional.normalize(rows.double() - mean, dim=1)


@check
def cosines_near(got: Tensor, right: Tensor) -> Outcome:
    """The worst sequence's cosine after the mean row of the right ones is taken off: what all rows have in common would hide
    what is wrong."""
    mean = right.double().mean(0)
    cosines = (centred(got, mean) * centred(right, mean)).sum(1)
    worst = -1.0 if bool(cosines.isnan().any()) else float(cosines.min())
    return _at_least("cosines_near", worst, CENTRED_COSINE)


def ranks(values: Tensor) -> Tensor:
    """Ranks from 0, equal values share their mean rank."""
    values = values.double()
    below = (values[None] < values[:, None]).sum(1)
    equal = (values[None] == values[:, None]).sum(1)
    return below + (equal - 1) / 2


def spearman(a: Tensor, b: Tensor) -> float:
    if bool(a.isnan().any()) or bool(b.isnan().any()):
        return -1.0
    a, b = (ranks(x) - (len(x) - 1) / 2 for x in (a, b))
    return float((a @ b) / (a.norm() * b.norm()).clamp_min(1e-30))


@check
def orders_near(got: Tensor, right: Tensor, pool: int, least: float) -> Outcome:
    """The worst pool's rank correlation of scores; sequences of a pool stand one after another."""
    worst = min(spearman(a, b) for a, b in zip(got.split(pool), right.split(pool), strict=True))
    return _at_least("orders_near", worst, least)


# --- Whether a test could fail at all ---


@check
def scores_spread(right: Tensor, pool: int) -> Outcome:
    """The least standard deviation of logits within a pool."""
    return _at_least("scores_spread", min(float(part.double().std()) for part in right.split(pool)), 1.0)


@check
def rows_differ(right: Tensor) -> Outcome:
    """The mean cosine between first rows of different sequences, without any centring."""
    unit = torch.nn.functional.normalize(right.double(), dim=1)
    n = len(unit)
    mean = float((unit.sum(0).square().sum() - n) / (n * (n - 1)))
    return _at_most("rows_differ", mean, 0.9)


@check
def scores_differ(scores: Tensor) -> Outcome:
    """The share of scores that no other sequence has: equal bits would mean little where all scores are one."""
    _, counts = scores.flatten().unique(return_counts=True)
    return _at_least("scores_differ", float((counts == 1).sum() / len(scores)), 0.9)


@check
def mistake_is_seen(outcomes: Sequence[Outcome]) -> Outcome:
    """A planted mistake fails one of the checks that it was put to."""
    failed = sum(not o.ok for o in outcomes)
    return Outcome("mistake_is_seen", failed, "at least one check fails", failed > 0)
