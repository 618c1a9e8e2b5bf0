"""An older layout -> this one, and copies of a live database."""

import contextlib
import datetime
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from telegrammer.errors import Failure, IncompatibleDatabase, StorageUnavailable
from telegrammer.store.connection import BUSY_TIMEOUT, Transaction, translated_errors
from telegrammer.store.keys import check_name, digest
from telegrammer.store.layout import (
    Layout,
    classify,
    create_tables,
    exists,
    inspect,
    no_database,
)

# Unix seconds that a date can be made of: the years 1 to 9999.
_TIMES: Final = range(-62135596800, 253402300800)


def migrate(path: Path, now: float) -> Path | None:
    """Bring a legacy database to this version's layout; return where its backup lies.

    None when there was nothing to do. The backup is made first; then everything
    happens in one transaction, and any failure leaves the database as it was, without
    a backup. Raises ``IncompatibleDatabase`` for other layouts, ``Failure`` for keys that
    cannot be kept, ``UnsafeFile``, ``StorageUnavailable``.
    """
    layout = _inspect_existing(path)
    if layout is Layout.CURRENT:
        return None
    if layout is not Layout.LEGACY:
        raise IncompatibleDatabase(
            f"{path} is empty: the processes will set it up, nothing to migrate"
        )
    stamp = datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    saved = path.with_name(f"{path.name}.backup-{stamp}")
    back_up(path, saved)
    try:
        _rewrite(path)
    except BaseException:
        saved.unlink()
        raise
    # Another user's file stays as it is: `telegrammer check` tells.
    with contextlib.suppress(PermissionError):
        path.chmod(0o600)
    return saved


def back_up(source: Path, target: Path) -> None:
    """Copy a database that may be in use to a new file, 0600.

    Raises ``Failure`` when the target exists or cannot be written; what was written
    until then is removed. Raises ``IncompatibleDatabase`` for a file that is not ours,
    ``UnsafeFile``, ``StorageUnavailable``.
    """
    try:
        target = target.absolute()  # some relative names mean something else to SQLite
    except OSError:
        raise Failure("the current folder is gone: give a path that begins with /") from None
    if _inspect_existing(source) is Layout.EMPTY:
        raise Failure(f"{source} is empty: there is nothing to back up")
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(target, flags, 0o600)
        os.fchmod(descriptor, 0o600)
        os.close(descriptor)
    except FileExistsError:
        raise Failure(f"{target} exists already: give another name") from None
    except OSError as error:
        raise Failure(f"cannot create {target}: {error.strerror}") from None
    try:
        with _connection(source) as live, _connection(target) as copy:
            live.backup(copy, progress=_do_not_wait_for_ever)
    except BaseException:
        target.unlink()
        raise


def _inspect_existing(path: Path) -> Layout:
    if not exists(path):
        raise no_database(path)
    return inspect(path)


def _do_not_wait_for_ever(status: int, _remaining: int, _total: int) -> None:
    # Each step has waited for the busy timeout; without this there is no last one.
    if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        raise StorageUnavailable("locked")


@contextlib.contextmanager
def _connection(path: Path) -> Iterator[sqlite3.Connection]:
    with translated_errors():
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None)
        with contextlib.closing(connection):
            yield connection


def _rewrite(path: Path) -> None:
    with _connection(path) as connection:
        # The pages that held the keys are overwritten with zeros.
        connection.execute("PRAGMA secure_delete = ON")
        connection.text_factory = _any_text
        with Transaction(connection):
            _hash_keys(connection, path)


def _any_text(value: bytes) -> str:
    """Decode a text that may be no UTF-8, so that the key it belongs to can be named."""
    return value.decode(errors="surrogateescape")


def _hash_keys(tx: sqlite3.Connection, path: Path) -> None:
    if classify(tx, path) is not Layout.LEGACY:
        raise Failure(f"another process has just changed {path}: look and run it again")
    rows = tx.execute("SELECT name, key, created_at FROM api_keys").fetchall()
    tx.execute("DROP TABLE api_keys")
    create_tables(tx)
    for name, key, created_at in rows:
        checked = _checked(name, key)
        try:
            tx.execute(
                "INSERT INTO api_keys (name, key_digest, created_at) VALUES (?, ?, ?)",
                (name, digest(checked), _unix_seconds(created_at, name)),
            )
        except sqlite3.IntegrityError:
            raise Failure(
                f"key {name!a}: its name or its key stands twice; delete one and migrate again"
            ) from None


def _checked(name: object, key: object) -> bytes:
    """Return a legacy key's exact text; its name must be one of ours."""
    if not isinstance(name, str) or not isinstance(key, str) or not key:
        raise Failure(f"key {name!a}: its name or its key is not a text; delete it first")
    try:
        check_name(name)
    except ValueError as error:
        raise Failure(f"key {name!a}: {error}; rename it first") from None
    return key.encode(errors="surrogateescape")


def _unix_seconds(value: object, name: str) -> int:
    """Return the time of a legacy row: Unix seconds, or SQLite's own text in UTC."""
    try:
        seconds = _read_time(value)
    except (ValueError, OverflowError):
        seconds = None
    if seconds is None or seconds not in _TIMES:
        raise Failure(f"key {name!a}: its creation time cannot be read")
    return seconds


def _read_time(value: object) -> int:
    if isinstance(value, int | float):
        return int(value)
    text = str(value)
    if text.isdecimal():
        return int(text)
    moment = datetime.datetime.fromisoformat(text)
    return int(moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp())
