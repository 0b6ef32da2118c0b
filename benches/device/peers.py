"""What PyTorch does at best with the same weights, in bf16: padded batches, packed ones, and packed ones compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
import weights
from parity import batches
from settings import Settings
from torch import Tensor, nn

# Of packed rows (tokens, heads, dim): queries, keys, values, where sequences begin, the longest length.
Attend = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]
Pass = Callable[[], Tensor]


# --- Attention over packed rows ---


def _varlen(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn(q, k, v, starts, starts, longest, longest)


def _flash(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int) -> Tensor:
    return torch.ops.aten._flash_attention_forward(q, k, v, starts, starts, longest, longest, 0.0, False, False)[0]


def _nested(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int) -> Tensor:
    parts = [torch.nested.nested_tensor_from_jagged(x, starts.long()).transpose(1, 2) for x in (q, k, v)]
    return F.scaled_dot_product_attention(*parts).transpose(1, 2).values()


def _one_by_one(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int) -> Tensor:
    lengths = starts.diff().tolist()
    parts = zip(*(x.transpose(0, 1).split(lengths, 1) for x in (q, k, v)), strict=True)
    return torch.cat([F.scaled_dot_product_attention(*(x[None] for x in part))[0] for part in parts], 1).transpose(0, 1)


ATTENTIONS: dict[str, Attend] = {
    "torch.nn.attention.varlen.varlen_attn": _varlen,
    "aten._flash_attention_forward with starts": _flash,
    "SDPA on nested tensors": _nested,
}
ON_CPU = "SDPA, one sequence after another (a CPU has no flash attention)"


def attention(device: str) -> tuple[str, Attend, dict[str, str]]:
    """The first of them that this PyTorch has and that computes what SDPA does; and why others were passed over."""
    if device == "cpu":
        return ON_CPU, _one_by_one, {}
    passed: dict[str, str] = {}
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(400, 4, 64, generator=generator).to(device, torch.bfloat16) for _ in range(3))
    starts = torch.tensor([0, 1, 90, 400], dtype=torch.int32, device=device)
    right = _one_by_one(q.float(), k.float(), v.float(), starts, 310)
    for name, attend in ATTENTIONS.items():
        try:
            off = float((attend(q, k, v, starts, 310).float() - right).norm() / right.norm())
            if off <= 0.02:
                return name, attend, passed
            passed[name] = f"off by {off:.3f}"
        except Exception as e:  # Whatever a version lacks: the next one is tried.
            passed[name] = repr(e)[:300]
    raise RuntimeError(f"no attention over packed rows: {passed}")


# --- A model on packed rows ---


class Packed:
    """The same layers without padding: products over all tokens at once, queries, keys and values in one."""

    def __init__(self, s: Settings, model: nn.Module, attend: Attend):
        self.heads, self.model, self.on_gpu = s.heads, model, s.torch_device == "cuda"
        self.layers = [self._tensors(layer) for layer in model.roberta.encoder.layer]
        self.layer = self._layer(attend)

    @staticmethod
    def _tensors(layer: nn.Module) -> list[Tensor]:
        own, out = layer.attention.self, layer.attention.output
        three = (own.query, own.key, own.value)
        merged = [torch.cat([p.weight for p in three]), torch.cat([p.bias for p in three])]
        parts = (out.dense, out.LayerNorm, layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm)
        return [t.detach() for t in merged] + [t.detach() for p in parts for t in (p.weight, p.bias)]

    def _layer(self, attend: Attend) -> Callable[..., Tensor]:
        heads = self.heads

        def layer(x: Tensor, starts: Tensor, longest: int, *w: Tensor) -> Tensor:
            hidden = x.shape[1]
            q, k, v = F.linear(x, w[0], w[1]).view(-1, 3, heads, hidden // heads).unbind(1)
            seen = attend(q, k, v, starts, longest).reshape(-1, hidden)
            x = F.layer_norm(F.linear(seen, w[2], w[3]) + x, (hidden,), w[4], w[5], 1e-5)
            inner = F.gelu(F.linear(x, w[6], w[7]))
            return F.layer_norm(F.linear(inner, w[8], w[9]) + x, (hidden,), w[10], w[11], 1e-5)

        return layer

    def compiled(self, dynamic: bool) -> Packed:
        """One layer compiled, used for all; its weights are arguments. On a CPU it is only traced: a compiler of its own would
        take the dry run's time, and its speed says nothing."""
        other = object.__new__(Packed)
        other.__dict__.update(self.__dict__)
        backend = "inductor" if self.on_gpu else "eager"
        other.layer = torch.compile(self.layer, dynamic=dynamic, backend=backend)
        return other

    def __call__(self, ids: Tensor, places: Tensor, starts: Tensor, longest: int) -> Tensor:
        e = self.model.roberta.embeddings
        x = F.embedding(ids, e.word_embeddings.weight) + F.embedding(places, e.position_embeddings.weight)
        x = e.LayerNorm(x + e.token_type_embeddings.weight[0])
        for tensors in self.layers:
            x = self.layer(x, starts, longest, *tensors)
        return self.model.classifier(x[starts[:-1].long()][:, None]).flatten()


# --- Passes over a set of pairs. Their inputs lie on the device in batches before the clock starts: that favours the peer ---


def _in_order(made: list[list[int]], parts: list[Tensor]) -> Tensor:
    scores = torch.cat(parts).float().cpu()
    back = torch.empty(len(scores), dtype=torch.long)
    back[torch.tensor([i for batch in made for i in batch])] = torch.arange(len(scores))
    return scores[back]


def padded(s: Settings, model: nn.Module, pairs: Sequence[Tensor]) -> Pass:
    """transformers with SDPA, batches sorted by length; without a mask where nothing is padded."""
    made = batches([len(p) for p in pairs], s.batch_tokens)
    inputs = []
    for batch in made:
        ids = nn.utils.rnn.pad_sequence([pairs[i] for i in batch], batch_first=True, padding_value=weights.PAD)
        ids = ids.to(s.torch_device)
        mask = ids != weights.PAD
        inputs.append((ids, None if bool(mask.all()) else mask.long()))
    return lambda: _in_order(made, [model(ids, attention_mask=mask).logits.flatten() for ids, mask in inputs])


def packed(s: Settings, model: Packed, pairs: Sequence[Tensor]) -> Pass:
    """Batches of so many tokens, sorted by length, end to end."""
    made: list[list[int]] = []
    tokens = 0
    for place in sorted(range(len(pairs)), key=lambda i: -len(pairs[i])):
        if not made or tokens + len(pairs[place]) > s.batch_tokens:
            made.append([])
            tokens = 0
        made[-1].append(place)
        tokens += len(pairs[place])
    inputs = []
    for batch in made:
        lengths = torch.tensor([len(pairs[i]) for i in batch])
        starts = F.pad(lengths.cumsum(0), (1, 0)).int()
        places = torch.cat([torch.arange(n) for n in lengths.tolist()]) + weights.PAD + 1
        ids = torch.cat([pairs[i] for i in batch])
        on = [t.to(s.torch_device) for t in (ids, places, starts)]
        inputs.append((*on, int(lengths.max())))
    return lambda: _in_order(made, [model(*parts) for parts in inputs])
