"""Which subscription is due: kept in memory, so that a claim is one write by key.

The database stays the truth; ``refresh`` reads it again. A lane is a subscription with
live jobs. It stands in exactly one place: ready, delayed until a time, or busy.
"""

import heapq
from collections.abc import Iterable
from enum import Enum

from telegrammer.store.queue import Lane


class _Place(Enum):
    READY = 1
    DELAYED = 2
    BUSY = 3


class _Entry:
    __slots__ = ("due_at", "id", "place", "url")

    def __init__(self, lane: Lane) -> None:
        self.id = lane.subscription_id
        self.url = lane.callback_url
        self.due_at = 0
        self.place = _Place.BUSY


class Lanes:
    """The lanes and where each stands."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._ready: list[int] = []  # of this sweep: a heap, with stale members
        self._next_sweep: list[int] = []
        self._swept = 0  # up to this lane
        self._delayed: list[tuple[int, int]] = []  # due time, lane: a heap, with stale members

    def refresh(self, found: Iterable[Lane], now: float) -> None:
        """Take over what the database says; busy lanes stay busy until their outcome."""
        gone = set(self._entries)
        for lane in found:
            gone.discard(lane.subscription_id)
            entry = self._entries.get(lane.subscription_id)
            if entry is None:
                entry = self._entries[lane.subscription_id] = _Entry(lane)
                self._put(entry, lane.due_at, now)
            elif entry.place is _Place.DELAYED and entry.due_at != lane.due_at:
                self._put(entry, lane.due_at, now)
        for lane_id in gone:
            # A ready one turns out to be empty at its take.
            if self._entries[lane_id].place is _Place.DELAYED:
                self.forget(lane_id)

    def take(self, now: float) -> int | None:
        """Return a lane that is due, busy from now on.

        In sweeps over all lanes, so that each comes once a sweep: one that has just ended
        waits for the next, in front it would starve the others. And in the order of their
        ids, since the jobs of neighbours lie on the same pages of the indexes: a claim of
        16 lanes at random writes half as many pages again.
        """
        if not self.has_due(now):
            return None
        self._swept = heapq.heappop(self._ready)
        self._entries[self._swept].place = _Place.BUSY
        return self._swept

    def url(self, lane_id: int) -> str:
        """Return the callback URL of a lane that was taken."""
        return self._entries[lane_id].url

    def ready(self, lane_id: int) -> None:
        """Let a busy lane be taken again."""
        self._put(self._entries[lane_id], 0, 0)

    def delay(self, lane_id: int, due_at: int) -> None:
        """Let a busy lane wait until the wall clock shows ``due_at``."""
        self._put(self._entries[lane_id], due_at, due_at - 1)

    def hold(self, lane_id: int) -> None:
        """Make a lane busy whatever it was: its last outcome is not written yet."""
        self._entries[lane_id].place = _Place.BUSY

    def forget(self, lane_id: int) -> None:
        """Drop a lane that has no live job left."""
        del self._entries[lane_id]

    def has_due(self, now: float) -> bool:
        """Tell whether ``take`` would return a lane."""
        if self._delayed:
            self._wake(now)
        while True:
            while self._ready:
                entry = self._entries.get(self._ready[0])
                if entry and entry.place is _Place.READY:
                    return True
                heapq.heappop(self._ready)
            if not self._next_sweep:
                return False
            self._ready, self._next_sweep, self._swept = self._next_sweep, [], 0

    def next_due(self) -> int | None:
        """Return when the next delayed lane is due, None when none is delayed."""
        while self._delayed:
            due_at, lane_id = self._delayed[0]
            entry = self._entries.get(lane_id)
            if entry and entry.place is _Place.DELAYED and entry.due_at == due_at:
                return due_at
            heapq.heappop(self._delayed)
        return None

    def _wake(self, now: float) -> None:
        while (due_at := self.next_due()) is not None and due_at <= now:
            _, lane_id = heapq.heappop(self._delayed)
            self._put(self._entries[lane_id], 0, now)

    def _put(self, entry: _Entry, due_at: int, now: float) -> None:
        entry.due_at = due_at
        if due_at <= now:
            entry.place = _Place.READY
            sweep = self._ready if entry.id > self._swept else self._next_sweep
            heapq.heappush(sweep, entry.id)
        else:
            entry.place = _Place.DELAYED
            heapq.heappush(self._delayed, (due_at, entry.id))
