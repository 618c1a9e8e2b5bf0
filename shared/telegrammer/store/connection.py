"""A connection to the database, its transactions, and SQLite's errors as ours."""

import contextlib
import os
import sqlite3
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from telegrammer.errors import StorageUnavailable

# One transaction that feeds a thousand subscriptions holds the write lock for more
# than a second; every other writer must outwait it.
BUSY_TIMEOUT: Final = 5.0

# After a burst the WAL is cut back to this at its next reset, in bytes.
_WAL_LIMIT: Final = 16 * 1024 * 1024
# The WAL is folded into the file at this length, in pages of 4 KiB: just below that
# limit. Every time waits for the disk twice, and a page changed often is written once.
_CHECKPOINT: Final = 4000

_SMALLEST: Final = 512  # bytes: a page of SQLite's

_REASONS: Final = {
    "SQLITE_BUSY": "locked",
    "SQLITE_LOCKED": "locked",
    "SQLITE_PROTOCOL": "locked",
    "SQLITE_FULL": "disk_full",
    "SQLITE_READONLY": "read_only",
    "SQLITE_IOERR": "io_error",
    "SQLITE_IOERR_SHMSIZE": "disk_full",  # no room for the index of the WAL, made at each start
    "SQLITE_CANTOPEN": "cannot_open",
    "SQLITE_PERM": "cannot_open",
    "SQLITE_CORRUPT": "corrupt",
    "SQLITE_NOTADB": "corrupt",
}


# Classes, not generators: contextlib's machinery is a fifth of the memory that an idle turn of
# the dispatcher touches, and memory that has gone cold is most of what idling costs.
class translated_errors:  # noqa: N801  (a context manager, named as contextlib names its own)
    """Turns SQLite's environmental errors into ``StorageUnavailable``.

    Broken constraints and wrong SQL are ours to prevent; they pass unchanged.
    """

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        _translate(error)


def _translate(error: BaseException | None) -> None:
    if isinstance(error, sqlite3.DatabaseError):
        name = getattr(error, "sqlite_errorname", "")  # of Python's own errors there is none
        reason = _REASONS.get(name) or _REASONS.get("_".join(name.split("_")[:2]))
        if reason is not None:
            raise StorageUnavailable(reason) from error


class Transaction:
    """A transaction, from the beginning of the block to its end."""

    def __init__(self, connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> None:
        self._connection = connection
        self._begin = begin

    def __enter__(self) -> sqlite3.Connection:
        with translated_errors():
            self._connection.execute(self._begin)
        return self._connection

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        with translated_errors():
            try:
                if error is None:
                    self._connection.execute("COMMIT")
            finally:
                self._roll_back()
        _translate(error)

    def _roll_back(self) -> None:
        # Not after a commit; and SQLite itself rolls back after some errors, a full disk
        # among them.
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")


class Database:
    """One connection. It serves one thread at a time, one operation at a time.

    Open it after every fork: a connection carried over one corrupts the file.
    """

    def __init__(self, path: Path) -> None:
        """Open an existing database. Raises ``StorageUnavailable``."""
        self.path = path
        self._file = _identity(path)
        with translated_errors():
            self._connection = sqlite3.connect(
                f"file:{quote(os.fsencode(path))}?mode=rw",
                uri=True,
                timeout=BUSY_TIMEOUT,
                isolation_level=None,
                check_same_thread=False,
            )
        try:
            with translated_errors():
                _use_wal(self._connection)
                self._connection.execute("PRAGMA foreign_keys = ON")
                self._connection.execute("PRAGMA synchronous = NORMAL")
                # Else a delivered message stands in the file, and in its backups, until its
                # place is needed. Only some distributions build SQLite like that.
                self._connection.execute("PRAGMA secure_delete = ON")
                self._connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
                self._connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT}")
        except StorageUnavailable:
            self._connection.close()
            raise

    def write(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return a transaction that is committed at the end, rolled back on any error.

        IMMEDIATE: a transaction that reads first and writes later fails at once when
        another wrote between, whatever the busy timeout.
        """
        self._require_same_file()
        return Transaction(self._connection)

    def read(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return a transaction in which all reads see one state of the database."""
        self._require_same_file()
        return Transaction(self._connection, "BEGIN")

    def changed_by_others(self) -> int:
        """Return a number that differs after another connection has committed."""
        with translated_errors():
            row: tuple[int] = self._connection.execute("PRAGMA data_version").fetchone()
        return row[0]

    def wait_for_locks(self, seconds: float) -> None:
        """Give up a transaction after so long instead of the usual busy timeout."""
        with translated_errors():
            self._connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")

    def close(self) -> None:
        self._connection.close()

    def _require_same_file(self) -> None:
        """Raise ``StorageUnavailable`` when the path no longer leads to the open file.

        SQLite would go on in a file without a name, and lose at the end what it took.
        """
        if _identity(self.path) != self._file:
            raise StorageUnavailable("replaced")

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _identity(path: Path) -> tuple[int, int]:
    """Return what tells the path's file from every other. Raises ``StorageUnavailable``."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise StorageUnavailable("replaced") from None
    except OSError:
        raise StorageUnavailable("cannot_open") from None
    # SQLite takes a file without a page for a new database: "no such table" is all it says.
    if status.st_size < _SMALLEST:
        raise StorageUnavailable("corrupt")
    return status.st_dev, status.st_ino


def _use_wal(connection: sqlite3.Connection) -> None:
    """Set the journal mode, which stays in the file: the first connection changes it.

    For that SQLite wants the file for itself and does not wait by its busy timeout.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
