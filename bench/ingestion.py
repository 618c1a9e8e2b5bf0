"""Ingestion: updates and jobs per second by fan-out, and what the capacity check costs.

A batch is what getUpdates gives at most, 100 updates, kept in one transaction. Emptying
the queue between two batches is outside the clock.
"""

import contextlib
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from bench import ours
from bench.harness import Json, Options, Section, goal, interleaved, median
from telegrammer.model import Message, Update
from telegrammer.store.connection import Database
from telegrammer.store.inbox import Inbox

FAN_OUTS: Final = (0, 1, 10, 100, 1_000)
BATCH: Final = 100
DEPTHS: Final = (0, 99_000)
CHAT: Final = 77
MAX_JOBS: Final = 200_000
OTHER_CHAT: Final = 78


def run(options: Options) -> Section:
    """Measure each fan-out; single updates and the check at an empty and at a full queue."""
    jobs = 10_000 if options.quick else 100_000
    with contextlib.ExitStack() as held:
        contestants: dict[str, Callable[[], Json]] = {}
        for fan_out in FAN_OUTS:
            database = held.enter_context(ours.new_database())
            for _ in range(fan_out):
                ours.subscribe(database, [CHAT], "http://127.0.0.1:9/")
            batches = max(1, min(jobs // (BATCH * max(1, fan_out)), 100))
            contestants[f"fan-out {fan_out:,}"] = partial(_measure, database, batches)
        for depth in DEPTHS:
            database = held.enter_context(ours.new_database())
            ours.subscribe(database, [CHAT, OTHER_CHAT], "http://127.0.0.1:9/{}")
            ours.fill(database, [OTHER_CHAT], depth)
            amount = 300 if options.quick else 2_000
            contestants[_single(depth)] = partial(_measure_singles, database, amount)
            contestants[_check(depth)] = partial(_measure_check, database, amount)
        values = interleaved(contestants, options.repeats)
    return _section(values)


def _single(depth: int) -> str:
    return f"one update, one job, {depth:,} in the queue"


def _check(depth: int) -> str:
    return f"the capacity check, {depth:,} in the queue"


def _updates(first: int, amount: int) -> list[Update]:
    text = ours.payload(CHAT, 1)
    return [Update(first + n, Message(CHAT, text)) for n in range(amount)]


def _measure(database: Database, batches: int) -> Json:
    inbox, jobs, seconds = Inbox(database), 0, 0.0
    for _ in range(batches):
        updates = _updates(inbox.cursor() or 1, BATCH)
        began = time.perf_counter()
        jobs += inbox.ingest(updates, MAX_JOBS, int(time.time())).jobs
        seconds += time.perf_counter() - began
        _empty(database)
    return {
        "updates": batches * BATCH / seconds,
        "jobs": jobs / seconds,
        "ms_per_batch": seconds / batches * 1000,
    }


def _measure_singles(database: Database, amount: int) -> Json:
    """Ingest one update at a time; each job is removed before the next.

    The median: every few hundred transactions one also folds the WAL into the file, in the
    clock or out of it as the numbers of their pages fall.
    """
    inbox, took = Inbox(database), []
    for _ in range(amount):
        updates = _updates(inbox.cursor() or 1, 1)
        began = time.perf_counter()
        inbox.ingest(updates, MAX_JOBS, int(time.time()))
        took.append(time.perf_counter() - began)
        _empty(database)
    us = statistics.median(took) * 1e6
    return {"updates": 1e6 / us, "jobs": 1e6 / us, "us": us}


def _measure_check(database: Database, amount: int) -> Json:
    """Ask how many jobs there are, as ingestion does before it takes more."""
    took = []
    with database.read() as tx:
        for _ in range(amount):
            began = time.perf_counter()
            tx.execute("SELECT jobs FROM queue_size").fetchone()
            took.append(time.perf_counter() - began)
    return {"us": statistics.median(took) * 1e6}


def _empty(database: Database) -> None:
    with database.write() as tx:
        tx.execute(
            "DELETE FROM deliveries WHERE subscription_id IN"
            " (SELECT id FROM subscriptions WHERE chat_id = ?)",
            (CHAT,),
        )


def _section(values: dict[str, list[Json]]) -> Section:
    empty, full = (median(values[_check(depth)], "us") for depth in DEPTHS)
    return Section(
        name="ingestion",
        title="Ingestion",
        remarks=[
            "Batches of 100 updates in one transaction each, about 700 bytes a message; *one"
            " update* is a transaction of its own, the capacity check in it. What grows there with"
            " the queue is the depth of its indexes: two more pages are written.",
        ],
        columns=["case", "updates/s", "jobs/s", "it takes"],
        rows=[
            [
                name,
                f"{median(runs, 'updates'):,.0f}" if "updates" in runs[0] else "",
                f"{median(runs, 'jobs'):,.0f}" if "jobs" in runs[0] else "",
                f"{median(runs, 'us'):.1f} µs"
                if "us" in runs[0]
                else f"{median(runs, 'ms_per_batch'):.1f} ms",
            ]
            for name, runs in values.items()
        ],
        goals=[
            goal("times as long is the check at 99,000 jobs as at none", full / empty, most=1.1)
        ],
        values=dict(values),
    )
