"""The three processes, kept running as a supervisor would, and all that they wrote."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import psutil

from fire.diary import Diary, Excuse
from support.processes import REPOSITORY, Event, parse_event

# Debian's place; the folder between is the machine's.
FAKETIME: Final = next(
    Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), Path("libfaketimeMT.so.1")
)
_PRELOAD: Final = Path(__file__).parent / "preload"
_PATH: Final = os.pathsep.join(
    str(path) for path in (_PRELOAD, REPOSITORY / "shared", REPOSITORY / "services")
)
TICK: Final = 0.05  # seconds between two looks at the processes
_STALL: Final = 1.0  # seconds without a tick: the machine is overloaded, not the gateway
_RESTART_DELAY: Final = 0.3  # seconds, as `make run` would wait a second
_STOP_BUDGET: Final = 50.0  # seconds that a stop may take, by contract

_GONE: Final = {
    "api": Excuse.API_GONE,
    "poller": Excuse.POLLER_GONE,
    "dispatcher": Excuse.DISPATCHER_GONE,
}


@dataclass(frozen=True)
class Line:
    """One line of standard error: when it was read, of which life of the process."""

    at: float
    life: int
    text: str


@dataclass
class Service:
    """One of our commands: at most one process at a time, one life after another."""

    name: str
    command: list[str]
    env: Mapping[str, str]
    folder: Path
    lines: list[Line] = field(default_factory=list)
    life: int = 0
    wanted: bool = False
    start_at: float = 0.0
    popen: "subprocess.Popen[bytes] | None" = None
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Whoever starts or ends the process holds it: hazards come from several threads."""
    _reader: threading.Thread | None = None

    def start(self) -> None:
        self.life += 1
        self.popen = subprocess.Popen(
            self.command,
            env=dict(self.env),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.popen.stderr is not None
        self._reader = threading.Thread(
            target=self._read, args=(self.life, self.popen.stderr), name=f"{self.name} log"
        )
        self._reader.start()

    @property
    def pid(self) -> int:
        assert self.popen is not None
        return self.popen.pid

    @property
    def is_running(self) -> bool:
        return self.popen is not None and self.popen.poll() is None

    def family(self) -> list[psutil.Process]:
        """Return what runs of its session: itself, children, orphans."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getsid(process.pid) == self.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def signal_all(self, number: signal.Signals) -> None:
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def limit_writes(self, size: int) -> None:
        """Let no write reach beyond ``size`` bytes of any file: it fails with EFBIG."""
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def wait(self, timeout: float) -> int | None:
        """Return the exit status; None when it still runs after that many seconds."""
        assert self.popen is not None
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """Kill whatever is left of it."""
        if self.popen is not None:
            self.signal_all(signal.SIGKILL)
            self.popen.wait(10)
            self.forget_faketime()
        if self._reader is not None:
            self._reader.join(10)

    def forget_faketime(self) -> None:
        """Remove what libfaketime leaves in shared memory when its process is killed."""
        for name in (f"faketime_shm_{self.pid}", f"sem.faketime_sem_{self.pid}"):
            Path("/dev/shm", name).unlink(missing_ok=True)

    def events(self, *names: str) -> list[tuple[float, Event]]:
        """Return the events of these names, each with the time when it was read."""
        found = ((line.at, parse_event(line.text)) for line in list(self.lines))
        return [(at, event) for at, event in found if event.get("event") in names]

    def events_of_this_life(self, name: str) -> list[str]:
        sign = f" event={name} "
        return [line.text for line in self.lines if line.life == self.life and sign in line.text]

    def _read(self, life: int, file: IO[bytes]) -> None:
        with file:
            for line in file:
                text = line.decode("utf-8", "replace").rstrip("\n")
                self.lines.append(Line(time.time(), life, text))


class Stack:
    """All three, and the supervisor's care for them."""

    def __init__(self, folder: Path, diary: Diary, settings: Mapping[str, str]) -> None:
        """``settings`` are the environment variables of all three."""
        self.diary = diary
        self.folder = folder
        self.clock_file = folder / "clock"
        self.clock_file.write_text("+0\n", "ascii")
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "PYTHONPATH": _PATH,
            **settings,
            **_faketime(self.clock_file),
        }
        self.env: Final = env
        python = [sys.executable, "-X", "dev", "-W", "error", "-m"]
        self.services: Final = {
            name: Service(name, [*python, f"telegrammer_{name}"], env, folder)
            for name in ("api", "poller", "dispatcher")
        }
        self._tended_at = 0.0

    def start(self, *names: str) -> None:
        for name in names or self.services:
            service = self.services[name]
            service.wanted = True
            service.start()

    def tend(self) -> None:
        """Start again what ended; note an end that nothing excuses. Call it every ``TICK``."""
        now = time.time()
        if self._tended_at and now - self._tended_at > _STALL:
            self.diary.note_stall(self._tended_at, now)
        self._tended_at = now
        for service in self.services.values():
            if service.lock.acquire(blocking=False):
                try:
                    self._tend(service, time.time())
                finally:
                    service.lock.release()

    def kill(self, name: str) -> None:
        """End it as a crash would: the process alone, its children do not hear of it."""
        service = self.services[name]
        with service.lock:
            service.wanted = False
            self.diary.begin(_GONE[name])
            if service.popen is not None and service.is_running:
                service.popen.kill()
                service.wait(10)
                self.diary.count(f"{name} killed")
                if name == "dispatcher":
                    self.diary.dispatcher_ends.append(time.time())

    def stop(self, name: str) -> None:
        """Ask it to stop; note a stop that takes too long or does not end well."""
        service = self.services[name]
        with service.lock:
            service.wanted = False
            self.diary.begin(_GONE[name])
            if service.popen is not None and service.is_running:
                self.diary.count(f"{name} stopped")
                self._stop(service, service.popen)

    def again(self, name: str) -> None:
        """Start what was killed or stopped."""
        service = self.services[name]
        with service.lock:
            service.forget_faketime()
            service.wanted = True
            service.start_at = time.time()
            self.diary.end(_GONE[name])

    def close(self) -> None:
        for service in self.services.values():
            service.close()

    def tail(self, name: str, lines: int = 12) -> str:
        return "\n".join(line.text for line in self.services[name].lines[-lines:])

    def _tend(self, service: Service, now: float) -> None:
        if not service.wanted or service.is_running:
            return
        if service.start_at == 0.0:
            self._note_end(service)
            service.start_at = now + _RESTART_DELAY
        elif service.start_at <= now:
            service.start_at = 0.0
            service.start()

    def _stop(self, service: Service, popen: "subprocess.Popen[bytes]") -> None:
        began = time.time()
        popen.send_signal(signal.SIGTERM)
        status = service.wait(_STOP_BUDGET)
        if status is None:
            self.diary.violation(f"{service.name}: no stop in {_STOP_BUDGET} s")
        elif status != 0 and not self._excuses_failure(service.name, began):
            self.diary.violation(f"{service.name}: ended with {status}\n{self.tail(service.name)}")
        if service.family():
            self._note_left(service)
        is_unwritten = service.events_of_this_life("outcomes_not_written")
        if service.name == "dispatcher" and (is_unwritten or status != 0):
            self.diary.dispatcher_ends.append(time.time())
        service.forget_faketime()

    def _note_end(self, service: Service) -> None:
        status = service.wait(0)
        now = time.time()
        service.forget_faketime()
        self.diary.count(f"{service.name} ended by itself")
        if service.name == "dispatcher":
            self.diary.dispatcher_ends.append(now)
        is_read_only = status == 78 and self.diary.was(Excuse.READ_ONLY, now - 5, now)
        is_excused = status == 1 and self._excuses_failure(service.name, now)
        if not is_read_only and not is_excused:
            text = f"{service.name}: ended with {status}\n{self.tail(service.name)}"
            self.diary.violation(text)

    def _excuses_failure(self, name: str, at: float) -> bool:
        # A start may wait for the database's lock; orphans of a killed API hold the port.
        gone = name == "api" and self.diary.was(Excuse.API_GONE, at - 10, at)
        return gone or self.diary.was(Excuse.STORAGE, at - 10, time.time())

    def _note_left(self, service: Service) -> None:
        """Give children a moment after their parent, then note who stayed."""
        end = time.time() + 5
        while left := service.family():
            if time.time() > end:
                self.diary.violation(f"{service.name}: left {left}")
                service.signal_all(signal.SIGKILL)
                return
            psutil.wait_procs(left, 0.1)


def _faketime(clock_file: Path) -> dict[str, str]:
    if not FAKETIME.exists():
        return {}
    return {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(clock_file),
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }
