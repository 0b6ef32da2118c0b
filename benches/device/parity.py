"""Part: a whole model against transformers on the same weights, in a test that is shown to be able to fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import checks
import torch
import weights
from binary import Binary
from checks import Outcome
from clock import Clock
from report import Report
from settings import Settings
from torch import Tensor, nn

# Padded tokens of a batch of the reference.
BATCH = 16_384


@dataclass(frozen=True)
class Answers:
    """Of sequences: the last layer's first rows, and logits."""

    rows: Tensor
    logits: Tensor


def exact() -> None:
    """Products of f32 in f32: the reference is not to be rounded to TF32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")


def batches(lengths: Sequence[int], most: int) -> list[list[int]]:
    """Places of sequences, long ones first, in batches of so many padded tokens."""
    made: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if not made or lengths[made[-1][0]] * (len(made[-1]) + 1) > most:
            made.append([])
        made[-1].append(place)
    return made


@torch.inference_mode()
def reference(model: nn.Module, sequences: Sequence[Tensor], device: str, visible: Sequence[int] | None = None) -> Answers:
    """What transformers computes. `visible`: how many of its tokens each sequence sees, where that is not all of them."""
    rows, logits = {}, {}
    for batch in batches([len(s) for s in sequences], BATCH):
        ids = nn.utils.rnn.pad_sequence([sequences[i] for i in batch], batch_first=True, padding_value=weights.PAD)
        seen = torch.tensor([len(sequences[i]) if visible is None else visible[i] for i in batch])
        mask = (torch.arange(ids.shape[1])[None] < seen[:, None]).long()
        hidden = model.roberta(ids.to(device), attention_mask=mask.to(device))[0]
        scored = model.classifier(hidden).float().flatten().cpu()
        first = hidden[:, 0].float().cpu()
        for at, place in enumerate(batch):
            rows[place], logits[place] = first[at], scored[at]
    order = range(len(sequences))
    return Answers(torch.stack([rows[i] for i in order]), torch.stack([logits[i] for i in order]))


def judge(s: Settings, got: Answers, right: Answers) -> list[tuple[str, Outcome]]:
    """The test. Only whole pools have a rank correlation."""
    ranked = s.pools * s.pool
    order = checks.orders_near(got.logits[:ranked], right.logits[:ranked], s.pool, s.spearman)
    return [("first rows", checks.cosines_near(got.rows, right.rows)), ("order of scores", order)]


def unit(rows: Tensor) -> Tensor:
    return nn.functional.normalize(rows, dim=1)


def texts(s: Settings) -> list[Tensor]:
    """Pools of mixed lengths, and behind them lengths on both sides of the tiles' edges, and a long one."""
    lengths = weights.log_normal(s.pools * s.pool, s.mean_length, 5, 8, s.longest)
    return weights.sequences([*lengths, *s.lengths, s.long], s.vocab, 6)


def run(s: Settings, binary: Binary, clock: Clock, report: Report, folder: Path) -> dict[str, Any]:
    exact()
    state = weights.draw(s)
    weights.save(folder, s, state)
    sequences = texts(s)
    model = weights.model(s, torch.float32, state)
    right = reference(model, sequences, s.torch_device)
    ranked = right.logits[: s.pools * s.pool]
    report.outcome("parity: logits spread within a pool", checks.scores_spread(ranked, s.pool))
    report.outcome("parity: first rows differ between sequences", checks.rows_differ(right.rows))

    clock.need(10, "a forward pass of ours")
    embedded, timing = binary.forward(folder, "embed", sequences)
    scored, _ = binary.forward(folder, "score", sequences)
    ours = Answers(embedded, scored.flatten())
    # `embed` gives rows of unit length, so the reference's are made so too.
    right = Answers(unit(right.rows), right.logits)
    figures: dict[str, Any] = {"kernel_plan": timing["kernel_plan"], "sequences": len(sequences)}
    for name, outcome in judge(s, ours, right):
        report.outcome(f"parity: {name}, f32 of transformers", outcome)
        figures[name] = outcome.measured
    off = (ours.logits - right.logits).double()
    figures["logits, root mean square off"] = float(off.square().mean().sqrt())
    figures["logits, standard deviation"] = float(right.logits.double().std())

    clock.need(5, "planted mistakes")
    for name, wrong in planted(s, model, sequences).items():
        judged = judge(s, Answers(unit(wrong.rows), wrong.logits), right)
        report.outcome(f"parity: {name} is seen", checks.mistake_is_seen([o for _, o in judged]))
        figures[name] = {check: outcome.measured for check, outcome in judged}
    del model

    # For information: what bf16 costs transformers itself.
    clock.need(5, "transformers in bf16")
    half = reference(weights.model(s, torch.bfloat16, state), sequences, s.torch_device)
    figures["transformers in bf16"] = {n: o.measured for n, o in judge(s, Answers(unit(half.rows), half.logits), right)}
    report.figure(f"parity       {s.layers} layers, {len(sequences)} sequences: " + _line(figures))
    return figures


def planted(s: Settings, model: nn.Module, sequences: list[Tensor]) -> dict[str, Answers]:
    """The reference with attention off by one, either way."""
    lengths = [len(t) for t in sequences]
    # A sequence of one token has nothing else to see.
    short = reference(model, sequences, s.torch_device, [max(n - 1, 1) for n in lengths])
    # Position tables have room for one more token only below their end.
    longer = [
        torch.cat([own, after[:1]]) if len(own) < s.positions - 2 else own
        for own, after in zip(sequences, [*sequences[1:], sequences[0]], strict=True)
    ]
    return {
        "a mask that hides each last token": short,
        "a mask that shows the neighbour's first token": reference(model, longer, s.torch_device),
    }


def _line(figures: dict[str, Any]) -> str:
    half = figures["transformers in bf16"]
    return ", ".join(f"{name} {figures[name]:.6f} (transformers in bf16: {half[name]:.6f})" for name in half)
