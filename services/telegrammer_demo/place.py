"""A folder and ports of this demo's own, so that two can run at once."""

import contextlib
import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path


@contextlib.contextmanager
def folder_of_own(root: Path) -> Iterator[Path]:
    """Yield the first of ``root/1``, ``root/2``, ... that no running demo has.

    It holds whatever an earlier demo has left, and is left as it is at the end.
    """
    root.mkdir(mode=0o700, exist_ok=True)
    for number in count(1):
        with (root / f"{number}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            folder = root / str(number)
            folder.mkdir(mode=0o700, exist_ok=True)
            yield folder
            return


@contextlib.contextmanager
def one_at_a_time(root: Path) -> Iterator[None]:
    """Let no other demo choose ports before this one's are taken."""
    with (root / "ports.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def free_port(preferred: int) -> int:
    """Return ``preferred`` when it is free on loopback, any other that is otherwise."""
    for port in (preferred, 0):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)) as listener:
            return int(listener.getsockname()[1])
    raise OSError("no port is free on 127.0.0.1")


def empty(folder: Path) -> None:
    """Remove everything in the folder."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            Path(entry.path).unlink()
