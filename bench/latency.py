"""An idle system: from the Bot API's answer to the first byte at the receiver.

All processes run as an operator starts them; the bare relay takes turns with them. One
message at a time, with a pause between two; then nothing for a while, to see what idling
costs. The times are the monotonic clock's, taken right before the answer is written and when
the receiver reads.
"""

import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from bench import ours, relay
from bench.bot_api import BotApi
from bench.harness import (
    Json,
    Options,
    Section,
    child,
    cpu_seconds,
    environment,
    goal,
    interleaved,
    median,
    wait_until,
)
from bench.native import Sink
from bench.peers.services import free_port

CHAT: Final = 77
SHORTEST_PAUSE: Final = 0.05  # seconds
LONGEST_PAUSE: Final = 0.15
SLEEPER: Final = "import time\nwhile True: time.sleep(1)"
OURS: Final = "Telegrammer"
BARE: Final = "bare relay"
FIGURES: Final = (
    ("p50_ms", "Bot API answer to byte at the receiver, p50", "ms"),
    ("p99_ms", "the same, p99", "ms"),
    ("idle_percent", "idle CPU of all processes, of a core", "%"),
    ("sleeper_percent", "meanwhile, a Python process that only sleeps, a second at a time", "%"),
)
REMARKS: Final = [
    "*bare relay*: two Python processes with a SQLite table between them, one that stores what"
    " it polls and one that posts what it finds, woken like ours. No machine lets ours be faster.",
    "Ours are five processes, the three of the API with nothing to do here; `resident` is their"
    " memory after the messages.",
]
NAMES: Final = ("telegrammer_api", "telegrammer_poller", "telegrammer_dispatcher")


@dataclass(frozen=True)
class _System:
    api: BotApi
    sink: Sink
    processes: dict[str, psutil.Process]


Start = Callable[[], AbstractContextManager[_System]]


def run(options: Options) -> Section:
    """Measure messages and idling on fresh systems for each repeat."""
    amount, idle = (40, 5.0) if options.quick else (300, 30.0)
    values = interleaved(
        {
            OURS: lambda: _measure(_gateway, amount, idle),
            BARE: lambda: _measure(_relay, amount, idle),
        },
        options.repeats,
    )
    runs = values[OURS]
    memory = [name for name in runs[0] if name.startswith("mib_")]
    largest = max(median(runs, name) for name in memory)
    return Section(
        name="latency",
        title="Latency and idling",
        remarks=REMARKS,
        columns=["what", OURS, BARE],
        rows=[
            *(
                [what, *(f"{median(found, name):.2f} {unit}" for found in values.values())]
                for name, what, unit in FIGURES
            ),
            *([f"resident: {name[4:]}", f"{median(runs, name):.1f} MiB", ""] for name in memory),
        ],
        goals=[
            goal("ms at p50", median(runs, "p50_ms"), most=3),
            goal("ms at p99", median(runs, "p99_ms"), most=15),
            goal("% of a core when idle", median(runs, "idle_percent"), most=0.5),
            goal("MiB is the largest process", largest, most=50),
        ],
        values=dict(values),
    )


def _measure(
    start: Callable[[], AbstractContextManager[_System]], amount: int, idle: float
) -> Json:
    with start() as system:
        system.api.send(CHAT)  # opens the connections
        wait_until(lambda: system.sink.stats()["received"] == 1, 10, "the first message arrives")
        system.api.sent_at.clear()
        system.sink.forget_arrivals()
        for _ in range(amount):
            time.sleep(random.uniform(SHORTEST_PAUSE, LONGEST_PAUSE))
            system.api.send(CHAT)
        wait_until(lambda: system.sink.stats()["received"] == amount, 10, "all arrived")
        pairs = zip(system.api.sent_at, system.sink.arrivals(), strict=True)
        took = sorted((arrived - sent) / 1e6 for sent, arrived in pairs)
        return {
            "p50_ms": took[len(took) // 2],
            "p99_ms": took[int(len(took) * 0.99)],
            **_idle(list(system.processes.values()), idle),
            **_memory(system),
        }


def _idle(family: list[psutil.Process], seconds: float) -> Json:
    """Return the CPU that the processes use while nothing happens, in percent of a core."""
    with child([sys.executable, "-c", SLEEPER], env=environment()) as started:
        sleeper = psutil.Process(started.pid)
        time.sleep(1)  # it has begun, and the last message is over
        before = cpu_seconds(family), cpu_seconds([sleeper])
        time.sleep(seconds)
        used = cpu_seconds(family), cpu_seconds([sleeper])
    return {
        "idle_percent": (used[0] - before[0]) / seconds * 100,
        "sleeper_percent": (used[1] - before[1]) / seconds * 100,
    }


def _memory(system: _System) -> Json:
    found: Json = {}
    for name, process in system.processes.items():
        found[f"mib_{name}"] = process.memory_info().rss / 2**20
        for number, worker in enumerate(process.children(), start=1):
            found[f"mib_{name} worker {number}"] = worker.memory_info().rss / 2**20
    return found


@contextlib.contextmanager
def _gateway() -> Iterator[_System]:
    with contextlib.ExitStack() as held:
        api = held.enter_context(BotApi.start())
        sink = held.enter_context(Sink.start())
        database = held.enter_context(ours.new_database())
        ours.subscribe(database, [CHAT], f"http://127.0.0.1:{sink.port}/s/{{}}")
        shared = ("--bot-api-url", api.url)
        processes = {}
        for name in NAMES:
            options = (*shared, "--port", str(free_port()))
            started = held.enter_context(ours.process(name, database.path, *options))
            processes[name] = psutil.Process(started.pid)
        wait_until(lambda: api.polls > 0, 20, "the poller polls")
        wait_until(lambda: ours.running_components(database) == 3, 20, "all three run")
        yield _System(api, sink, processes)


@contextlib.contextmanager
def _relay() -> Iterator[_System]:
    with contextlib.ExitStack() as held:
        api = held.enter_context(BotApi.start())
        sink = held.enter_context(Sink.start())
        folder = held.enter_context(tempfile.TemporaryDirectory(prefix="bench-relay-"))
        database = Path(folder, "relay.db")
        relay.prepare(database)
        processes = {}
        for name, *where in (("store", api.url, database), ("forward", database, sink.port)):
            command = [sys.executable, "-m", "bench.relay", name, *map(str, where)]
            started = held.enter_context(child(command, env=environment()))
            processes[name] = psutil.Process(started.pid)
        wait_until(lambda: api.polls > 0, 20, "the relay polls")
        yield _System(api, sink, processes)
