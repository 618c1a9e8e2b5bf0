"""Time, handed in, so that tests own it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> float:
        """Return the wall clock: Unix seconds. It may jump both ways."""

    def monotonic(self) -> float:
        """Return seconds that only ever grow, for waiting."""


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()
