"""A connection, and the file that it believes to be the database."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from support.builders import Gateway
from telegrammer.errors import StorageUnavailable
from telegrammer.store.connection import Database
from telegrammer.store.queue import Counts, Queue


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    other = path.with_name("other.db")
    Gateway(other).close()
    other.rename(path)


def move_away(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


@pytest.mark.parametrize("spoil", [remove, replace, move_away])
def test_what_is_no_longer_the_database_is_neither_read_nor_written(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    """SQLite goes on in the open file, whatever its name is now: all of it would be lost."""
    path = tmp_path / "t.db"
    Gateway(path).close()
    with Database(path) as database:
        queue = Queue(database)
        assert queue.counts() == Counts(0, 0, 0)

        spoil(path)

        with pytest.raises(StorageUnavailable, match="replaced"):
            queue.counts()
        with pytest.raises(StorageUnavailable, match="replaced"):
            queue.purge(0)


@pytest.mark.parametrize("size", [0, 1])
def test_a_file_cut_to_nothing_is_a_damaged_database(tmp_path: Path, size: int) -> None:
    """To SQLite it is a new one: it would make it anew, and answer that there is no such table."""
    path = tmp_path / "t.db"
    Gateway(path).close()
    with Database(path) as database:
        os.truncate(path, size)

        with pytest.raises(StorageUnavailable, match="corrupt"):
            Queue(database).counts()
        with pytest.raises(StorageUnavailable, match="corrupt"):
            Database(path)

        assert path.stat().st_size == size


def test_a_lock_is_waited_for_no_longer_than_told(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    Gateway(path).close()
    with Database(path) as holder, Database(path) as other:
        other.wait_for_locks(0.05)
        with (
            holder.write(),
            pytest.raises(StorageUnavailable, match="locked"),
            other.write(),
        ):
            pass


@pytest.mark.parametrize("begin", [Database.write, Database.read])
def test_wrong_sql_is_our_own_fault_and_passes_unchanged(
    tmp_path: Path, begin: Callable[[Database], AbstractContextManager[sqlite3.Connection]]
) -> None:
    """As "try again later" it would be tried again for ever, and the log would not tell why."""
    path = tmp_path / "t.db"
    Gateway(path).close()
    with Database(path) as database:
        with pytest.raises(sqlite3.OperationalError, match="no such table"), begin(database) as tx:
            tx.execute("SELECT * FROM nowhere")

        assert Queue(database).counts() == Counts(0, 0, 0)
