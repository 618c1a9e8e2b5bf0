"""Claims at depth: does a backlog, or a past, make the dispatcher's transactions dearer?

The dispatcher's own code, without HTTP: transactions that claim for 1, 4 and 16 workers, and
transactions that also settle as delivered what the one before has claimed. The backlog is kept at
its depth: what a slice of them has used up is ingested again before the next, by another connection
as the poller would, and folded from the WAL into the file, outside the clock.
"""

import contextlib
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack
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

WORKERS: Final = (1, 4, 16)
MOST: Final = WORKERS[-1]
DEPTHS: Final = (1_000, 10_000, 100_000)
SUBSCRIPTIONS: Final = (100, 1_000)
SLICE: Final = 400  # jobs between two refills
FAR: Final = 10**6  # seconds until a blocked retry is due


class Backlog(ExitStack):
    """A database at a depth, half of its subscriptions blocked by a retry that is not due."""

    def __init__(self, depth: int, subscriptions: int, past: int) -> None:
        super().__init__()
        poller = self.enter_context(ours.new_database())
        chats = list(range(1, subscriptions + 1))
        ours.subscribe(poller, chats, "http://127.0.0.1:9/s/{}")
        self._poller = poller
        self._chats = chats[1::2]
        self._queue = Queue(self.enter_context(Database(poller.path)))
        self._lanes = Lanes()
        self._seen = 0
        self._ended = Ended()
        for done in range(0, past, 20_000):
            self._refill(min(20_000, past - done))
            self._transaction(MOST)
            while self._ended:
                self._transaction(MOST)
        ours.fill(poller, chats, max(depth, subscriptions))
        with poller.write() as tx:
            tx.execute(
                "UPDATE deliveries SET attempt_count = 1, next_attempt_at = next_attempt_at + ?"
                " WHERE subscription_id % 2 = 1 AND id IN"
                " (SELECT min(id) FROM deliveries GROUP BY subscription_id)",
                (FAR,),
            )
        self._see()
        used = 0
        for _ in range(2 * subscriptions // MOST):  # the blocked are looked at once
            self._transaction(MOST)
            used += len(self._ended)
        self._refill(used)

    def measure(self, deliveries: int) -> Json:
        """Claim at least so many for each number of workers, and settle them for the most."""
        slices = -(-deliveries // SLICE)
        claiming = dict.fromkeys(WORKERS, 0.0)
        both = 0.0
        for _ in range(slices):
            for workers in WORKERS:
                for _ in range(SLICE // workers):
                    self._transaction(0)
                    claiming[workers] += self._full_transaction(workers)
                self._refill(SLICE)
            both += sum(self._full_transaction(MOST) for _ in range(SLICE // MOST))
            self._refill(SLICE)
        path = self._poller.path
        return {
            **{_claims(workers): slices * SLICE / claiming[workers] for workers in WORKERS},
            "both": slices * SLICE / both,
            "file_mib": path.stat().st_size / 2**20,
            "wal_mib": Path(f"{path}-wal").stat().st_size / 2**20,
        }

    def _full_transaction(self, workers: int) -> float:
        seconds = self._transaction(workers)
        if len(self._ended) != workers:
            raise RuntimeError("the backlog ran dry")
        return seconds

    def _transaction(self, free: int) -> float:
        """Settle what was claimed, and claim up to ``free``; return the seconds."""
        began = time.perf_counter()
        this = Round(self._lanes, Budget(8, 86400), time.time(), 0)
        with self._queue.turn() as turn:
            this.settle(turn, self._ended, float)
            this.claim(turn, ours.BOT_ID, free)
        seconds = time.perf_counter() - began
        self._ended = [(flight, Answer(200)) for flight in this.claimed]
        return seconds

    def _refill(self, jobs: int) -> None:
        ours.fill(self._poller, self._chats, jobs)
        self._see()
        with contextlib.closing(sqlite3.connect(self._poller.path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _see(self) -> None:
        with self._queue.look() as look:
            self._lanes.add(look.new(self._seen))
            self._seen = look.marks().newest


def run(options: Options) -> Section:
    """Measure each depth with each number of subscriptions, then the same with a past."""
    deliveries = 1_200 if options.quick else 4_000
    past = 50_000 if options.quick else 1_000_000
    cases = [(depth, subscriptions, 0) for subscriptions in SUBSCRIPTIONS for depth in DEPTHS]
    cases += [(depth, SUBSCRIPTIONS[0], past) for depth in (DEPTHS[0], DEPTHS[-1])]
    contestants: dict[str, Callable[[], Json]] = {}
    with ExitStack() as held:
        for depth, subscriptions, gone in cases:
            name = f"{depth:,} jobs, {subscriptions:,} subscriptions"
            if gone:
                name += f", after {gone:,} jobs"
            say(f"growth: filling a file, {name}")
            backlog = held.enter_context(Backlog(depth, subscriptions, gone))
            contestants[name] = partial(backlog.measure, deliveries)
        values = interleaved(contestants, options.repeats * 3)
    return _section(values)


def _claims(workers: int) -> str:
    return f"claims_{workers}"


def _section(values: dict[str, list[Json]]) -> Section:
    rates = {
        figure: {name: median(runs, figure) for name, runs in values.items()}
        for figure in (*map(_claims, WORKERS), "both")
    }
    largest_wal = max(run["wal_mib"] for runs in values.values() for run in runs)
    return Section(
        name="growth",
        title="Growth",
        remarks=[
            "As many claims in a transaction as there are workers: the dispatcher's own code,"
            f" without HTTP; at {MOST} also with the outcomes of the {MOST} before. Half of the"
            " subscriptions are blocked by a retry that is not due.",
            "A claim writes as many pages at any depth. What grows is a level more in the trees,"
            " and pages that no cache holds: little beside a transaction, and the more claims"
            " share one, the more of each that is. An outcome also leaves the UNIQUE index, where"
            f" the jobs of {MOST} subscriptions lie on a page or two when there are few, and on"
            f" {MOST} when there are many. Folding the WAL into the file is not in these rates.",
        ],
        columns=[
            "backlog",
            *(
                column
                for workers in WORKERS
                for column in (f"claims/s, workers: {workers}", "of the best")
            ),
            "with outcomes/s",
            "of the best",
            "file MiB",
            "WAL MiB",
        ],
        rows=[
            [
                name,
                *(
                    cell
                    for rate in rates.values()
                    for cell in (f"{rate[name]:,.0f}", f"{rate[name] / max(rate.values()):.2f}")
                ),
                f"{median(runs, 'file_mib'):.1f}",
                f"{median(runs, 'wal_mib'):.1f}",
            ]
            for name, runs in values.items()
        ],
        goals=[
            *(
                goal(
                    f"of the best claim rate is the worst, workers: {workers}",
                    min(rates[_claims(workers)].values()) / max(rates[_claims(workers)].values()),
                    least=0.9,
                )
                for workers in WORKERS
            ),
            goal("MiB was the largest WAL", largest_wal, most=32),
        ],
        values=dict(values),
    )
