"""Claims at depth: does a backlog, or a past, make the dispatcher's transactions dearer?

A transaction settles what the one before has claimed as delivered, and claims for 16 slots,
through the dispatcher's own code, without HTTP. The backlog is kept at its depth: what a slice
of rounds delivered is ingested again before the next, and folded from the WAL into the file,
outside the clock.
"""

import contextlib
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench import ours
from bench.harness import Json, Options, Section, goal, interleaved, median, say
from telegrammer.callbacks.outcome import Answer
from telegrammer.store.connection import Database
from telegrammer.store.queue import Queue
from telegrammer_dispatcher.delivery import Budget
from telegrammer_dispatcher.lanes import Lanes
from telegrammer_dispatcher.round import Ended, Round

SLOTS: Final = 16
DEPTHS: Final = (1_000, 10_000, 100_000)
SUBSCRIPTIONS: Final = (100, 1_000)
SLICE: Final = 400  # deliveries between two refills
FAR: Final = 10**6  # seconds until a blocked head is due


@dataclass(frozen=True)
class Backlog:
    """A database at a depth; ``chats`` are those whose subscriptions are not blocked."""

    database: Database
    chats: list[int]
    past: int = 0

    def sizes(self) -> tuple[float, float]:
        """Return the MiB of the file and of its WAL."""
        wal = Path(f"{self.database.path}-wal")
        return self.database.path.stat().st_size / 2**20, wal.stat().st_size / 2**20


def run(options: Options) -> Section:
    """Measure each depth with each number of subscriptions, then the same with a past."""
    deliveries = 1_200 if options.quick else 4_000
    past = 50_000 if options.quick else 1_000_000
    with ExitStack() as held:
        backlogs = {
            _name(depth, subscriptions, 0): held.enter_context(_backlog(depth, subscriptions))
            for subscriptions in SUBSCRIPTIONS
            for depth in DEPTHS
        }
        for depth in (DEPTHS[0], DEPTHS[-1]):
            say(f"growth: putting {past:,} jobs through a file")
            backlog = held.enter_context(_backlog(depth, SUBSCRIPTIONS[0], past))
            backlogs[_name(depth, SUBSCRIPTIONS[0], past)] = backlog
        contestants: dict[str, Callable[[], Json]] = {
            name: partial(_measure, backlog, deliveries) for name, backlog in backlogs.items()
        }
        values = interleaved(contestants, options.repeats * 3)
    return _section(values)


def _name(depth: int, subscriptions: int, past: int) -> str:
    after = f", after {past:,} jobs" if past else ""
    return f"{depth:,} jobs, {subscriptions:,} subscriptions{after}"


def _backlog(depth: int, subscriptions: int, past: int = 0) -> "_Open":
    return _Open(depth, subscriptions, past)


class _Open(ExitStack):
    """Fills a database when entered: half of the subscriptions blocked by a retry."""

    def __init__(self, depth: int, subscriptions: int, past: int) -> None:
        super().__init__()
        self._depth = depth
        self._subscriptions = subscriptions
        self._past = past

    def __enter__(self) -> Backlog:  # type: ignore[override]
        super().__enter__()
        database = self.enter_context(ours.new_database())
        chats = list(range(1, self._subscriptions + 1))
        ours.subscribe(database, chats, "http://127.0.0.1:9/s/{}")
        backlog = Backlog(database, chats[1::2], self._past)
        for done in range(0, self._past, 20_000):
            amount = min(20_000, self._past - done)
            ours.fill(database, backlog.chats, amount)
            _drain(backlog, amount)
        ours.fill(database, chats, max(self._depth, self._subscriptions))
        with database.write() as tx:
            tx.execute(
                "UPDATE deliveries SET attempt_count = 1, next_attempt_at = next_attempt_at + ?"
                " WHERE subscription_id % 2 = 1 AND id IN"
                " (SELECT min(id) FROM deliveries GROUP BY subscription_id)",
                (FAR,),
            )
        return backlog


def _measure(backlog: Backlog, deliveries: int) -> Json:
    seconds = 0.0
    for _ in range(0, deliveries, SLICE):
        seconds += _drain(backlog, SLICE)
        ours.fill(backlog.database, backlog.chats, SLICE)
        with contextlib.closing(sqlite3.connect(backlog.database.path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    file, wal = backlog.sizes()
    return {"rate": deliveries / seconds, "file_mib": file, "wal_mib": wal}


def _drain(backlog: Backlog, amount: int) -> float:
    """Claim and settle ``amount`` jobs; return the seconds."""
    queue, lanes, budget = Queue(backlog.database), Lanes(), Budget(8, 86400)
    lanes.refresh(queue.lanes(), time.time())
    left, ended = amount, Ended()
    began = time.perf_counter()
    while left or ended:
        this = Round(lanes, budget, time.time())
        with queue.turn() as turn:
            this.settle(turn, ended, float)
            this.claim(turn, ours.BOT_ID, min(SLOTS, left), 0)
        this.committed()
        if left and not this.claimed:
            raise RuntimeError("the backlog ran dry")
        left -= len(this.claimed)
        ended = [(flight, Answer(200)) for flight in this.claimed]
    return time.perf_counter() - began


def _section(values: dict[str, list[Json]]) -> Section:
    rate = {name: median(runs, "rate") for name, runs in values.items()}
    largest_wal = max(run["wal_mib"] for runs in values.values() for run in runs)
    return Section(
        name="growth",
        title="Growth",
        remarks=[
            "16 outcomes and 16 claims in a transaction; the dispatcher's own code without HTTP."
            " Half of the subscriptions are blocked by a retry that is not due.",
            "Finding a job costs the same at any depth. What grows is how many pages of the"
            " indexes the jobs of 16 subscriptions lie on, each written once a transaction."
            " Folding the WAL into the file is not in these rates.",
        ],
        columns=["backlog", "claimed and settled/s", "of the best", "file MiB", "WAL MiB"],
        rows=[
            [
                name,
                f"{rate[name]:,.0f}",
                f"{rate[name] / max(rate.values()):.2f}",
                f"{median(runs, 'file_mib'):.1f}",
                f"{median(runs, 'wal_mib'):.1f}",
            ]
            for name, runs in values.items()
        ],
        goals=[
            goal(
                "of the best claim rate is the worst",
                min(rate.values()) / max(rate.values()),
                least=0.9,
            ),
            goal("MiB was the largest WAL", largest_wal, most=32),
        ],
        values=dict(values),
    )
