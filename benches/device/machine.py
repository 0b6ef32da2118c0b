"""Part: which machine this is, and what it does at best, by our own measure and by PyTorch's; our passes and stages."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
import weights
from binary import Binary
from clock import Clock, OutOfTime
from report import Report
from settings import Settings
from speed import synchronize


def about(s: Settings) -> dict[str, Any]:
    said: dict[str, Any] = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "commit": os.environ.get("MEMSLATE_COMMIT", "not given"),
    }
    if s.torch_device == "cuda":
        said |= {"gpu": torch.cuda.get_device_name(), "capability": list(torch.cuda.get_device_capability())}
        said["cuda of torch"] = torch.version.cuda
        said["driver"] = _driver()
    return said


def _driver() -> str:
    if shutil.which("nvidia-smi") is None:
        return "unknown: there is no nvidia-smi"
    query = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,power.limit", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.strip()


def _median_s(s: Settings, once: Callable[[], Any]) -> float:
    for _ in range(3):
        once()
    synchronize(s.torch_device)
    times = []
    for _ in range(15):
        began = time.perf_counter()
        once()
        synchronize(s.torch_device)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def ceilings(s: Settings) -> dict[str, float]:
    a, b = (torch.randn(s.side, s.side, device=s.torch_device, dtype=torch.bfloat16) for _ in range(2))
    product = _median_s(s, lambda: a @ b)
    source = torch.zeros(s.copy_bytes, dtype=torch.uint8, device=s.torch_device)
    to = torch.empty_like(source)
    copied = _median_s(s, lambda: to.copy_(source))
    return {"product_tflops": 2 * s.side**3 / product / 1e12, "copy_tbs": 2 * s.copy_bytes / copied / 1e12}


def run(s: Settings, binary: Binary, clock: Clock, report: Report, folder: Path) -> dict[str, Any]:
    said = {"about": about(s), "device": binary.info(), "torch": ceilings(s)}
    gpu = said["about"].get("gpu", "no GPU")
    report.figure(f"machine      {gpu}, driver {said['about'].get('driver', '-')}, torch {torch.__version__}")
    try:
        clock.need(1 if s.torch_device == "cpu" else 15, "memslate-device bench")
        if s.torch_device == "cpu":
            # A model that the emulation can run.
            said["bench"] = binary.bench("--model", weights.saved(folder, s), "--tokens", "8", "--length", "4", "--seconds", "0.01")
        else:
            said["bench"] = binary.bench("--seconds", "1")
        ours = said["bench"]["ceilings"]
        report.figure(
            f"ceilings     ours {ours['product_tflops']:.4g} TFLOP/s, {ours['copy_tbs']:.3g} TB/s; "
            f"torch {said['torch']['product_tflops']:.4g} TFLOP/s, {said['torch']['copy_tbs']:.3g} TB/s"
        )
    except OutOfTime as e:
        report.skip("machine: memslate-device bench", str(e))
    return said


def tune(s: Settings, binary: Binary, clock: Clock, report: Report, folder: Path) -> dict[str, Any]:
    """Each kernel for matrix products, and the table that its times propose."""
    if s.torch_device == "cpu" and binary.device == "cpu":
        raise OutOfTime("a CPU has no kernels to choose from")
    small = ["--model", weights.saved(folder, s), "--shape", "minilm", "--tokens", "8", "--length", "4"] if s.torch_device == "cpu" else []
    tuned = binary.bench("--tune", *small, "--seconds", "0.01" if small else "0.5")["tuning"]
    report.figure("tuning       the table " + ("should change, see device.json" if tuned["changes"] else "is the best"))
    return tuned
