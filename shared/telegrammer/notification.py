"""The file that wakes the dispatcher: ``<db>.notify``.

Every process touches it after it committed work that can be due. A lost touch costs
the dispatcher's own look-around of a second, never a job.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

from inotify_simple import INotify
from inotify_simple import flags as events

_WATCHED: Final = events.ATTRIB | events.MODIFY | events.DELETE_SELF | events.MOVE_SELF
_GONE: Final = events.DELETE_SELF | events.MOVE_SELF | events.IGNORED


def path_of(database: Path) -> Path:
    """Return the database's notification file."""
    return database.with_name(database.name + ".notify")


def touch(database: Path) -> None:
    """Wake the dispatcher. Failing to is no error: it looks by itself."""
    file = path_of(database)
    with contextlib.suppress(OSError):
        try:
            os.utime(file, follow_symlinks=False)
        except FileNotFoundError:
            _create(file)


def _create(file: Path) -> None:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    descriptor = os.open(file, flags, 0o600)
    try:
        os.fchmod(descriptor, 0o600)  # whatever the umask was
    finally:
        os.close(descriptor)


class Watch:
    """Becomes readable when the notification file was touched."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._inotify = _open_inotify()
        self._is_watching = False
        self._begin()

    def fileno(self) -> int | None:
        """Return the descriptor to wait for; None when the system has no watch left for us."""
        return None if self._inotify is None else int(self._inotify.fileno())

    def drain(self) -> None:
        """Forget the touches so far, and watch the file anew when it was replaced."""
        if self._inotify is None:
            return
        for event in self._inotify.read(timeout=0):
            self._is_watching = self._is_watching and not event.mask & _GONE
        if not self._is_watching:
            self._begin()

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()

    def _begin(self) -> None:
        touch(self._database)
        if self._inotify is None:
            return
        with contextlib.suppress(OSError):
            self._inotify.add_watch(path_of(self._database), _WATCHED)
            self._is_watching = True


def _open_inotify() -> INotify | None:
    try:
        return INotify()
    except OSError:  # fs.inotify.max_user_instances, which all of a user's programs share
        return None
