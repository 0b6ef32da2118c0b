"""A cross-encoder of random weights that a test can fail on, as a folder that Hugging Face and memslate read."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from settings import Settings
from torch import Tensor, nn
from transformers import XLMRobertaConfig, XLMRobertaForSequenceClassification

FIRST, PAD, LAST, WORDS_FROM = 0, 1, 2, 4

# Standard deviations, of matrices times the root of their depth. A test needs first rows that follow what a sequence says, and
# a model that does not make more of bf16's rounding than a test can allow. Found by trying, at 24 layers: with the feed-forward
# part or biases as large as the rest all first rows become one (mean cosine 0.9), with larger values or scores some sequences are
# off by 0.001 in bf16, by PyTorch too. `parity.py` asserts what is wanted.
SCALES = {
    "word_embeddings": 1.0,
    "position_embeddings": 0.3,
    "token_type_embeddings": 0.1,
    "query": 1.0,
    "key": 1.0,
    "value": 0.7,
    "attention.output.dense": 1.0,
    "intermediate.dense": 1.0,
    "output.dense": 0.3,
    "classifier.dense": 1.0,
    "classifier.out_proj": 8.0,
}
BIAS, GAIN = 0.01, 0.2


def config(s: Settings) -> XLMRobertaConfig:
    return XLMRobertaConfig(
        vocab_size=s.vocab,
        hidden_size=s.hidden,
        num_hidden_layers=s.layers,
        num_attention_heads=s.heads,
        intermediate_size=s.intermediate,
        max_position_embeddings=s.positions,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        hidden_act="gelu",
        pad_token_id=PAD,
        bos_token_id=FIRST,
        eos_token_id=LAST,
        num_labels=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


def model(s: Settings, dtype: torch.dtype, state: dict[str, Tensor] | None = None) -> nn.Module:
    """The classes of transformers, on the reference's device."""
    made = config(s)
    made._attn_implementation = "sdpa"
    with torch.device("meta"):
        empty = XLMRobertaForSequenceClassification(made)
    # Buffers are not among the weights: they come from a model of one layer, which costs nothing.
    small = config(s)
    small.num_hidden_layers = 1
    buffers = dict(XLMRobertaForSequenceClassification(small).named_buffers())
    full = empty.to_empty(device=s.torch_device)
    for name, buffer in full.named_buffers():
        buffer.copy_(buffers[name])
    full.load_state_dict(state if state is not None else draw(s), strict=False)
    return full.to(dtype).eval()


def _scale(name: str) -> float:
    # The longest of the names that fit: `attention.output.dense` before `output.dense`.
    return SCALES[max((key for key in SCALES if key in name), key=len)]


def draw(s: Settings, seed: int = 3) -> dict[str, Tensor]:
    """Weights of bf16, so that every precision computes with the same."""
    generator = torch.Generator().manual_seed(seed)
    with torch.device("meta"):
        shapes = {n: p.shape for n, p in XLMRobertaForSequenceClassification(config(s)).named_parameters()}

    def tensor(name: str, shape: torch.Size) -> Tensor:
        values = torch.randn(shape, generator=generator)
        if "LayerNorm" in name:
            values = 1 + GAIN * values if name.endswith("weight") else BIAS * values
        elif name.endswith("bias"):
            values = BIAS * values
        elif "embeddings" in name:
            values = _scale(name) * values
        else:
            values = values * _scale(name) * shape[1] ** -0.5
        return values.to(torch.bfloat16)

    return {name: tensor(name, shape) for name, shape in shapes.items()}


def saved(folder: Path, s: Settings) -> Path:
    """The folder, filled by whichever part is the first to want it."""
    return folder if (folder / "config.json").exists() else save(folder, s, draw(s))


def save(folder: Path, s: Settings, state: dict[str, Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    settings = config(s).to_dict() | {"architectures": ["XLMRobertaForSequenceClassification"], "model_type": "xlm-roberta"}
    save_file({name: t.contiguous() for name, t in state.items()}, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "config.json").write_text(json.dumps(settings, default=str))
    return folder


def sequences(lengths: list[int], vocab: int, seed: int) -> list[Tensor]:
    """Random words between the marks; a sequence of one token is a word."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for n in lengths:
        tokens = torch.randint(WORDS_FROM, vocab, (n,), generator=generator)
        if n > 2:
            tokens[0], tokens[-1] = FIRST, LAST
        made.append(tokens)
    return made


def log_normal(count: int, mean: float, seed: int, least: int, most: int) -> list[int]:
    """Lengths of chats' turns: many short, few long."""
    generator = torch.Generator().manual_seed(seed)
    spread = 0.7
    middle = mean / torch.exp(torch.tensor(spread**2 / 2))
    drawn = torch.exp(spread * torch.randn(count, generator=generator)) * middle
    return drawn.round().long().clamp(least, most).tolist()
