"""What was done to the gateway and when, and what was seen that must not be.

Times are Unix seconds of the campaign's own process, which no hazard touches.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from math import inf


class Excuse(Enum):
    """What a hazard takes from the gateway for as long as it lasts."""

    STORAGE = "the database cannot be written"
    READ_ONLY = "the file system is read-only: a start ends with 78"
    API_GONE = "the API does not answer, or breaks off"
    POLLER_GONE = "the poller does not run"
    DISPATCHER_GONE = "the dispatcher does not run"
    SLOW = "a process does not get on"


@dataclass
class _Span:
    excuse: Excuse
    begins: float
    ends: float = inf


@dataclass
class Diary:
    """Spans of excuses, kills, and the violations found. Any thread may write in it."""

    violations: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    dispatcher_ends: list[float] = field(default_factory=list)
    """When a dispatcher was killed or ended by itself: it may have known what it did not write."""
    _spans: list[_Span] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def violation(self, text: str) -> None:
        with self._lock:
            self.violations.append(text)

    def count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self.counts[what] = self.counts.get(what, 0) + number

    def begin(self, *excuses: Excuse) -> None:
        now = time.time()
        with self._lock:
            self._spans += [_Span(excuse, now) for excuse in excuses]

    def end(self, *excuses: Excuse) -> None:
        """End the oldest open span of each."""
        now = time.time()
        with self._lock:
            for excuse in excuses:
                span = next(s for s in self._spans if s.excuse is excuse and s.ends == inf)
                span.ends = now

    @contextmanager
    def excused(self, *excuses: Excuse) -> Iterator[None]:
        self.begin(*excuses)
        try:
            yield
        finally:
            self.end(*excuses)

    def note_stall(self, begins: float, ends: float) -> None:
        """Note that the machine had no time for anybody."""
        self.count("stalls of the machine")
        with self._lock:
            self._spans.append(_Span(Excuse.SLOW, begins, ends))

    def was(self, excuse: Excuse, since: float, until: float) -> bool:
        """Tell whether the excuse held at any moment from ``since`` to ``until``."""
        with self._lock:
            return any(
                span.excuse is excuse and span.begins <= until and since <= span.ends
                for span in self._spans
            )
