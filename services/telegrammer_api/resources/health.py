"""``GET /health``: what the processes say about themselves, and the queue."""

import os
from dataclasses import asdict

import falcon
import msgspec

from telegrammer import health
from telegrammer.clock import Clock
from telegrammer.model import State
from telegrammer.store.components import Component, Components
from telegrammer.store.connection import Database
from telegrammer.store.queue import Queue
from telegrammer_api.gate import Request
from telegrammer_api.pool import Pool


class HealthReport:
    """``/health``."""

    def __init__(self, pool: Pool[Database], max_jobs: int, clock: Clock) -> None:
        self._pool = pool
        self._max_jobs = max_jobs
        self._clock = clock

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        now = self._clock.now()
        with self._pool.borrow() as database:
            rows = Components(database).all()
            counts = Queue(database).counts()
        # Who answers, runs: whatever its own row says or does not say yet.
        rows["api"] = Component("api", os.getpid(), State.RUNNING, None, int(now), int(now))
        found = health.examine(rows, counts, self._max_jobs, now)
        resp.status = falcon.HTTP_200 if found.ok else falcon.HTTP_503
        resp.data = msgspec.json.encode({"ok": found.ok, **asdict(found)})
