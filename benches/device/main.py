"""Checks and times memslate on a GPU: see ../device.sh."""

from __future__ import annotations

import argparse
import faulthandler
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import invariance
import kernels
import machine
import parity
import self_test
import settings
import speed
import torch
from binary import Binary
from clock import Clock, OutOfTime
from report import Report
from settings import Settings

EMULATION = "MEMSLATE_EMULATION"
# The parts' shares add up to a little less: Python and PyTorch have to start.
LIMIT_S = 520.0


@dataclass(frozen=True)
class Part:
    name: str
    # Seconds of a whole run that are kept for it, however long earlier parts take; and the least that it makes sense to begin
    # with. A run with a lower limit has as much less of both.
    share: float
    least: float
    correctness: bool
    run: Callable[[], dict[str, Any]]


def parts(s: Settings, binary: Binary, clock: Clock, report: Report, folder: Path) -> list[Part]:
    model, small = folder / "model", folder / "small"
    # What shows that the results are right comes before what says how fast they come.
    return [
        Part("machine", 50, 10, False, lambda: machine.run(s, binary, clock, report, small)),
        Part("kernels", 90, 20, True, lambda: _kernels(s, binary, clock, report)),
        Part("parity", 80, 25, True, lambda: parity.run(s, binary, clock, report, model)),
        Part("invariance", 70, 25, True, lambda: invariance.run(s, binary, clock, report, model)),
        Part("speed", 170, 30, False, lambda: speed.run(s, binary, clock, report, model)),
        Part("tuning", 50, 40, False, lambda: machine.tune(s, binary, clock, report, small)),
    ]


def _kernels(s: Settings, binary: Binary, clock: Clock, report: Report) -> dict[str, Any]:
    if binary.device == "cpu":
        raise OutOfTime(f"a CPU has none of these kernels, and {EMULATION} names no emulation that this binary can open")
    return kernels.run(s, binary, clock, report)


def perform(part: Part, report: Report, clock: Clock, later: float, scale: float) -> None:
    left = clock.begin(later * scale)
    if left < part.least * scale:
        report.skip(part.name, f"{max(left, 0):.0f} s were left for it, and it wants {part.least * scale:.0f}")
        return
    began = clock.passed()
    try:
        report.data["parts"][part.name] = part.run()
    except OutOfTime as e:
        report.skip(part.name, str(e))
    except subprocess.TimeoutExpired as e:
        report.skip(part.name, f"memslate-device {e.cmd[1]} was not done after {e.timeout:.0f} s, its part's time")
    except Exception as e:
        report.error(part.name, "".join(traceback.format_exception(e))[-4_000:], part.correctness)
    report.data["run"].setdefault("seconds", {})[part.name] = round(clock.passed() - began, 1)
    report.write()
    print(f"[{clock.passed():4.0f} s] {part.name}", file=sys.stderr, flush=True)


def open_device(dry: bool, path: Path, device: str | None, folder: Path, clock: Clock) -> Binary:
    if device is not None or not dry:
        return Binary(path, device or "cuda:0", folder, clock)
    emulated = Binary(path, "emulated", folder, clock)
    if EMULATION in os.environ:
        try:
            emulated.info()
            return emulated
        except RuntimeError as e:
            print(f"no emulation: {e}", file=sys.stderr)
    return Binary(path, "cpu", folder, clock)


def main() -> int:
    parser = argparse.ArgumentParser(prog="device.sh", description=__doc__)
    parser.add_argument("--binary", type=Path, required=True, help="memslate-device")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out/device")))
    parser.add_argument("--device", help="cuda:0; in a dry run emulated where that works, else cpu")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds, 535 at most")
    parser.add_argument("--only", action="append", metavar="PART", help="this part alone; may be given again")
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes, PyTorch on the CPU, and the self-test")
    parser.add_argument("--self-test", action="store_true", help="only show that each check fails on a wrong result")
    args = parser.parse_args()
    s = settings.DRY if args.dry_run or args.self_test else settings.FULL
    about = {"dry": args.dry_run, "limit_s": args.limit, "arguments": sys.argv[1:]}
    report, clock = Report(args.out, about), Clock(min(args.limit, 535))

    def end() -> int:
        report.skip("the rest", f"the run's {args.limit:.0f} s were over")
        report.write()
        print(report.summary(), flush=True)
        return int(report.failed())

    # Says where a part stood that did not come back.
    faulthandler.dump_traceback_later(max(min(args.limit, 535) - 5, 1))
    clock.watch(end)
    if args.dry_run or args.self_test:
        self_test.run(report)
    if not args.self_test:
        if s.torch_device == "cuda" and not torch.cuda.is_available():
            parser.error("PyTorch sees no GPU; --dry-run does without")
        with tempfile.TemporaryDirectory(prefix="memslate-device-") as folder:
            binary = open_device(args.dry_run, args.binary.resolve(), args.device, Path(folder), clock)
            about["device"] = binary.device
            chosen = [p for p in parts(s, binary, clock, report, Path(folder)) if not args.only or p.name in args.only]
            for at, part in enumerate(chosen):
                later = sum(p.share for p in chosen[at + 1 :])
                perform(part, report, clock, later, min(args.limit / LIMIT_S, 1))
    about["all_seconds"] = round(clock.passed(), 1)
    report.write()
    print(report.summary(), flush=True)
    return int(report.failed())


if __name__ == "__main__":
    sys.exit(main())
