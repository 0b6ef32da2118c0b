"""Single kernels: operands, and what is right of them in float64.

Operands are rounded to the type that the kernel reads, and the right result is computed from the rounded ones: what is
measured is the kernel's own error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import checks
import torch
import torch.nn.functional as F
from checks import Outcome
from settings import Settings
from torch import Tensor

Results = dict[str, Tensor]
NO_ITEM = 0xFFFF_FFFF


@dataclass
class Case:
    label: str
    settings: dict[str, Any]
    operands: dict[str, Tensor]
    # From the operands, on any device.
    right: Callable[["Case"], Any]
    judge: Callable[["Case", Results], list[tuple[str, Outcome]]]
    device: str = "cpu"
    held: dict[str, Any] = field(default_factory=dict)

    def of(self, name: str) -> Tensor:
        """An operand in float64 (whole numbers stay whole), where the right result is computed."""
        tensor = self.operands[name].to(self.device)
        return tensor.double() if tensor.is_floating_point() else tensor.long()

    def expected(self) -> Any:
        if "right" not in self.held:
            self.held["right"] = self.right(self)
        return self.held["right"]


class Maker:
    """Draws operands from a seed."""

    def __init__(self, seed: int, device: str):
        self.generator = torch.Generator().manual_seed(seed)
        self.device = device

    def normal(self, *shape: int, scale: float = 1.0, middle: float = 0.0, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return (torch.randn(*shape, generator=self.generator) * scale + middle).to(dtype)

    def whole(self, below: int, *shape: int) -> Tensor:
        return torch.randint(below, shape, generator=self.generator)

    # --- One function an operation ---

    def gemm(self, rows: int, columns: int, depth: int, epilogue: str) -> Case:
        operands = {
            "a": self.normal(rows, depth),
            "w": self.normal(columns, depth, scale=depth**-0.5),
            "bias": self.normal(columns, scale=0.5, dtype=torch.float32),
        }
        if epilogue == "residual":
            operands["residual"] = self.normal(rows, columns)
        settings = {"op": "gemm", "epilogue": epilogue}
        return Case(f"gemm {epilogue} {rows}x{columns}x{depth}", settings, operands, _gemm, _judge_gemm, self.device)

    def layer_norm(self, rows: int, hidden: int) -> Case:
        operands = {"x": self.normal(rows, hidden, scale=0.5, middle=1.5), **self._norm(hidden)}
        settings = {"op": "layer_norm", "epsilon": 1e-5}
        return Case(f"layer_norm {rows}x{hidden}", settings, operands, _layer_norm, _judge_rows, self.device)

    def _norm(self, hidden: int) -> dict[str, Tensor]:
        gain = self.normal(hidden, scale=0.2, middle=1.0, dtype=torch.float32)
        return {"gain": gain, "shift": self.normal(hidden, scale=0.1, dtype=torch.float32)}

    def embed(self, rows: int, hidden: int) -> Case:
        tables = {"words": 997, "positions": 514, "types": 2}
        operands = {name: self.normal(count, hidden) for name, count in tables.items()} | self._norm(hidden)
        for name, count in zip(("ids", "places", "segments"), tables.values(), strict=True):
            operands[name] = self.whole(count, rows)
        settings = {"op": "embed", "epsilon": 1e-5}
        return Case(f"embed {rows}x{hidden}", settings, operands, _embed, _judge_rows, self.device)

    def attention(self, lengths: list[int], heads: int, dim: int, sharp: float = 1.0) -> Case:
        """`sharp` scales the queries: large, and a query attends to few keys."""
        qkv = torch.randn(sum(lengths), 3, heads * dim, generator=self.generator)
        qkv[:, 0] *= sharp
        operands = {"qkv": qkv.flatten(1).to(torch.bfloat16)}
        settings = {"op": "attention", "heads": heads, "lengths": lengths}
        label = f"attention {heads}x{dim} sharp {sharp:g}, lengths {min(lengths)} to {max(lengths)}"
        return Case(label, settings, operands, _attention, _judge_attention, self.device)

    def gather(self, rows: int, count: int, hidden: int) -> Case:
        operands = {"x": self.normal(rows, hidden), "rows": self.whole(rows, count)}
        return Case(f"gather {count} of {rows}x{hidden}", {"op": "gather"}, operands, _gather, _judge_bits, self.device)

    def pool(self, lengths: list[int], hidden: int, mean: bool) -> Case:
        starts = torch.tensor([0, *lengths]).cumsum(0)
        operands = {"x": self.normal(sum(lengths), hidden, middle=0.1), "starts": starts}
        label = f"pool {'mean' if mean else 'first'} {len(lengths)}x{hidden}"
        return Case(label, {"op": "pool", "mean": mean}, operands, _pool, _judge_pool, self.device)

    def score_head(self, rows: int, hidden: int) -> Case:
        operands = {
            "x": self.normal(rows, hidden),
            "dense_weight": self.normal(hidden, hidden, scale=hidden**-0.5),
            "dense_bias": self.normal(hidden, scale=0.1, dtype=torch.float32),
            "projection_weight": self.normal(1, hidden, scale=hidden**-0.5),
            "projection_bias": self.normal(1, scale=0.1, dtype=torch.float32),
        }
        return Case(f"score_head {rows}x{hidden}", {"op": "score_head"}, operands, _score_head, _judge_logits, self.device)

    def top_k(self, groups: list[tuple[int, int]], dim: int, k: int) -> Case:
        """`groups`: queries and items of each. Values are small whole numbers, so that f32 sums are exact in any order, and
        many items tie."""
        bounds, query, item = [], 0, 0
        for queries, items in groups:
            bounds.append([query, query + queries, item, item + items])
            query, item = query + queries, item + items
        operands = {name: (self.whole(3, n, dim) - 1).float() for name, n in (("queries", query), ("items", item))}
        # Copies of an item tie for every query.
        operands["items"][1::3] = operands["items"][::3][: len(operands["items"][1::3])]
        settings = {"op": "top_k", "k": k, "groups": bounds}
        return Case(f"top_k {k} of {item} items x{dim}", settings, operands, _top_k, _judge_top_k, self.device)


# --- What is right ---


def product(case: Case) -> Tensor:
    return case.of("a") @ case.of("w").T + case.of("bias")


def _gemm(case: Case) -> Tensor:
    x = product(case)
    if case.settings["epilogue"] == "gelu":
        return F.gelu(x)
    return x + case.of("residual") if case.settings["epilogue"] == "residual" else x


def _normed(case: Case, x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[1:], case.of("gain"), case.of("shift"), case.settings["epsilon"])


def _layer_norm(case: Case) -> Tensor:
    return _normed(case, case.of("x"))


def _embed(case: Case) -> Tensor:
    parts = (("words", "ids"), ("positions", "places"), ("types", "segments"))
    return _normed(case, sum(case.of(table)[case.of(ids)] for table, ids in parts))


def _attention(case: Case) -> Tensor:
    heads, lengths = case.settings["heads"], case.settings["lengths"]
    out = []
    for part in case.of("qkv").split(lengths):
        q, k, v = part.view(len(part), 3, heads, -1).permute(1, 2, 0, 3)
        # A head at a time: 8,192 tokens make half a GiB of scores.
        scale = q.shape[-1] ** -0.5
        each = [torch.softmax(q[h] @ k[h].T * scale, -1) @ v[h] for h in range(heads)]
        out.append(torch.stack(each, 1).flatten(1))
    return torch.cat(out)


def _gather(case: Case) -> Tensor:
    return case.operands["x"][case.operands["rows"]]


def _pool(case: Case) -> Tensor:
    lengths = case.of("starts").diff().tolist()
    parts = case.of("x").split(lengths)
    return F.normalize(torch.stack([p.mean(0) if case.settings["mean"] else p[0] for p in parts]), dim=1)


def _score_head(case: Case) -> Tensor:
    inner = torch.tanh(case.of("x") @ case.of("dense_weight").T + case.of("dense_bias"))
    return (inner @ case.of("projection_weight").T + case.of("projection_bias")).flatten()


def _top_k(case: Case) -> tuple[Tensor, Tensor]:
    k, indices, scores = case.settings["k"], [], []
    for q0, q1, i0, i1 in case.settings["groups"]:
        products = case.of("queries")[q0:q1] @ case.of("items")[i0:i1].T
        order = torch.sort(products, dim=1, descending=True, stable=True).indices[:, :k]
        missing = k - order.shape[1]
        indices.append(F.pad(order, (0, missing), value=-1))
        scores.append(F.pad(products.gather(1, order), (0, missing), value=math.nan))
    return torch.cat(indices).cpu(), torch.cat(scores).cpu()


# --- Results against it ---

Judged = list[tuple[str, Outcome]]


def _out(case: Case, got: Results) -> Tensor:
    return got["out"].to(case.device)


def _judge_gemm(case: Case, got: Results) -> Judged:
    """A result for each kernel that the chip runs."""
    judged: Judged = []
    for name, out in got.items():
        tile = name.removeprefix("out.")
        judged.append((f"gemm {tile}", checks.rows_near(out.to(case.device), case.expected())))
        # Fewer values than this are too few to average bf16's rounding away.
        if case.settings["epilogue"] == "gelu" and out.numel() >= 8_000:
            judged.append((f"gemm {tile}, gelu", checks.gelu_is_erf(out.to(case.device), product(case))))
    if not judged:
        raise RuntimeError(f"{case.label}: no kernel ran")
    return judged


def _judge_rows(case: Case, got: Results) -> Judged:
    return [(case.settings["op"], checks.rows_near(_out(case, got), case.expected()))]


def _judge_attention(case: Case, got: Results) -> Judged:
    return [("attention", checks.sequences_near(_out(case, got), case.expected(), case.settings["lengths"]))]


def _judge_bits(case: Case, got: Results) -> Judged:
    return [("gather", checks.same_bits(got["out"], case.expected()))]


def _judge_pool(case: Case, got: Results) -> Judged:
    return [("pool", checks.rows_near(_out(case, got), case.expected(), checks.POOL_LIMIT))]


def _judge_logits(case: Case, got: Results) -> Judged:
    return [("score_head", checks.logits_near(_out(case, got), case.expected()))]


def _judge_top_k(case: Case, got: Results) -> Judged:
    indices = got["indices"].long()
    found = (torch.where(indices == NO_ITEM, -1, indices), got["out"])
    return [("top_k", checks.same_order(found, case.expected()))]


# --- Which cases ---


def cases(s: Settings, device: str) -> list[Case]:
    make = Maker(20, device)
    h, wide = s.hidden, s.intermediate
    # The four layers of a model, each with what follows it.
    layers = [(3 * h, h, "bias"), (h, h, "residual"), (wide, h, "gelu"), (h, wide, "residual")]
    rows = s.lengths
    made = [make.gemm(r, n, k, e) for n, k, e in layers for r in rows]
    made += [make.gemm(s.many_rows, n, k, e) for n, k, e in layers]
    made += [make.gemm(65, n, k, e) for n, k, _ in layers for e in ("bias", "gelu", "residual")]
    # Columns and depth that are no multiples of a tile either.
    made += [make.gemm(130, 200, 96, e) for e in ("bias", "gelu", "residual")]
    made += [make.layer_norm(r, h) for r in (*rows, s.many_rows)] + [make.layer_norm(65, 96)]
    made += [make.embed(r, h) for r in (1, 65, s.many_rows)]
    made += [make.attention(list(rows), s.heads, h // s.heads, sharp) for sharp in (1.0, 4.0)]
    made += [make.attention([s.long], s.heads, h // s.heads), make.attention(list(rows), 3, 32)]
    made += [make.gather(s.many_rows, 300, h)]
    made += [make.pool([*rows, 2], h, mean) for mean in (False, True)]
    made += [make.score_head(r, h) for r in (1, 17, 300)]
    made += [make.top_k([(3, 5), (2, 300), (1, s.items)], h, s.best), make.top_k([(2, 70), (1, 1)], 30, 7)]
    return made
