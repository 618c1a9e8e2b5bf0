"""The one place where an exchange waits, so that nothing can wait for too long."""

import enum
import os
import select
import threading
from collections.abc import Iterable
from concurrent import futures
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from telegrammer.clock import Clock
from telegrammer.errors import BrokenResponse, Cut, TimedOut, Unreachable

T = TypeVar("T")

# Beside the body: heads, chunk sizes, TLS records, an encoding that does not pay.
_OVERHEAD: Final = 256 * 1024


@dataclass(frozen=True)
class Limits:
    """What one exchange may take.

    ``total`` and ``connect`` are in seconds; ``connect`` covers everything before the
    request: name, connection, proxy, TLS. ``size`` bounds the body in bytes, after
    decompression.
    """

    connect: float
    total: float
    size: int


class Stage(enum.StrEnum):
    """How far an exchange got. Its value is what a failure in it is called."""

    RESOLVING = "dns_failed"
    CONNECTING = "connect_failed"
    SECURING = "tls_failed"
    OPEN = "connection_closed"


class Line:
    """The deadline of the running exchange, and the cut.

    Every wait ends with ``Cut`` once ``cut()`` was called, with ``TimedOut`` at the end
    of the total time, and with ``Unreachable`` when the time to connect ends first.
    """

    def __init__(self, clock: Clock) -> None:
        self.stage = Stage.OPEN
        self._clock = clock
        self._ends = self._connects_by = 0.0
        self._allowance = 0
        self._lock = threading.Lock()
        self._cut: futures.Future[None] = futures.Future()
        self._cut_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def begin(self, limits: Limits) -> None:
        """Start an exchange's time."""
        now = self._clock.monotonic()
        self._ends = now + limits.total
        self._connects_by = now + limits.connect
        self._allowance = 2 * limits.size + _OVERHEAD
        self.stage = Stage.OPEN

    def cut(self) -> None:
        """End this wait and all later ones. From any thread, any number of times."""
        with self._lock:
            if not self._cut.done():
                self._cut.set_result(None)
                os.eventfd_write(self._cut_fd, 1)

    def close(self) -> None:
        """Give back what the line holds; waiting is over for good. Any number of times."""
        with self._lock:
            if not self._cut.done():
                self._cut.set_result(None)
            if self._cut_fd >= 0:
                os.close(self._cut_fd)
                self._cut_fd = -1

    def wait(
        self, descriptors: Iterable[int], events: int, at_most: float | None = None
    ) -> list[int]:
        """Return the descriptors that are ready; none only after ``at_most`` seconds."""
        poll = select.poll()
        poll.register(self._cut_fd, select.POLLIN)
        for descriptor in descriptors:
            poll.register(descriptor, events)
        while True:
            seconds = self._seconds_left()
            if at_most is not None:
                seconds = min(seconds, at_most)
            ready = [descriptor for descriptor, _ in poll.poll(seconds * 1000)]
            if self._cut_fd in ready:
                raise Cut("cut")
            if ready or at_most is not None:
                return ready

    def wait_for(self, work: futures.Future[T]) -> None:
        """Return when another thread has finished ``work``, with whatever result."""
        while not work.done():
            either: tuple[futures.Future[Any], ...] = (work, self._cut)
            futures.wait(either, self._seconds_left(), futures.FIRST_COMPLETED)
            if self._cut.done():
                raise Cut("cut")

    def received(self, count: int) -> None:
        """Count bytes off the wire: what never becomes a body must be bounded too."""
        self._allowance -= count
        if self._allowance < 0:
            raise BrokenResponse("too_large")

    def _seconds_left(self) -> float:
        now = self._clock.monotonic()
        if now >= self._ends:
            raise TimedOut("timeout")
        if self.stage is Stage.OPEN:
            return self._ends - now
        if now >= self._connects_by:
            raise Unreachable(self.stage.value)
        return min(self._ends, self._connects_by) - now
