"""What a run says: verdicts, figures, what was left out; as JSON and as a page of text."""

from __future__ import annotations

import json
import math
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from checks import Outcome

CORRECTNESS, SPEED = "correctness", "speed"


@dataclass(frozen=True)
class Verdict:
    kind: str
    name: str
    # A figure, or nothing where a part ended in an error.
    measured: float | None
    target: str
    met: bool


class Report:
    """Written anew after each part: what was measured stays, whatever ends the run."""

    def __init__(self, out: Path, about: dict[str, Any]):
        self.out = out
        self.data: dict[str, Any] = {"run": about, "parts": {}}
        self.verdicts: list[Verdict] = []
        self.skipped: dict[str, str] = {}
        self.errors: dict[str, str] = {}
        self.lines: list[str] = []
        self._lock = threading.RLock()
        out.mkdir(parents=True, exist_ok=True)

    def outcome(self, name: str, outcome: Outcome) -> Outcome:
        """A correctness check's outcome becomes a verdict."""
        with self._lock:
            self.verdicts.append(Verdict(CORRECTNESS, name, outcome.measured, outcome.target, outcome.ok))
        return outcome

    def speed(self, name: str, measured: float, target: str, met: bool) -> None:
        with self._lock:
            self.verdicts.append(Verdict(SPEED, name, measured, target, met))

    def skip(self, name: str, why: str) -> None:
        with self._lock:
            self.skipped[name] = why

    def error(self, part: str, what: str, correctness: bool) -> None:
        """An error of a part that checks is a failed check: it says nothing good of what it did not get to."""
        with self._lock:
            self.errors[part] = what
            if correctness:
                self.verdicts.append(Verdict(CORRECTNESS, part, None, "runs to its end", False))

    def figure(self, line: str) -> None:
        """A line for the summary."""
        with self._lock:
            self.lines.append(line)

    def failed(self) -> bool:
        return any(v.kind == CORRECTNESS and not v.met for v in self.verdicts)

    def summary(self) -> str:
        words = {(CORRECTNESS, True): "ok", (CORRECTNESS, False): "WRONG", (SPEED, True): "met", (SPEED, False): "not met"}
        lines = [*self.lines, ""]
        for kind in (CORRECTNESS, SPEED):
            for v in (v for v in self.verdicts if v.kind == kind):
                measured = "-" if v.measured is None else f"{v.measured:.6g}"
                lines.append(f"{words[kind, v.met]:8} {kind}: {v.name}: {measured} ({v.target})")
        lines += [f"skipped  {name}: {why}" for name, why in self.skipped.items()]
        lines += [f"error    {part}: {what.splitlines()[-1] if what else ''}" for part, what in self.errors.items()]
        checked = sum(v.kind == CORRECTNESS for v in self.verdicts)
        wrong = sum(v.kind == CORRECTNESS and not v.met for v in self.verdicts)
        targets = [v.met for v in self.verdicts if v.kind == SPEED]
        lines += ["", f"{checked} correctness checks, {wrong} wrong; {sum(targets)} of {len(targets)} speed targets met"]
        return "\n".join(lines) + "\n"

    def write(self) -> None:
        with self._lock:
            whole = {
                **self.data,
                "verdicts": [asdict(v) for v in self.verdicts],
                "skipped": self.skipped,
                "errors": self.errors,
                "correct": not self.failed(),
            }
            for name, text in (("device.json", json.dumps(_plain(whole), indent=1)), ("summary.txt", self.summary())):
                fresh = self.out / f".{name}"
                fresh.write_text(text)
                fresh.replace(self.out / name)


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
