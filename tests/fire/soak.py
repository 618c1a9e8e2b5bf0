"""All three at a steady rate for a long time: nothing may grow."""

import contextlib
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fire.campaign import drain, keep_logs, traffic, wait_for_start
from fire.ledger import Ledger
from fire.stack import TICK
from fire.traffic import Caller
from fire.world import CHATS, KEYS, World, new_world

RATE: Final = 5.0  # messages a second, of which each goes to some five subscriptions
_PERIOD: Final = 5.0  # seconds between two samples
_WARM_UP: Final = 0.25  # of the time, before which growth is no leak

# By how much each figure's median may be higher in the last quarter than in the second.
_ALLOWED: Final = {
    "memory": (1.05, 2 << 20),
    "files": (1.0, 8),
    "threads": (1.0, 1),
    "wal": (0.0, 24 << 20),  # it is cut back to 16 MiB
}


@dataclass(frozen=True)
class Sample:
    """What one process holds; of ``wal`` the database's WAL, in bytes."""

    figures: dict[str, float]


def soak(minutes: float, say: Callable[[str], None]) -> bool:
    """Keep the traffic up for so long; tell whether all stayed flat and nothing was lost."""
    with (
        tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder,
        new_world(Path(folder)) as world,
    ):
        samples = _run(world, minutes * 60)
        result = Ledger(world).compare()
        grown = [name for name in samples[0].figures if not _is_flat(name, samples, say)]
        for violation in world.diary.violations:
            say(violation)
        if world.diary.violations:
            say(f"what the processes wrote is kept in {keep_logs(world)}")
        say(f"soak: {result}, grown: {grown or 'nothing'}")
        return not grown and not world.diary.violations


def _run(world: World, seconds: float) -> list[Sample]:
    world.stack.start()
    wait_for_start(world)
    rng = random.Random(1)
    callers = [Caller(world, random.Random(rng.random()), name) for name in KEYS]
    samples: list[Sample] = []
    with contextlib.ExitStack() as held:
        for caller in callers:
            held.callback(caller.close)
        for chat_id in CHATS:
            world.say(chat_id, "hello")
            callers[0].subscribe_to(chat_id)
        with traffic(world, callers, rng, RATE):
            began = time.monotonic()
            while (now := time.monotonic()) < began + seconds:
                world.stack.tend()
                if now >= began + len(samples) * _PERIOD:
                    samples.append(_sample(world))
                time.sleep(TICK)
        drain(world, callers, 60.0)
    for name in world.stack.services:
        world.stack.stop(name)
    return samples


def _sample(world: World) -> Sample:
    figures = {"wal": float(_size(world.database.with_name("gateway.db-wal")))}
    for service in world.stack.services.values():
        for number, process in enumerate(sorted(service.family(), key=lambda p: p.pid)):
            name = f"{service.name} {number}"
            figures[f"{name} memory"] = process.memory_info().rss
            figures[f"{name} files"] = process.num_fds()
            figures[f"{name} threads"] = process.num_threads()
    return Sample(figures)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _is_flat(name: str, samples: list[Sample], say: Callable[[str], None]) -> bool:
    values = [sample.figures[name] for sample in samples if name in sample.figures]
    quarter = max(1, int(len(values) * _WARM_UP))
    before = statistics.median(values[quarter : 2 * quarter] or values)
    after = statistics.median(values[-quarter:])
    factor, offset = _ALLOWED[name.rpartition(" ")[2]]
    say(f"{name:24} {before:14.0f} -> {after:14.0f}")
    return after <= before * factor + offset
