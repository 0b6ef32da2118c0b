"""Part: each kernel against float64."""

from __future__ import annotations

from typing import Any

from binary import Binary
from cases import Case, Results, cases
from checks import Outcome
from clock import Clock
from report import Report
from settings import Settings


def of_case(results: Results, place: int) -> Results:
    prefix = f"{place}."
    return {name.removeprefix(prefix): t for name, t in results.items() if name.startswith(prefix)}


def _worse(a: Outcome, b: Outcome) -> bool:
    return (not a.ok, abs(a.measured)) > (not b.ok, abs(b.measured))


def run(s: Settings, binary: Binary, clock: Clock, report: Report) -> dict[str, Any]:
    made = cases(s, s.torch_device)
    operands = {f"{i}.{name}": t for i, c in enumerate(made) for name, t in c.operands.items()}
    results = binary.kernels(operands, [c.settings for c in made])
    worst: dict[str, tuple[Outcome, Case]] = {}
    figures: dict[str, dict[str, float]] = {}
    for place, case in enumerate(made):
        clock.need(1, "one more kernel")
        for name, outcome in case.judge(case, of_case(results, place)):
            figures.setdefault(f"{name}: {outcome.check}", {})[case.label] = outcome.measured
            held = worst.get(f"{name}: {outcome.check}")
            if held is None or _worse(outcome, held[0]):
                worst[f"{name}: {outcome.check}"] = (outcome, case)
        case.held.clear()
    # A verdict for each kernel, of its worst case.
    for name, (outcome, case) in sorted(worst.items()):
        report.outcome(f"kernels: {name}, worst of {len(figures[name])}: {case.label}", outcome)
    report.figure(f"kernels      {len(made)} cases against float64, {len(worst)} verdicts")
    return {"cases": len(made), "worst": {n: o.measured for n, (o, _) in worst.items()}, "all": figures}
