"""What every process of ours does the same way: stop on a signal, hold its role."""

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, cast

import filelock

from telegrammer.errors import LockHeld, UnsafeFile

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """A wish to stop, made once, that every wait can be woken by.

    ``fileno()`` becomes and stays readable once the wish was made, so that a
    selector can wait for it beside sockets.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_set = False

    def fileno(self) -> int:
        return self._fd

    def set(self) -> None:
        self._is_set = True
        os.eventfd_write(self._fd, 1)

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float | None) -> bool:
        """Wait up to ``seconds`` (None: for ever); tell whether the wish was made."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(None if seconds is None else max(0.0, seconds) * 1000))

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> "Stop":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def beside(work: Callable[[], None], stop: Stop, name: str) -> Iterator[None]:
    """Run ``work``, which ends on ``stop``, in a thread of that name while the block runs."""
    thread = threading.Thread(target=work, name=name)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Yield a ``Stop`` that SIGTERM and SIGINT make.

    The signals are blocked in every thread and fetched by one that does nothing
    else, so that no code ever runs inside a signal handler. Call it before any
    thread is started: threads inherit the mask. Further signals change nothing.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    ended = threading.Event()
    with Stop() as stop:

        def fetch() -> None:
            signal.sigwait(_SIGNALS)
            stop.set()
            ended.wait()  # a thread that is gone cannot be sent a signal

        thread = threading.Thread(target=fetch, name="signals")
        thread.start()
        try:
            yield stop
        finally:
            signal.pthread_kill(cast("int", thread.ident), signal.SIGTERM)
            ended.set()
            thread.join()
            while signal.sigtimedwait(_SIGNALS, 0):
                pass  # left over: it would end the process once it is no longer blocked
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def lock_path(database: Path, role: str) -> Path:
    """Return the role's lock file beside the database."""
    return database.with_name(f"{database.name}.{role}.lock")


@contextlib.contextmanager
def one_instance(path: Path, role: str) -> Iterator[None]:
    """Hold the role on a database for as long as the block runs.

    The file is opened without following links, 0600, and never deleted. Raises
    ``LockHeld`` when another process has it, ``UnsafeFile`` when the file cannot be
    opened.
    """
    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise UnsafeFile(f"cannot open the lock file {path}: {error.strerror}") from None
    try:
        _lock(descriptor, path, role)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path, role: str) -> None:
    try:
        os.fchmod(descriptor, 0o600)
        locked = filelock.lock_descriptor(descriptor, blocking=False)
    except OSError as error:
        raise UnsafeFile(f"cannot lock {path}: {error.strerror}") from None
    if not locked:
        raise LockHeld(f"another {role} is running on this database ({path})")
