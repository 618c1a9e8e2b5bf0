"""Which job is next: kept in memory, so that a claim is a look and a write by primary key.

The database stays the truth: what is taken here is looked at there, and a job that is gone is
passed over. The lanes are made anew from it whenever they may be wrong. A lane is the live jobs
of one subscription. It stands in exactly one place: ready, delayed until a time, or busy with
a job.
"""

import heapq
from collections.abc import Iterable, Mapping

from telegrammer.store.queue import Queued

_NONE_BUSY: Mapping[int, int] = {}


class Lanes:
    """The lanes and where each stands: one that is neither ready nor delayed is busy."""

    def __init__(self, swept: int = 0) -> None:
        """Go on with the sweep that has come up to the lane ``swept``.

        Beginning it anew each time would starve the later ones.
        """
        self.swept = swept
        self._jobs: dict[int, list[int]] = {}  # that wait, by lane: a heap, the lowest is oldest
        self._ready: list[int] = []  # of this sweep: a heap
        self._next_sweep: list[int] = []
        self._delayed: list[tuple[int, int]] = []  # due time, lane: a heap

    def add(self, jobs: Iterable[Queued], busy: Mapping[int, int] = _NONE_BUSY) -> None:
        """Take in live jobs that are not known yet; ``busy`` has the one in flight of each lane.

        Other new lanes are ready: when taken, a job tells whether it is due.
        """
        for job_id, lane_id in jobs:
            waiting = self._jobs.get(lane_id)
            if waiting is None:
                waiting = self._jobs[lane_id] = []
                if lane_id not in busy:
                    self._make_ready(lane_id)
            if busy.get(lane_id) != job_id:
                heapq.heappush(waiting, job_id)

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
        return self.swept, heapq.heappop(self._jobs[self.swept])

    def done(self, lane_id: int) -> None:
        """Let a busy lane go on with its next job, if it has one."""
        waiting = self._jobs.get(lane_id)
        if waiting:
            self._make_ready(lane_id)
        elif waiting is not None:  # else its subscription was gone when the lanes were made
            del self._jobs[lane_id]

    def delay(self, lane_id: int, job_id: int, due_at: int) -> None:
        """Let a busy lane wait with its job until the wall clock shows ``due_at``.

        Unless an older one was revived meanwhile: that comes first.
        """
        waiting = self._jobs[lane_id]
        heapq.heappush(waiting, job_id)
        if waiting[0] < job_id:
            self._make_ready(lane_id)
        else:
            heapq.heappush(self._delayed, (due_at, lane_id))

    def has_due(self, now: float) -> bool:
        """Tell whether ``take`` would return a job."""
        while self._delayed and self._delayed[0][0] <= now:
            self._make_ready(heapq.heappop(self._delayed)[1])
        if not self._ready:
            self._ready, self._next_sweep, self.swept = self._next_sweep, [], 0
        return bool(self._ready)

    def next_due(self) -> int | None:
        """Return when the next delayed lane is due, None when none is delayed."""
        return self._delayed[0][0] if self._delayed else None

    def _make_ready(self, lane_id: int) -> None:
        sweep = self._ready if lane_id > self.swept else self._next_sweep
        heapq.heappush(sweep, lane_id)
