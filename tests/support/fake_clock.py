"""A clock that tests own."""


class FakeClock:
    """Stands still until told otherwise."""

    def __init__(self, now: float = 1_790_000_000.0) -> None:
        self._now = now
        self._monotonic = 1000.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def pass_time(self, seconds: float) -> None:
        """Let time pass, on both clocks."""
        self._now += seconds
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock, and only that."""
        self._now += seconds
