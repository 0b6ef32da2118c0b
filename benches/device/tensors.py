"""Safetensors files as `memslate-device` reads and writes them (src/device/trial/kernels.rs)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor

_TYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "I32": torch.int32, "I64": torch.int64}


def read(path: Path) -> dict[str, Tensor]:
    """All tensors of a file, in memory of their own. U32 becomes i64: PyTorch computes with none, or not with all versions."""
    tensors = {}
    for name, view in safetensors.deserialize(path.read_bytes()):
        data, kind = bytearray(view["data"]), view["dtype"]
        if kind == "U32":
            flat = torch.frombuffer(data, dtype=torch.int32).long() & 0xFFFF_FFFF
        else:
            flat = torch.frombuffer(data, dtype=_TYPES[kind]).clone() if data else torch.empty(0, dtype=_TYPES[kind])
        tensors[name] = flat.view(view["shape"])
    return tensors


def write(path: Path, tensors: dict[str, Tensor], cases: list[dict] | None = None) -> None:
    metadata = None if cases is None else {"cases": json.dumps(cases)}
    save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, path, metadata=metadata)


def write_sequences(path: Path, sequences: Sequence[Tensor]) -> None:
    lengths = torch.tensor([len(s) for s in sequences], dtype=torch.int32)
    write(path, {"tokens": torch.cat(list(sequences)).int(), "lengths": lengths})
