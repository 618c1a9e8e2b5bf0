"""What can go wrong, one small class for each: it starts, and it is healed.

``resources`` names what it needs for itself: two hazards that share one never overlap,
all others may.
"""

import contextlib
import random
import signal
import sqlite3
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from fire import receivers
from fire.diary import Excuse
from fire.receivers import Behaviour
from fire.telegram_faults import POLL_FAULTS, poll_fault, replay
from fire.world import World
from telegrammer_sandbox.faults import Fault


class Hazard(ABC):
    """``seconds`` is for how long it lasts; ``rng`` is its own."""

    resources: ClassVar[tuple[str, ...]]
    seconds: ClassVar[tuple[float, float]] = (0.3, 3.0)
    """The least and the most that it lasts in a plan."""
    needs: ClassVar[str] = ""
    """What the machine must offer: ``disk`` a file system of our own, ``clock`` libfaketime."""

    def __init__(self, rng: random.Random) -> None:
        self.detail = ""

    @abstractmethod
    def start(self, world: World) -> None: ...

    @abstractmethod
    def heal(self, world: World) -> None: ...

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.detail})"


class _ForOneService(Hazard):
    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.detail = self.service = rng.choice(("api", "poller", "dispatcher"))


class Kill(_ForOneService):
    """kill -9, and a start some time later."""

    resources = ("process",)

    def start(self, world: World) -> None:
        world.stack.kill(self.service)

    def heal(self, world: World) -> None:
        world.stack.again(self.service)


class Restart(_ForOneService):
    """SIGTERM, a clean end, and a start some time later."""

    resources = ("process",)

    def start(self, world: World) -> None:
        world.stack.stop(self.service)

    def heal(self, world: World) -> None:
        world.stack.again(self.service)


class Pause(_ForOneService):
    """SIGSTOP to the whole family, SIGCONT later."""

    resources = ("process",)
    seconds = (0.5, 6.0)

    def start(self, world: World) -> None:
        service = world.stack.services[self.service]
        world.diary.count(f"{self.service} paused")
        excuses = [Excuse.SLOW]
        if self.service == "api":
            excuses.append(Excuse.API_GONE)
        self._excuses = excuses
        world.diary.begin(*excuses)
        if service.is_running:
            service.signal_all(signal.SIGSTOP)

    def heal(self, world: World) -> None:
        service = world.stack.services[self.service]
        if service.popen is not None:
            service.signal_all(signal.SIGCONT)
        world.diary.end(*self._excuses)


class KillApiWorker(Hazard):
    """kill -9 to one of the API's workers: the master starts another."""

    resources = ("process",)
    seconds = (1.0, 2.0)

    def start(self, world: World) -> None:
        service = world.stack.services["api"]
        world.diary.begin(Excuse.API_GONE)
        workers = [p for p in service.family() if p.pid != service.pid]
        if service.is_running and workers:
            workers[0].kill()
            world.diary.count("api worker killed")

    def heal(self, world: World) -> None:
        world.diary.end(Excuse.API_GONE)


class ApiWorkersChange(Hazard):
    """SIGTTIN or SIGTTOU to the API's master, and the other one later, or SIGHUP twice."""

    resources = ("process",)
    _OPPOSITE: ClassVar = {
        signal.SIGTTIN: signal.SIGTTOU,
        signal.SIGTTOU: signal.SIGTTIN,
        signal.SIGHUP: signal.SIGHUP,
    }

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._signal = rng.choice(sorted(self._OPPOSITE))
        self.detail = self._signal.name

    def start(self, world: World) -> None:
        # A kept connection ends with its worker, perhaps just when it is used again.
        world.diary.begin(Excuse.API_GONE)
        world.diary.count("api workers changed")
        self._send(world, self._signal)

    def heal(self, world: World) -> None:
        self._send(world, self._OPPOSITE[self._signal])
        world.diary.end(Excuse.API_GONE)

    def _send(self, world: World, number: signal.Signals) -> None:
        api = world.stack.services["api"]
        # Before its first worker stands a signal would end the master, as any process.
        if api.popen is not None and api.is_running and api.events_of_this_life("worker_started"):
            api.popen.send_signal(number)


class FullDisk(Hazard):
    """A file takes all that is left of the file system."""

    resources = ("storage",)
    seconds = (1.0, 6.0)
    needs = "disk"

    def start(self, world: World) -> None:
        world.diary.begin(Excuse.STORAGE)
        with world.disk.ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def heal(self, world: World) -> None:
        world.disk.ballast.unlink(missing_ok=True)
        world.diary.end(Excuse.STORAGE)


class NoMoreWrites(Hazard):
    """Every write to a file fails, as when the file system has turned read-only under it."""

    resources = ("storage",)
    seconds = (1.0, 6.0)

    def start(self, world: World) -> None:
        world.diary.begin(Excuse.STORAGE)
        self._set(world, 0)

    def heal(self, world: World) -> None:
        self._set(world, -1)
        world.diary.end(Excuse.STORAGE)

    def _set(self, world: World, size: int) -> None:
        for service in world.stack.services.values():
            if service.is_running:
                service.limit_writes(size)


class ReadOnlyAtStart(Hazard):
    """All stop; the file system turns read-only; all start and must end with one line."""

    resources = ("storage", "process", "notification", "reader", "operator")
    seconds = (1.5, 3.0)
    needs = "disk"

    def start(self, world: World) -> None:
        world.diary.begin(Excuse.STORAGE, Excuse.READ_ONLY)
        world.restart_all_around(lambda: world.disk.remount("ro"))

    def heal(self, world: World) -> None:
        world.restart_all_around(lambda: world.disk.remount("rw"))
        world.diary.end(Excuse.STORAGE, Excuse.READ_ONLY)


