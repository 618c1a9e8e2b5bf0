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

_LEAVES: Final = events.DELETE_SELF | events.MOVE_SELF
_GONE: Final = _LEAVES | events.IGNORED
# What stands at the path is watched as it is touched: a link is not followed.
_WATCHED: Final = events.ATTRIB | events.MODIFY | _LEAVES | events.DONT_FOLLOW


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
        self._watch: int | None = None
        touch(database)
        self.renew()

    def fileno(self) -> int | None:
        """Return the descriptor to wait for; None when the system has no watch left for us."""
        return None if self._inotify is None else int(self._inotify.fileno())

    def drain(self) -> None:
        """Forget the touches so far, and watch the file anew when it was replaced."""
        if self._inotify is None:
            return
        if any(event.mask & _GONE for event in self._inotify.read(timeout=0)):
            self.renew()

    def renew(self) -> None:
        """Watch what stands at the path now, made when nothing does; a standing watch stays.

        Call it now and then: where it failed, nothing else would ever wake the caller.
        """
        if self._inotify is None:
            return
        file = path_of(self._database)
        with contextlib.suppress(OSError):
            if not os.path.lexists(file):
                _create(file)
            watch = self._inotify.add_watch(file, _WATCHED)
            before, self._watch = self._watch, watch
            if before not in (None, watch):
                # Its file was moved away; one that is gone has taken its watch along.
                self._inotify.rm_watch(before)

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()


def _open_inotify() -> INotify | None:
    try:
        return INotify()
    except OSError:  # fs.inotify.max_user_instances, which all of a user's programs share
        return None
