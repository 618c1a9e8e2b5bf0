"""The dispatcher's loop: wait, write outcomes and claims together, start the claimed.

A worker is a slot of the sender, not a thread. A claim is committed before its POST
begins, an outcome before its slot is used again.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from telegrammer.callbacks.outcome import Answer
from telegrammer.callbacks.sender import Post, Sender
from telegrammer.callbacks.url import CallbackUrl
from telegrammer.clock import Clock
from telegrammer.errors import StorageUnavailable
from telegrammer.heartbeat import PERIOD, Heartbeat
from telegrammer.logs import Fields, Log
from telegrammer.model import State
from telegrammer.notification import Watch
from telegrammer.process import Stop
from telegrammer.store.connection import Database
from telegrammer.store.queue import PURGE_CHUNK, Marks, Queue
from telegrammer_dispatcher.delivery import Budget, Flight, Outcome, Result
from telegrammer_dispatcher.lanes import Lanes
from telegrammer_dispatcher.round import Ended, Round

LOOK: Final = 1.0  # seconds between two looks of its own: a lost touch costs no job
REFRESH_SHARE: Final = 0.1  # of the time, at most, goes into reading the queue
PURGE_PERIOD: Final = 60.0  # seconds
STORAGE_DELAY: Final = 1.0  # seconds before a transaction that failed is tried again
JUMP: Final = 2.0  # seconds by which the wall clock must move against the other to count
STOP_BUDGET: Final = 47.0  # seconds to let running callbacks end and write their outcomes
STOP_BUSY_TIMEOUT: Final = 0.5  # seconds that a turn waits for a lock meanwhile


_parsed = functools.lru_cache(maxsize=1024)(CallbackUrl.parse)


@dataclass(frozen=True, slots=True)
class Rules:
    """``dead_retention`` is in seconds."""

    budget: Budget
    dead_retention: float


class Dispatcher:
    """Delivers what is due."""

    def __init__(
        self,
        database: Database,
        sender: Sender[Flight],
        watch: Watch,
        heartbeat: Heartbeat,
        rules: Rules,
        clock: Clock,
        spread: Callable[[], float],
    ) -> None:
        self._database = database
        self._queue = Queue(database)
        self._sender = sender
        self._watch = watch
        self._heartbeat = heartbeat
        self._rules = rules
        self._clock = clock
        self._spread = spread
        self._log = Log("dispatcher")
        self._lanes = Lanes()
        self._ended: Ended = []  # answers whose outcome is not written yet
        self._bot_id: int | None = None
        self._is_stale = True  # the database may hold jobs that the lanes do not
        self._marks: Marks | None = None  # up to which the lanes know it; None: they may be wrong
        self._purged = 0  # dead letters, since the last line that counts them
        self._version = 0
        self._is_stopping = False
        self._offset = clock.now() - clock.monotonic()
        now = clock.monotonic()
        self._next_look = self._next_refresh = self._next_purge = self._resume_at = now
        self._next_beat = now + PERIOD

    def run(self, stop: Stop) -> None:
        """Deliver until the stop; then let the running callbacks end, and settle them."""
        self._recover()
        if (notified := self._watch.fileno()) is not None:
            self._sender.watch(notified)
        else:
            self._log.warning("not_notified", advice="raise fs.inotify.max_user_instances")
        self._sender.watch(stop.fileno())
        began = self._clock.monotonic()
        while not stop.is_set():
            began = self._clock.monotonic()
            self.turn(self._timeout())
        self._sender.unwatch(stop.fileno())
        self._finish(began + STOP_BUDGET)

    def _recover(self) -> None:
        """Take over what the last dispatcher left, on the clock of now."""
        if count := self._queue.recover():
            self._log.info("recovered", jobs=count)
        now, seen_at = self._clock.now(), self._queue.clock_seen_at()
        if seen_at is not None and now <= seen_at - JUMP:
            self._clock_moved(now - seen_at)
        else:
            self._queue.see_clock(int(now))

    def turn(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds for something to do, and do it."""
        answers, readable = self._sender.wait(timeout)
        self._ended += answers
        if self._watch.fileno() in readable:
            self._watch.drain()
            self._is_stale = True
        if self._clock.monotonic() < self._resume_at:
            return
        try:
            self._look_around()
            this = self._settle_and_claim()
        except StorageUnavailable as error:
            self._resume_at = self._clock.monotonic() + STORAGE_DELAY
            # The lanes may be ahead of the database: they are made anew before all else.
            self._make_lanes_anew()
            self._next_refresh = self._resume_at
            self._log.warning("storage_unavailable", reason=error.reason, retry_in=STORAGE_DELAY)
            return
        if this is not None:
            for flight in this.claimed:
                self._start(flight)
            # Receivers work while the lines are written: the next transaction has more to do.
            self._sender.push()
            with self._log.together():
                self._log_round(this)

    def _finish(self, end: float) -> None:
        """Settle what runs until ``end``, which counts from the turn in which the stop came.

        A lock may have held up that turn for a whole busy timeout.
        """
        self._is_stopping = True
        self._log.info("stopping", running=self._sender.running)
        self._database.wait_for_locks(STOP_BUSY_TIMEOUT)
        while (self._sender.running or self._ended) and self._clock.monotonic() < end:
            self.turn(min(self._timeout(), LOOK))
        if self._ended:
            self._log.error(
                "outcomes_not_written", count=len(self._ended), advice="sent again later"
            )

    def _timeout(self) -> float:
        """Return the seconds until the loop must turn even if nothing happens."""
        now = self._clock.monotonic()
        if now < self._resume_at:
            return self._resume_at - now
        turns = [self._next_look - now, self._next_purge - now]
        if self._is_stale:
            turns.append(self._next_refresh - now)
        if not self._is_stopping and self._sender.free:
            if self._lanes.has_due(self._clock.now()):
                return 0.0
            if (due_at := self._lanes.next_due()) is not None:
                turns.append(due_at - self._clock.now())
        return max(0.0, min(turns))

    def _look_around(self) -> None:
        """Do what is due by the clock: look, beat, purge; read the queue when stale."""
        now = self._clock.monotonic()
        self._notice_clock_jump(now)
        if now >= self._next_look:
            self._next_look = now + LOOK
            self._is_stale = self._is_stale or self._database.changed_by_others() != self._version
        if now >= self._next_beat:
            self._next_beat = now + PERIOD
            self._watch.renew()
            # First what ends the turn when it fails: a turn never waits twice for a lock.
            self._queue.see_clock(int(self._clock.now()))
            self._heartbeat.beat()
        if now >= self._next_purge:
            self._next_purge = now + PURGE_PERIOD
            self._purge(now)
        if self._is_stale and now >= self._next_refresh:
            began = self._clock.monotonic()
            self._refresh()
            took = self._clock.monotonic() - began
            self._next_refresh = began + took / REFRESH_SHARE

    def _refresh(self) -> None:
        self._version = self._database.changed_by_others()
        with self._queue.look() as look:
            marks = look.marks()
            if self._marks is None or marks.revivals != self._marks.revivals:
                self._lanes = Lanes(self._lanes.swept)
                self._lanes.add(look.live(), self._busy())
            else:
                self._lanes.add(look.new(self._marks.newest))
        self._marks = marks
        if self._bot_id is None:  # once bound, a database never changes its bot
            self._bot_id = self._queue.bot_id()
        self._is_stale = False
        self._heartbeat.report(State.RUNNING)

    def _make_lanes_anew(self) -> None:
        """At the next refresh."""
        self._is_stale, self._marks = True, None

    def _busy(self) -> dict[int, int]:
        """Return the lanes that are busy, and the job of each: its outcome is not written yet."""
        flights = self._sender.keys + [flight for flight, _answer in self._ended]
        return {flight.job.subscription_id: flight.job.id for flight in flights}

    def _notice_clock_jump(self, now: float) -> None:
        moved = self._clock.now() - now - self._offset
        if abs(moved) >= JUMP:
            self._clock_moved(moved)
        self._offset += moved  # small moves too: a clock that is slewed never jumps

    def _clock_moved(self, seconds: float) -> None:
        # Times were written on the old clock: neither waiting nor age may grow by the jump. By
        # a part of a second they may: no retry comes before its Retry-After.
        self._queue.see_clock(int(self._clock.now()), moved=int(seconds))
        self._make_lanes_anew()
        self._log.warning("clock_jumped", seconds=round(seconds, 1))

    def _purge(self, now: float) -> None:
        """Purge a part in a turn: callbacks run meanwhile, and their time does too."""
        count = self._queue.purge(int(self._clock.now() - self._rules.dead_retention))
        self._purged += count
        if count == PURGE_CHUNK:
            self._next_purge = now
            return
        if self._purged:
            self._log.warning("purged", dead_jobs=self._purged)
            self._purged = 0
        # Lanes that wait forget what has gone with its subscription.
        self._make_lanes_anew()

    def _settle_and_claim(self) -> Round | None:
        now = self._clock.now()
        free = 0 if self._is_stopping or self._bot_id is None else self._sender.free
        if not self._ended and not (free and self._lanes.has_due(now)):
            return None
        this = Round(self._lanes, self._rules.budget, now, self._clock.monotonic())
        with self._queue.turn() as turn:
            this.settle(turn, self._ended, self._spread)
            this.claim(turn, self._bot_id or 0, free)
        self._ended = []
        return this

    def _start(self, flight: Flight) -> None:
        try:
            url = _parsed(flight.job.callback_url)
        except ValueError:  # the row was written by something else than this gateway
            self._ended.append((flight, Answer(error="bad_url")))
            return
        body = flight.job.payload.encode()
        self._sender.start(flight, Post(url.origin, url.target, body, flight.delivery_id))

    def _log_round(self, this: Round) -> None:
        now = self._clock.monotonic()
        for flight, outcome in this.settled:
            self._log_outcome(flight, outcome, round((now - flight.began) * 1000))
        for job, reason in this.buried:
            self._log.error(
                "dead", job=job.id, subscription=job.subscription_id, update=job.update_id,
                attempt=job.attempt_count, reason=reason,
            )  # fmt: skip

    def _log_outcome(self, flight: Flight, outcome: Outcome, ms: int) -> None:
        write = self._log.info
        more: Fields = {}
        if outcome.result is Result.DEAD:
            write = self._log.error
        elif outcome.retry_at is not None:
            write = self._log.warning
            more = {"retry_in": round(outcome.retry_at - self._clock.now(), 1)}
        job = flight.job
        write(
            outcome.result,
            job=job.id,
            subscription=job.subscription_id,
            update=job.update_id,
            attempt=flight.attempt,
            attempts=self._rules.budget.attempts,
            reason=outcome.reason,
            ms=ms,
            **more,
        )
