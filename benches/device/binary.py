"""Runs `memslate-device`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clock import Clock
from tensors import read, write, write_sequences
from torch import Tensor


class Binary:
    """The binary, the device that it is to use, and a folder for the files between it and us."""

    def __init__(self, path: Path, device: str, folder: Path, clock: Clock):
        self.path, self.device, self.folder, self.clock = path, device, folder, clock

    def run(self, *arguments: str | Path) -> str:
        """Gives what it printed; an error carries what it said."""
        command = [str(self.path), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(self.clock.left(), 1))
        if done.returncode != 0:
            raise RuntimeError(f"memslate-device {arguments[0]} ended with {done.returncode}: {done.stderr.strip()[-800:]}")
        return done.stdout

    def info(self) -> dict[str, Any]:
        return json.loads(self.run("info", "--device", self.device))

    def bench(self, *arguments: str | Path) -> dict[str, Any]:
        return json.loads(self.run("bench", "--device", self.device, "--json", *arguments))

    def kernels(self, operands: dict[str, Tensor], cases: list[dict]) -> dict[str, Tensor]:
        given, got = self.folder / "cases.safetensors", self.folder / "results.safetensors"
        write(given, operands, cases)
        self.run("kernels", "--device", self.device, "--input", given, "--output", got)
        results = read(got)
        # They are large, and a part follows a part.
        given.unlink()
        got.unlink()
        return results

    def forward(
        self, model: Path, head: str, sequences: Sequence[Tensor], repeat: int = 1, alone: bool = False
    ) -> tuple[Tensor, dict[str, Any]]:
        """Rows of f32, and how long it took. `alone`: each sequence is a batch of its own."""
        given, got = self.folder / "sequences.safetensors", self.folder / "rows.safetensors"
        write_sequences(given, sequences)
        options = ["--model", model, "--head", head, "--input", given, "--output", got, "--repeat", str(repeat)]
        if alone:
            options.append("--alone")
        timing = json.loads(self.run("forward", "--device", self.device, *options))
        return read(got)["rows"], timing
