"""Which job is next: kept in memory, so that a claim is one write by primary key.

The database stays the truth: what is taken here is looked at there, and a job that is gone
is passed over. A lane is the live jobs of one subscription. It stands in exactly one place:
ready, delayed until a time, or busy with the job that was taken from it.
"""

import heapq
from collections.abc import Iterable
from enum import Enum

from telegrammer.store.queue import Queued


class _Place(Enum):
    READY = 1
    DELAYED = 2
    BUSY = 3


class _Lane:
    __slots__ = ("due_at", "id", "jobs", "place", "taken")

    def __init__(self, lane_id: int) -> None:
        self.id = lane_id
        self.place = _Place.BUSY
        self.due_at = 0
        self.taken = 0  # the job that it is busy with: not among the others
        self.jobs: list[int] = []  # a heap: the lowest id is the oldest


class Lanes:
    """The lanes and where each stands."""

    def __init__(self) -> None:
        self._lanes: dict[int, _Lane] = {}
        self._ready: list[int] = []  # of this sweep: a heap, with stale members
        self._next_sweep: list[int] = []
        self._swept = 0  # up to this lane
        self._delayed: list[tuple[int, int]] = []  # due time, lane: a heap, with stale members

    def add(self, jobs: Iterable[Queued]) -> None:
        """Take in jobs that are not known yet, in order of id."""
        for job in jobs:
            lane = self._lanes.get(job.subscription_id)
            if lane is None:
                lane = self._lanes[job.subscription_id] = _Lane(job.subscription_id)
                self._make_ready(lane)
            elif job.id == lane.taken:
                continue
            heapq.heappush(lane.jobs, job.id)

    def reload(self, jobs: Iterable[Queued]) -> None:
        """Begin anew with these, all live jobs; busy lanes stay so until their outcome.

        All others are ready: when taken, a job tells whether it is due.
        """
        busy = [lane for lane in self._lanes.values() if lane.place is _Place.BUSY]
        for lane in busy:
            lane.jobs.clear()
        self._lanes = {lane.id: lane for lane in busy}
        self._ready, self._next_sweep, self._delayed = [], [], []
        self._swept = 0
        self.add(jobs)

    def take(self, now: float) -> Queued | None:
        """Return the oldest job of a lane that is due, busy with it from now on.

        In sweeps over all lanes, so that each comes once a sweep: one that has just ended
        waits for the next, in front it would starve the others. And in the order of their
        ids, since the jobs of neighbours lie on the same pages of the database: a claim of
        16 lanes at random writes half as many pages again.
        """
        if not self.has_due(now):
            return None
        self._swept = heapq.heappop(self._ready)
        lane = self._lanes[self._swept]
        lane.place = _Place.BUSY
        lane.taken = heapq.heappop(lane.jobs)
        return Queued(lane.taken, lane.id)

    def done(self, lane_id: int) -> None:
        """Let a busy lane go on with its next job, if it has one."""
        lane = self._lanes[lane_id]
        lane.taken = 0
        if lane.jobs:
            self._make_ready(lane)
        else:
            del self._lanes[lane_id]

    def delay(self, lane_id: int, due_at: int) -> None:
        """Let a busy lane wait with its job until the wall clock shows ``due_at``.

        Unless an older one was revived meanwhile: that comes first.
        """
        lane = self._lanes[lane_id]
        job_id, lane.taken = lane.taken, 0
        heapq.heappush(lane.jobs, job_id)
        if lane.jobs[0] < job_id:
            self._make_ready(lane)
        else:
            lane.due_at, lane.place = due_at, _Place.DELAYED
            heapq.heappush(self._delayed, (due_at, lane_id))

    def put_back(self, job: Queued) -> None:
        """Undo a ``take``, whatever has come of the lane since."""
        lane = self._lanes.setdefault(job.subscription_id, _Lane(job.subscription_id))
        lane.taken = 0
        heapq.heappush(lane.jobs, job.id)
        if lane.place is not _Place.READY:
            self._make_ready(lane)

    def hold(self, job: Queued) -> None:
        """Undo a ``done``, whatever has come of the lane since: it is busy with the job."""
        lane = self._lanes.setdefault(job.subscription_id, _Lane(job.subscription_id))
        lane.place, lane.taken = _Place.BUSY, job.id

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
            self._ready, self._next_sweep, self._swept = self._next_sweep, [], 0

    def next_due(self) -> int | None:
        """Return when the next delayed lane is due, None when none is delayed."""
        while self._delayed:
            due_at, lane_id = self._delayed[0]
            lane = self._lanes.get(lane_id)
            if lane and lane.place is _Place.DELAYED and lane.due_at == due_at:
                return due_at
            heapq.heappop(self._delayed)
        return None

    def _wake(self, now: float) -> None:
        while (due_at := self.next_due()) is not None and due_at <= now:
            _, lane_id = heapq.heappop(self._delayed)
            self._make_ready(self._lanes[lane_id])

    def _make_ready(self, lane: _Lane) -> None:
        lane.place = _Place.READY
        sweep = self._ready if lane.id > self._swept else self._next_sweep
        heapq.heappush(sweep, lane.id)
