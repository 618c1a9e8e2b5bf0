"""A process's own row in ``components``: written on every change, and every 5 s."""

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Protocol

from telegrammer.clock import Clock
from telegrammer.errors import StorageUnavailable
from telegrammer.logs import Log
from telegrammer.model import State
from telegrammer.process import Stop, beside
from telegrammer.store.components import Component, Components

PERIOD: Final = 5.0  # seconds between two beats


class Rows(Protocol):
    """Where rows are written: ``Components`` of a database."""

    def write(self, row: Component) -> None: ...


class Heartbeat:
    """What this process says about itself. Any thread may call it.

    A row that cannot be written is no error here: the process then shows as stale,
    which is the truth, and the log tells why.
    """

    def __init__(self, rows: Rows, name: str, clock: Clock, row: Component | None = None) -> None:
        """Say that the process starts; or ``row``, which processes that share one write alike."""
        self._rows = rows
        self._clock = clock
        self._log = Log(name)
        self._lock = threading.Lock()
        self._failing = False
        now = int(clock.now())
        self._row = row or Component(name, os.getpid(), State.STARTING, None, now, now)
        self._write()

    def report(
        self,
        state: State,
        reason: str | None = None,
        failures: int = 0,
        update_id: int | None = None,
    ) -> None:
        """Say what the process does now; ``failures`` counts those in a row."""
        with self._lock:
            old = self._row
            said = (old.state, old.reason, old.consecutive_failures, old.update_id)
            if said == (state, reason, failures, update_id):
                return
            self._row = replace(
                old,
                state=state,
                since=old.since if state == old.state else int(self._clock.now()),
                reason=reason,
                consecutive_failures=failures,
                update_id=update_id,
            )
            self._write()

    def succeeded(self) -> None:
        """Note the time of a success; the next beat writes it."""
        with self._lock:
            self._row = replace(self._row, last_success_at=int(self._clock.now()))

    def beat(self) -> None:
        """Write the row."""
        with self._lock:
            self._write()

    def beat_whatever_happens(self) -> None:
        """Beat, at a thread's edge: if that ended, a process that works would show as stale."""
        log = self._log
        try:
            self.beat()
        except Exception:
            log.exception("heartbeat_failed")

    def _write(self) -> None:
        self._row = replace(self._row, heartbeat=int(self._clock.now()))
        try:
            self._rows.write(self._row)
        except StorageUnavailable as error:
            if not self._failing:
                self._log.warning("heartbeat_failed", reason=error.reason)
            self._failing = True
        else:
            self._failing = False


def remove_row(components: Components, name: str) -> None:
    """Take this process's row away, unless another has taken it over: it ends as asked."""
    with contextlib.suppress(StorageUnavailable):
        components.remove(name, os.getpid())


@contextlib.contextmanager
def beating(heartbeat: Heartbeat) -> Iterator[None]:
    """Beat in a thread of its own for as long as the block runs."""
    with Stop() as stop:

        def beat() -> None:
            while not stop.wait(PERIOD):
                heartbeat.beat_whatever_happens()

        with beside(beat, stop, "heartbeat"):
            yield