class Locked(Hazard):
    """Another program holds the write lock, for longer than the busy timeout or not."""

    resources = ("storage",)
    seconds = (0.5, 7.0)

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._connection: sqlite3.Connection | None = None

    def start(self, world: World) -> None:
        world.diary.begin(Excuse.STORAGE)
        connection = sqlite3.connect(
            world.database, timeout=4, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            connection.close()
        else:
            self._connection = connection

    def heal(self, world: World) -> None:
        if self._connection is not None:
            self._connection.close()
        world.diary.end(Excuse.STORAGE)


class LongReader(Hazard):
    """A reader that does not end: the WAL cannot be reset meanwhile. No excuse for anything."""

    resources = ("reader",)
    seconds = (1.0, 8.0)

    def start(self, world: World) -> None:
        self._connection = sqlite3.connect(
            world.database, isolation_level=None, check_same_thread=False
        )
        with contextlib.suppress(sqlite3.OperationalError):
            self._connection.execute("BEGIN")
            self._connection.execute("SELECT count(*) FROM deliveries").fetchone()

    def heal(self, world: World) -> None:
        self._connection.close()


class ClockJump(Hazard):
    """The wall clock of all three jumps, and jumps back."""

    resources = ("clock",)
    needs = "clock"
    seconds = (0.5, 5.0)

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._offset = rng.choice((-172800, -3600, -90, -5, 5, 90, 3600, 90000))
        self.detail = f"{self._offset:+} s"

    def start(self, world: World) -> None:
        world.set_clock(self._offset)

    def heal(self, world: World) -> None:
        world.set_clock(0)


class Polling(Hazard):
    """The Bot API answers getUpdates in one of its bad ways, for a while or once."""

    resources = ("getUpdates",)
    seconds = (0.2, 2.0)

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.detail = rng.choice(sorted(POLL_FAULTS))

    def start(self, world: World) -> None:
        self._fault = poll_fault(self.detail)
        world.telegram.set_fault(self._fault)

    def heal(self, world: World) -> None:
        world.telegram.remove_fault(self._fault)
        world.telegram.release()
        world.revive_poller()


class Replay(Hazard):
    """An answer to getUpdates comes once more, with nothing in it that is new."""

    resources = ("getUpdates",)

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._fault: Fault | None = None

    def start(self, world: World) -> None:
        said = world.last_heard()
        if said is not None:
            self._fault = replay(said.update_id, said.chat_id, said.text)
            world.telegram.set_fault(self._fault)

    def heal(self, world: World) -> None:
        if self._fault is not None and not world.telegram.remove_fault(self._fault):
            world.diary.count("replayed answers")


class Poison(Hazard):
    """An update that the gateway must not pass over, until an operator says so."""

    resources = ("getUpdates",)
    seconds = (1.0, 3.0)

    def start(self, world: World) -> None:
        with world.talking:  # a quiet week that takes its time has to end first
            self._update_id = world.telegram.push_malformed()

    def heal(self, world: World) -> None:
        world.to_skip.append(self._update_id)
        world.skip_updates()


class BadReceivers(Hazard):
    """Some receivers misbehave, all in one way."""

    resources: ClassVar[tuple[str, ...]] = ("receivers",)
    seconds = (0.5, 4.0)

    def __init__(self, rng: random.Random, behaviours: Sequence[Behaviour] = receivers.ALL) -> None:
        super().__init__(rng)
        self._behaviour = rng.choice(behaviours)
        self._share = rng.choice((2, 3))
        self.detail = self._behaviour.name

    def start(self, world: World) -> None:
        for subscription in list(world.book.subscriptions):
            if subscription.number % self._share == 0:
                world.book.behaviours[subscription.number] = self._behaviour

    def heal(self, world: World) -> None:
        world.book.behaviours.clear()


class NotificationGone(Hazard):
    """The notification file goes, or is something that it must not be."""

    resources = ("notification",)

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.detail = rng.choice(("removed", "a link", "a folder"))

    def start(self, world: World) -> None:
        path = world.notification
        path.unlink(missing_ok=True)
        if self.detail == "a link":
            with contextlib.suppress(FileExistsError):
                path.symlink_to("/dev/null")
        elif self.detail == "a folder":
            with contextlib.suppress(FileExistsError):
                path.mkdir()

    def heal(self, world: World) -> None:
        path = world.notification
        if path.is_symlink():
            path.unlink(missing_ok=True)
        elif path.is_dir():
            path.rmdir()


class Backup(Hazard):
    """An operator copies the live database. No excuse for anything."""

    resources = ("operator",)

    def start(self, world: World) -> None:
        self._copy = world.folder / "backup.db"
        self._copy.unlink(missing_ok=True)
        command = [
            sys.executable,
            "-m",
            "telegrammer_cli",
            "backup",
            "--db",
            world.database,
            self._copy,
        ]
        self._process = subprocess.Popen(
            [str(part) for part in command],
            env={**world.stack.env, "LD_PRELOAD": ""},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def heal(self, world: World) -> None:
        _, stderr = self._process.communicate(timeout=30)
        if self._process.returncode == 0:
            with contextlib.closing(sqlite3.connect(self._copy)) as connection:
                found = connection.execute("PRAGMA integrity_check").fetchall()
            is_right = found == [("ok",)]
        else:  # a lock, or no room: it says so, and leaves nothing half done
            is_right = len(stderr.splitlines()) == 1 and not self._copy.exists()
        if not is_right:
            world.diary.violation(f"backup, {self._process.returncode}: {stderr.decode()}")
