"""An older layout -> this one, and copies of a live database."""

import contextlib
import datetime
import hashlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from telegrammer.errors import Failure, IncompatibleDatabase
from telegrammer.store.connection import BUSY_TIMEOUT, translated_errors
from telegrammer.store.keys import check_name
from telegrammer.store.layout import Layout, create_tables, inspect


def migrate(path: Path, now: float) -> Path | None:
    """Bring a legacy database to this version's layout; return where its backup lies.

    None when there was nothing to do. The backup is made first; then everything
    happens in one transaction, and any failure leaves the database as it was. Raises
    ``IncompatibleDatabase`` for other layouts, ``Failure`` for keys that cannot be kept.
    """
    if not path.is_file():
        raise Failure(f"there is no database at {path}")
    layout = inspect(path)
    if layout is Layout.CURRENT:
        return None
    if layout is not Layout.LEGACY:
        raise IncompatibleDatabase(
            f"{path} is empty: the daemons will set it up, nothing to migrate"
        )
    stamp = datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    saved = path.with_name(f"{path.name}.backup-{stamp}")
    back_up(path, saved)
    with _connection(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            _hash_keys(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        connection.execute("PRAGMA journal_mode = WAL")
    path.chmod(0o600)
    return saved


def back_up(source: Path, target: Path) -> None:
    """Copy a database that may be in use to a new file, 0600.

    Raises ``Failure`` when the target exists or cannot be written; what was written
    until then is removed.
    """
    if not source.is_file():
        raise Failure(f"there is no database at {source}")
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
            live.backup(copy)
    except BaseException:
        target.unlink()
        raise


@contextlib.contextmanager
def _connection(path: Path) -> Iterator[sqlite3.Connection]:
    with translated_errors():
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None)
        with contextlib.closing(connection):
            yield connection


def _hash_keys(tx: sqlite3.Connection) -> None:
    rows = tx.execute("SELECT name, key, created_at FROM api_keys ORDER BY rowid").fetchall()
    tx.execute("DROP TABLE api_keys")
    create_tables(tx)
    for name, key, created_at in rows:
        _check_legacy_key(name, key)
        try:
            tx.execute(
                "INSERT INTO api_keys (name, key_digest, created_at) VALUES (?, ?, ?)",
                (name, hashlib.sha256(key.encode()).hexdigest(), _unix_seconds(created_at, name)),
            )
        except sqlite3.IntegrityError:
            raise Failure(
                f"key {name!r}: its name or its key stands twice; delete one and migrate again"
            ) from None


def _check_legacy_key(name: object, key: object) -> None:
    if not isinstance(name, str) or not isinstance(key, str) or not key:
        raise Failure(f"key {name!r}: its name or its key is not a text; delete it first")
    try:
        check_name(name)
    except ValueError as error:
        raise Failure(f"key {name!r}: {error}; rename it first") from None


def _unix_seconds(value: object, name: str) -> int:
    """Return the time of a legacy row: Unix seconds, or SQLite's own text in UTC."""
    if isinstance(value, int | float):
        return int(value)
    text = str(value)
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise Failure(f"key {name!r}: its creation time cannot be read") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return int(moment.timestamp())
