"""The standard job: 20,000 messages of about 700 bytes over 100 subscriptions.

In order within a subscription, claim and outcome durable, to a sink that answers at once
and to one that takes 20 ms, with 4, 16 and 64 slots. A run starts with all jobs stored
and the sink's gate closed; when the first requests stand there it opens, and the rate
counts from then to the last answer, or to the answers after ``WINDOW`` seconds for those
that are not done by then.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from bench import contestants, ours
from bench.contestants import SUBSCRIPTIONS, Contestant, Job
from bench.harness import (
    Json,
    Options,
    Section,
    cpu_seconds,
    environment,
    goal,
    interleaved,
    median,
    say,
    wait_until,
)
from bench.native import Sink

JOBS: Final = 20_000
WINDOW: Final = 5.0  # seconds
SLOW: Final = 0.02  # seconds
WORKERS: Final = (4, 16, 64)

OURS: Final = "Telegrammer"
BARE: Final = ("bare: client, no database", "bare: transactions, no HTTP")
RUNNERS: Final[dict[str, Contestant]] = {
    OURS: contestants.telegrammer,
    BARE[0]: contestants.bare_client,
    "BullMQ, Redis": contestants.bullmq,
    "huey, SQLite": contestants.huey,
    "Celery, Redis": contestants.celery,
    "procrastinate, PostgreSQL": contestants.procrastinate,
}
PEERS: Final = tuple(name for name in RUNNERS if name != OURS and name not in BARE)


def run(options: Options) -> Section:
    """Measure every contestant at every number of slots, with both sinks."""
    jobs, window = (4_000, 3.0) if options.quick else (JOBS, WINDOW)
    values: dict[str, dict[str, list[Json]]] = {}
    for delay in (0.0, SLOW):
        for workers in (16,) if options.quick else WORKERS:
            say(f"dispatcher: {workers} workers, {_sink(delay)}")
            values[f"{_sink(delay)}, {workers}"] = interleaved(
                _contestants(delay, workers, jobs, window), options.repeats
            )
    return Section(
        name="dispatcher",
        title="Dispatcher",
        remarks=[*REMARKS, _both_halves(values)],
        columns=["sink, workers", "contestant", "deliveries/s", "ours is", "CPU s per 1,000", ""],
        rows=[row for setting, found in values.items() for row in _rows(setting, found)],
        goals=_goals(values),
        values=values,
    )


def _sink(delay: float) -> str:
    return f"{delay * 1000:.0f} ms" if delay else "fast"


def _contestants(
    delay: float, workers: int, jobs: int, window: float
) -> dict[str, Callable[[], Json]]:
    found: dict[str, Callable[[], Json]] = {
        name: partial(_measure, runner, delay, workers, jobs, window)
        for name, runner in RUNNERS.items()
    }
    if delay == 0:
        found[BARE[1]] = partial(_measure_transactions, workers, jobs)
    return found


def _measure(contestant: Contestant, delay: float, workers: int, jobs: int, window: float) -> Json:
    with Sink.start(delay) as sink:
        sink.close_gate()
        with contestant(Job(jobs, workers, sink.port)) as running:
            sink.wait_held(min(workers, SUBSCRIPTIONS, jobs), 120)
            own, servers = cpu_seconds([running.own]), cpu_seconds(running.servers)
            sink.open_gate()
            end = time.monotonic() + window
            while (stats := sink.stats())["answered"] < jobs and time.monotonic() < end:
                time.sleep(0.02)
            own = cpu_seconds([running.own]) - own
            servers = cpu_seconds(running.servers) - servers
            if running.left is not None and stats["answered"] == jobs:
                wait_until(lambda: running.left is None or running.left() == 0, 10, "no job left")
    done = stats["answered"]
    return {
        "rate": done / (stats["last_answer_at"] - stats["opened_at"]) * 1e9,
        "cpu": own / done * 1000,
        "cpu_servers": servers / done * 1000,
        "done": done,
        "out_of_order": stats["misplaced"] + stats["overlaps"],
        "repeats": stats["repeats"],
        "at_once": stats["most_running"],
    }


def _measure_transactions(workers: int, jobs: int) -> Json:
    with ours.new_database() as database:
        chats = list(range(1, SUBSCRIPTIONS + 1))
        ours.subscribe(database, chats, "http://127.0.0.1:9/s/{}")
        ours.fill(database, chats, jobs)
        command = [sys.executable, "-m", "bench.bare", "transactions", str(database.path)]
        done = subprocess.run(
            [*command, str(workers)], env=environment(), stdout=subprocess.PIPE, check=True
        )
    return {**json.loads(done.stdout), "cpu_servers": 0.0, "out_of_order": 0, "repeats": 0}


def _rows(setting: str, found: dict[str, list[Json]]) -> list[list[str]]:
    our_rate = median(found[OURS], "rate")
    ranked = sorted(found, key=lambda name: -median(found[name], "rate"))
    return [
        [
            setting,
            f"**{name}**" if name == OURS else name,
            f"{median(found[name], 'rate'):,.0f}",
            "" if name == OURS else f"{our_rate / median(found[name], 'rate'):.2f} x",
            _cpu(found[name]),
            _disorder(found[name]),
        ]
        for name in ranked
    ]


def _cpu(values: list[Json]) -> str:
    own, servers = median(values, "cpu"), median(values, "cpu_servers")
    return f"{own:.3f} + {servers:.3f} server" if servers else f"{own:.3f}"


def _disorder(values: list[Json]) -> str:
    out_of_order = max(value["out_of_order"] for value in values)
    return f"out of order: {out_of_order}" if out_of_order else ""


def _both_halves(values: dict[str, dict[str, list[Json]]]) -> str:
    rate = {name: median(runs, "rate") for name, runs in values["fast, 16"].items()}
    both = 1 / sum(1 / rate[name] for name in BARE)
    return (
        "One thread does both halves, one after the other, and writes a line of log for each"
        f" delivery: at 16 workers the halves alone would make {both:,.0f}/s, and ours is"
        f" {rate[OURS] / both:.2f} of that."
    )


def _goals(values: dict[str, dict[str, list[Json]]]) -> list[str]:
    found = values["fast, 16"]
    rate = {name: median(runs, "rate") for name, runs in found.items()}
    goals = [goal("CPU seconds per 1,000 deliveries", median(found[OURS], "cpu"), most=0.08)]
    if peers := {name: rate[name] for name in PEERS if name in rate}:
        best = max(peers, key=lambda name: peers[name])
        goals.append(goal(f"times the best peer ({best})", rate[OURS] / peers[best], least=2.5))
    slower = min(BARE, key=lambda name: rate[name])
    goals.append(goal(f"of the slower limit ({slower})", rate[OURS] / rate[slower], least=0.7))
    return goals


REMARKS: Final = [
    "The sink checks every contestant's order: ascending within a subscription, one at a time.",
    f"Who has not finished after {WINDOW:g} s is stopped there; its rate was steady by then.",
    "With 20 ms at the receiver the most that N slots can do is N ÷ 0.02 s.",
    "*bare: client* is our sender without a database; *bare: transactions* our claims and"
    " outcomes without HTTP and log, always as many in a transaction as there are slots.",
    "*huey*: it has no order per key, so each worker is a consumer of its own queue and a"
    " subscription stays in one queue; four processes. It forgets a message when it takes it:"
    " a crash loses what was in flight. A retry goes behind newer messages. libcurl.",
    "*Celery*: one solo process per slot, each with its own queue, prefetch 1, late"
    " acknowledgement, no results. A retry, and what a crash left, goes behind newer messages;"
    " the latter after an hour. libcurl. Redis with an append-only file, fsync every second.",
    "*procrastinate*: `lock` per subscription, delivered jobs deleted, aiohttp. It alone of the"
    " peers keeps the order over retries. PostgreSQL with `synchronous_commit=off`.",
    "*BullMQ*: a queue per subscription, concurrency 1 each, N POSTs at once, undici. A retry"
    " goes behind newer messages. Redis as for Celery.",
]
