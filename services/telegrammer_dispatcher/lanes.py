"""Which job is next: kept in memory, so that a claim is a look and a write by primary key.

The database stays the truth: what is taken here is looked at there, and a job that is gone is
passed over. The lanes are made anew from it whenever they may be wrong. A lane is the live jobs
of one subscription. It stands in exactly one place: ready, delayed until a time, or busy with
a job.
"""

import heapq
from collections.abc import Container, Iterable
from enum import Enum

from telegrammer.store.queue import Queued


class _Place(Enum):
    READY = 1
    DELAYED = 2
    BUSY = 3


class _Lane:
    __slots__ = ("due_at", "id", "jobs", "place")

    def __init__(self, lane_id: int) -> None:
        self.id = lane_id
        self.place = _Place.BUSY
        self.due_at = 0
        self.jobs: list[int] = []  # that wait: a heap, the lowest id is the oldest


class Lanes:
    """The lanes and where each stands."""

    def __init__(self, swept: int = 0) -> None:
        """Go on with the sweep that has come up to the lane ``swept``.

        Beginning it anew each time would starve the later ones.
        """
        self.swept = swept
        self._lanes: dict[int, _Lane] = {}
        self._ready: list[int] = []  # of this sweep: a heap, with stale members
        self._next_sweep: list[int] = []
        self._delayed: list[tuple[int, int]] = []  # due time, lane: a heap

    def add(self, jobs: Iterable[Queued], in_flight: Container[int] = ()) -> None:
        """Take in live jobs that are not known yet; one in flight makes its lane busy.

        Other new lanes are ready: when taken, a job tells whether it is due.
        """
        for job_id, lane_id in jobs:
            lane = self._lanes.get(lane_id)
            if lane is None:
                lane = self._lanes[lane_id] = _Lane(lane_id)
                self._make_ready(lane)
            if job_id in in_flight:
                lane.place = _Place.BUSY
            else:
                heapq.heappush(lane.jobs, job_id)

    def take(self, now: float) -> tuple[int, int] | None:
        """Return a lane that is due, busy from now on, and its oldest job.

        In sweeps over all lanes, so that each comes once a sweep: one that has just ended
        waits for the next, in front it would starve the others. And in the order of their
        ids, since the jobs of neighbours lie on the same pages of the database: a claim of
        16 lanes at random writes two to four times as many.
        """
        if not self.has_due(now):
            return None
        self.swept = heapq.heappop(self._ready)
        lane = self._lanes[self.swept]
        lane.place = _Place.BUSY
        return lane.id, heapq.heappop(lane.jobs)

    def done(self, lane_id: int) -> None:
        """Let a busy lane go on with its next job, if it has one."""
        lane = self._lanes.get(lane_id)
        if lane is None:  # its subscription was gone when the lanes were made
            return
        if lane.jobs:
            self._make_ready(lane)
        else:
            del self._lanes[lane_id]

    def delay(self, lane_id: int, job_id: int, due_at: int) -> None:
        """Let a busy lane wait with its job until the wall clock shows ``due_at``.

        Unless an older one was revived meanwhile: that comes first.
        """
        lane = self._lanes[lane_id]
        heapq.heappush(lane.jobs, job_id)
        if lane.jobs[0] < job_id:
            self._make_ready(lane)
        else:
            lane.due_at, lane.place = due_at, _Place.DELAYED
            heapq.heappush(self._delayed, (due_at, lane_id))

    def has_due(self, now: float) -> bool:
        """Tell whether ``take`` would return a job."""
        if self._delayed:
            self._wake(now)
        while True:
            while self._ready:
                lane = self._lanes.get(self._ready[0])
                if lane and lane.place is _Place.READY:
                    return True
                heapq.heappop(self._ready)
            if not self._next_sweep:
                return False
            self._ready, self._next_sweep, self.swept = self._next_sweep, [], 0

    def next_due(self) -> int | None:
        """Return when the next delayed lane is due, None when none is delayed."""
        return self._delayed[0][0] if self._delayed else None

    def _wake(self, now: float) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            _, lane_id = heapq.heappop(self._delayed)
            self._make_ready(self._lanes[lane_id])

    def _make_ready(self, lane: _Lane) -> None:
        lane.place = _Place.READY
        sweep = self._ready if lane.id > self.swept else self._next_sweep
        heapq.heappush(sweep, lane.id)
