"""Is this file a database of ours? Creates it where there is none.

A file of another layout or a newer version is refused without a byte of it, or
beside it, being changed.
"""

import contextlib
import os
import sqlite3
import stat
from enum import Enum
from importlib import resources
from pathlib import Path
from typing import Final
from urllib.parse import quote

from telegrammer.errors import Failure, IncompatibleDatabase, StorageUnavailable, UnsafeFile
from telegrammer.store.connection import BUSY_TIMEOUT, Database, Transaction, translated_errors

VERSION: Final = 1

_LEGACY_COLUMNS: Final = {"api_keys": {"name", "key", "created_at"}}

Columns = dict[str, set[str]]


class Layout(Enum):
    """What a file holds."""

    EMPTY = "empty"
    LEGACY = "legacy"
    CURRENT = "current"


def open_database(path: Path) -> Database:
    """Return a connection to the database, made first when there is none.

    Raises ``IncompatibleDatabase`` for a layout that this version cannot use,
    ``UnsafeFile`` for a path that cannot be opened, ``StorageUnavailable``.
    """
    create_file(path)
    layout = _inspect_for_use(path)
    _close_to_others(path)
    if layout is Layout.EMPTY:
        _create_layout(path)
    return Database(path)


def open_unchanged(path: Path) -> Database:
    """Return a connection to a database that is there, for a look at it.

    Nothing is made, and no mode changed. Raises what ``open_database`` raises.
    """
    _inspect_for_use(path)
    return Database(path)


def _inspect_for_use(path: Path) -> Layout:
    layout = inspect(path)
    if layout is Layout.LEGACY:
        raise IncompatibleDatabase(
            f"{path} has the old layout with plaintext keys: stop the old daemon and run"
            f" `telegrammer migrate --db {path}`"
        )
    return layout


def _close_to_others(path: Path) -> None:
    """Take the rights on a file of this user's from all others, a copied backup perhaps.

    SQLite gives what it makes beside the file the same mode.
    """
    status = path.stat()
    if status.st_uid == os.geteuid() and status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        path.chmod(0o600)


def create_file(path: Path) -> None:
    """Make an empty file, 0600, in a folder, 0700, unless it exists; whatever the umask."""
    try:
        _create_folder(path.parent)
        with contextlib.suppress(FileExistsError):
            flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(path, flags, 0o600)
            os.fchmod(descriptor, 0o600)
            os.close(descriptor)
        if not path.is_file():
            raise UnsafeFile(f"{path} is not a file")
        if not os.access(path, os.R_OK | os.W_OK):
            raise UnsafeFile(f"{path} cannot be read and written by this user: run it as the owner")
    except OSError as error:
        raise UnsafeFile(f"cannot create {path}: {error.strerror}") from None


def _create_folder(folder: Path) -> None:
    if not folder.is_dir():
        _create_folder(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            folder.chmod(0o700)


def no_database(path: Path) -> Failure:
    """Return the error for a command that needs a database where there is none."""
    return Failure(
        f"there is no database at {path}: the processes and `telegrammer add-key` make one;"
        " give another with --db"
    )


def exists(path: Path) -> bool:
    """Tell whether there is anything at the path. Raises ``UnsafeFile`` when it cannot be told."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise UnsafeFile(f"cannot look at {path}: {error.strerror}") from None
    return True


def is_missing(path: Path) -> bool:
    """Tell whether there is no database yet: nothing, or an empty file. Raises as ``inspect``."""
    return not exists(path) or (path.is_file() and inspect(path) is Layout.EMPTY)


def inspect(path: Path) -> Layout:
    """Return what the file holds, changing nothing, neither in it nor beside it.

    Raises ``IncompatibleDatabase``, and ``UnsafeFile`` when it cannot be read.
    """
    while True:
        before = _signature(path)
        try:
            return _look(path)
        except IncompatibleDatabase:
            # Read while another process was making it: only a file that keeps still
            # can be refused.
            if _signature(path) == before:
                raise


def _signature(path: Path) -> tuple[int, int, bool]:
    try:
        status = path.stat()
    except FileNotFoundError:  # a link that leads nowhere
        raise UnsafeFile(f"{path} is not a file") from None
    except OSError as error:
        raise UnsafeFile(f"cannot look at {path}: {error.strerror}") from None
    return status.st_mtime_ns, status.st_size, _beside(path, "-shm").exists()


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _look(path: Path) -> Layout:
    # The file is never opened but by SQLite: a process loses its locks on a file, those
    # of its other connections too, as soon as it closes a descriptor of its own.
    if not path.is_file():
        raise UnsafeFile(f"{path} is not a file")
    if not os.access(path, os.R_OK):
        raise UnsafeFile(f"{path} cannot be read by this user: run it as the owner")
    if path.stat().st_size == 0:
        return Layout.EMPTY
    if _beside(path, "-shm").exists():
        return _read(path, "mode=ro")
    # Opening a database in WAL mode makes files beside it, unless it is said to be
    # immutable; and while there is no -shm, no process has it open in that mode.
    found = _read(path, "mode=ro&immutable=1")
    if found is not Layout.CURRENT and _beside(path, "-wal").exists():
        return _read(path, "mode=ro")  # the WAL may hold more
    return found


def _read(path: Path, mode: str) -> Layout:
    try:
        with translated_errors():
            uri = f"file:{quote(os.fsencode(path))}?{mode}"
            connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT)
            with contextlib.closing(connection):
                return classify(connection, path)
    except StorageUnavailable as error:
        if error.reason == "corrupt":
            raise IncompatibleDatabase(
                f"{path} is not a SQLite database, or a damaged one; it was not touched"
            ) from None
        raise


def classify(connection: sqlite3.Connection, path: Path) -> Layout:
    """Return what an open database holds. Raises ``IncompatibleDatabase``."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    found = _columns(connection)
    if version > VERSION:
        raise IncompatibleDatabase(
            f"{path} has layout {version}, of a newer version of Telegrammer; it was not touched"
        )
    if version == VERSION and _is_current(found):
        return Layout.CURRENT
    if version == 0 and not found:
        return Layout.EMPTY
    if version == 0 and found == _LEGACY_COLUMNS:
        return Layout.LEGACY
    raise IncompatibleDatabase(f"{path} has an unknown layout; it was not touched")


def _columns(connection: sqlite3.Connection) -> Columns:
    # A view counts as a table that has no columns of ours: it makes a layout unknown.
    rows = connection.execute(
        "SELECT m.name, iif(m.type = 'view', 'view', c.name)"
        " FROM sqlite_master m LEFT JOIN pragma_table_info(m.name) c"
        " WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    )
    found: Columns = {}
    for table, column in rows:
        found.setdefault(table, set()).add(column)
    return found


def _is_current(found: Columns) -> bool:
    with contextlib.closing(sqlite3.connect(":memory:")) as model:
        create_tables(model)
        wanted = _columns(model)
    return all(found.get(table) == columns for table, columns in wanted.items())


def create_tables(connection: sqlite3.Connection) -> None:
    """Run the schema's statements, in the caller's transaction, and set the version.

    One at a time: ``executescript`` would commit the caller's transaction first.
    """
    text = resources.files("telegrammer.store").joinpath("schema.sql").read_text("utf-8")
    for statement in text.split("\n--\n"):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _create_layout(path: Path) -> None:
    with translated_errors():
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None)
        with contextlib.closing(connection), Transaction(connection):
            # Another process may have been faster.
            if classify(connection, path) is Layout.EMPTY:
                create_tables(connection)
