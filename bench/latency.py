"""An idle system: from the Bot API's answer to the first byte at the receiver.

All processes run as an operator starts them. One message at a time, with a pause between
two; then nothing for a while, to see what idling costs. The times are the monotonic
clock's, taken right before the answer is written and when the receiver reads.
"""

import contextlib
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import psutil

from bench import ours
from bench.bot_api import BotApi
from bench.harness import (
    Json,
    Options,
    Section,
    cpu_seconds,
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
NAMES: Final = ("telegrammer_api", "telegrammer_poller", "telegrammer_dispatcher")


@dataclass(frozen=True)
class _System:
    api: BotApi
    sink: Sink
    processes: dict[str, psutil.Process]


def run(options: Options) -> Section:
    """Measure messages and idling on a fresh system for each repeat."""
    amount, idle = (40, 5.0) if options.quick else (300, 30.0)
    values = interleaved({"idle system": lambda: _measure(amount, idle)}, options.repeats)
    runs = values["idle system"]
    memory = [name for name in runs[0] if name.startswith("mib_")]
    largest = max(median(runs, name) for name in memory)
    return Section(
        name="latency",
        title="Latency and idling",
        remarks=["Two API workers; `mib` is resident memory after the messages."],
        columns=["what", "median of the repeats"],
        rows=[
            ["Bot API answer to byte at the receiver, p50", f"{median(runs, 'p50_ms'):.2f} ms"],
            ["the same, p99", f"{median(runs, 'p99_ms'):.2f} ms"],
            ["idle CPU of all processes", f"{median(runs, 'idle_percent'):.2f} % of a core"],
            *([f"resident: {name[4:]}", f"{median(runs, name):.1f} MiB"] for name in memory),
        ],
        goals=[
            goal("ms at p50", median(runs, "p50_ms"), most=3),
            goal("ms at p99", median(runs, "p99_ms"), most=15),
            goal("% of a core when idle", median(runs, "idle_percent"), most=0.5),
            goal("MiB is the largest process", largest, most=50),
        ],
        values=dict(values),
    )


def _measure(amount: int, idle: float) -> Json:
    with _system() as system:
        for _ in range(amount):
            time.sleep(random.uniform(SHORTEST_PAUSE, LONGEST_PAUSE))
            system.api.send(CHAT)
        wait_until(lambda: system.sink.stats()["received"] == amount, 10, "all arrived")
        pairs = zip(system.api.sent_at, system.sink.arrivals(), strict=True)
        took = sorted((arrived - sent) / 1e6 for sent, arrived in pairs)
        time.sleep(1)
        family = list(system.processes.values())
        before, began = cpu_seconds(family), time.monotonic()
        time.sleep(idle)
        used = cpu_seconds(family) - before
        return {
            "p50_ms": took[len(took) // 2],
            "p99_ms": took[int(len(took) * 0.99)],
            "idle_percent": used / (time.monotonic() - began) * 100,
            **_memory(system),
        }


def _memory(system: _System) -> Json:
    found: Json = {}
    for name, process in system.processes.items():
        found[f"mib_{name}"] = process.memory_info().rss / 2**20
        for number, child in enumerate(process.children(), start=1):
            found[f"mib_{name} worker {number}"] = child.memory_info().rss / 2**20
    return found


@contextlib.contextmanager
def _system() -> Iterator[_System]:
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
        api.send(CHAT)  # opens the connections
        wait_until(lambda: sink.stats()["received"] == 1, 10, "the first message arrives")
        api.sent_at.clear()
        sink.forget_arrivals()
        yield _System(api, sink, processes)
