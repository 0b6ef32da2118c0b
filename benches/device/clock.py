"""Time: a run's end, each part's share of it, and the watch that ends a run whose part does not come back."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable


class OutOfTime(Exception):
    """A part's share is used up; what it measured so far is kept."""


class Clock:
    def __init__(self, limit_s: float):
        self.began = time.monotonic()
        self.end = self.began + limit_s
        self.part_end = self.end

    def passed(self) -> float:
        return time.monotonic() - self.began

    def left(self) -> float:
        """Of the part that runs, in seconds."""
        return self.part_end - time.monotonic()

    def begin(self, later_s: float) -> float:
        """Begins a part before parts that want `later_s` together: what earlier parts left over is its own. Gives its time."""
        self.part_end = self.end - later_s
        return self.left()

    def need(self, seconds: float, what: str) -> None:
        """Asks for time before something that takes so long."""
        if self.left() < seconds:
            raise OutOfTime(f"{what} takes about {seconds:.0f} s, and {max(self.left(), 0):.0f} s are left for this part")

    def watch(self, end: Callable[[], int]) -> None:
        """At the run's end, `end` writes what there is and the process exits with its code: a compiler or a kernel that hangs
        cannot be asked to stop."""

        def wait() -> None:
            time.sleep(max(self.end - time.monotonic(), 0))
            code = 1
            try:
                code = end()
            finally:
                os._exit(code)

        threading.Thread(target=wait, daemon=True).start()
