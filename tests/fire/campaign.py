"""One campaign: start, traffic, hazards by plan, healing, draining, and the ledger."""

import contextlib
import random
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fire.ledger import Ledger, Result
from fire.plan import KINDS, Step, draw
from fire.stack import TICK
from fire.traffic import Caller, Crowd, People
from fire.world import CHATS, KEYS, Disk, World, lacks, new_world
from support.secrets import MARK

_START: Final = 20.0  # seconds that a loaded machine may take to start all three


@dataclass(frozen=True)
class Report:
    """What came of a campaign; it can be had again from its seed."""

    seed: int
    plan: list[Step]
    left_out: list[str]
    """Of the plan, what this machine lacks something for, each with the reason."""
    result: Result
    counts: dict[str, int]
    violations: list[str]
    took: float

    def __str__(self) -> str:
        steps = "\n".join(f"  {step}" for step in self.plan)
        found = _listed(self.violations)
        return (
            f"seed {self.seed}, {self.took:.0f} s\nplan:\n{steps}\n"
            f"left out:\n{_listed(self.left_out)}\n"
            f"counts: {self.counts}\n{self.result}\nviolations:\n{found}"
        )


@dataclass(frozen=True)
class Campaign:
    """``seconds`` of hazards, ``density`` of them a second, ``rate`` messages a second.

    ``drain`` is how long, in seconds, the healed gateway may take to be done with
    everything.
    """

    seed: int
    seconds: float
    density: float = 1.0
    rate: float = 8.0
    drain: float = 60.0
    switch_interval: float | None = None

    def run(self) -> Report:
        """Return what came of it. Nothing is left, whatever happens."""
        began = time.monotonic()
        with (
            tempfile.TemporaryDirectory(prefix="fire-", ignore_cleanup_errors=True) as folder,
            new_world(Path(folder), self.switch_interval) as world,
        ):
            plan = draw(self.seed, self.seconds, self.density)
            lack = lacks(world.disk)
            left_out = [step for step in plan if step.hazard.needs in lack]
            self._burn(world, [step for step in plan if step not in left_out])
            result = Ledger(world).compare()
            if world.diary.violations:
                world.diary.violation(f"what the processes wrote is kept in {keep_logs(world)}")
            took = time.monotonic() - began
            return Report(
                self.seed,
                plan,
                [f"{step}: {lack[step.hazard.needs]}" for step in left_out],
                result,
                world.diary.counts,
                world.diary.violations,
                took,
            )

    def _burn(self, world: World, plan: list[Step]) -> None:
        world.stack.start()
        wait_for_start(world)
        rng = random.Random(self.seed)
        for chat_id in CHATS:
            world.say(chat_id, f"{MARK}-hello")
        callers = [Caller(world, random.Random(rng.random()), name) for name in KEYS]
        with contextlib.ExitStack() as held:
            for caller in callers:
                held.callback(caller.close)
                for chat_id in CHATS:
                    caller.subscribe_to(chat_id)
            with traffic(world, callers, rng, self.rate) as crowd:
                self._follow(world, plan)
            for failure in crowd.failures:
                world.diary.violation(f"the campaign's own failure: {failure!r}")
            drain(world, callers, self.drain)
        for name in world.stack.services:
            world.stack.stop(name)

    def _follow(self, world: World, plan: list[Step]) -> None:
        """Start and heal by the plan; all is healed at the end."""
        began = time.monotonic()
        # Each in a thread: a stop that takes its time must not keep another from healing.
        with ThreadPoolExecutor(max(1, len(plan)), "hazard") as pool:
            steps = [pool.submit(_take, step, world, began) for step in plan]
            while not all(step.done() for step in steps):
                world.stack.tend()
                time.sleep(TICK)
        for step in steps:
            step.result()


def left_out() -> dict[str, str]:
    """Return the hazards that cannot be on this machine, each with the reason."""
    with tempfile.TemporaryDirectory(prefix="fire-") as folder:
        disk = Disk(Path(folder) / "disk")
        disk.close()
    lack = lacks(disk)
    return {kind.__name__: lack[kind.needs] for kind in KINDS if kind.needs in lack}


def _listed(texts: list[str]) -> str:
    return "\n".join(f"  {text}" for text in texts) or "  none"


def _take(step: Step, world: World, began: float) -> None:
    _sleep_until(began + step.begins)
    step.hazard.start(world)
    _sleep_until(began + step.ends)
    step.hazard.heal(world)


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def drain(world: World, callers: list[Caller], seconds: float) -> None:
    """Let the healed gateway come to an end with everything; note it when it does not."""
    end = time.monotonic() + seconds
    while not _is_done(world, callers):
        world.stack.tend()
        world.skip_updates()
        world.revive_poller()
        for caller in callers:
            caller.settle()
        if time.monotonic() > end:
            world.diary.violation(f"not done after {seconds} s: {_left(world)}")
            return
        time.sleep(TICK)


@contextlib.contextmanager
def traffic(
    world: World, callers: list[Caller], rng: random.Random, rate: float
) -> Iterator[Crowd]:
    """Let people write and callers call while the block runs."""
    crowd = Crowd()
    crowd.add(People(world, random.Random(rng.random()), rate), "people")
    for number, caller in enumerate(callers):
        crowd.add(caller, f"caller {number}")
    with crowd:
        yield crowd


def wait_for_start(world: World) -> None:
    """Wait until all three do their work."""
    end = time.monotonic() + _START
    signs = {"api": "worker_started", "poller": "bound", "dispatcher": "started"}
    for name, sign in signs.items():
        while not world.stack.services[name].events_of_this_life(sign):
            if time.monotonic() > end:
                raise AssertionError(f"{name} did not start\n{world.stack.tail(name)}")
            time.sleep(TICK)


def _is_done(world: World, callers: list[Caller]) -> bool:
    settled = all(caller.is_settled for caller in callers) and not world.to_skip
    return settled and world.telegram.waiting() == 0 and _live_jobs(world) == 0


def _live_jobs(world: World) -> int:
    with contextlib.closing(sqlite3.connect(world.database, timeout=5)) as database:
        count = database.execute("SELECT count(*) FROM deliveries WHERE state <> 'DEAD'")
        return int(count.fetchone()[0])


def keep_logs(world: World) -> Path:
    """Write what the processes have written, with the times when it was read, into a folder."""
    folder = Path(tempfile.mkdtemp(prefix="fire-logs-"))
    for service in world.stack.services.values():
        text = "\n".join(f"{line.at:.3f} {line.life} {line.text}" for line in service.lines)
        folder.joinpath(f"{service.name}.log").write_text(text, "utf-8")
    return folder


def _left(world: World) -> str:
    tails = "\n".join(f"{name}:\n{world.stack.tail(name)}" for name in world.stack.services)
    return f"{world.telegram.waiting()} updates, {_live_jobs(world)} jobs\n{tails}"
