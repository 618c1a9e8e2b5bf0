"""A connection to the database on which a test lets something happen."""

import sqlite3
from collections.abc import Sequence
from typing import cast

from telegrammer.store.connection import Database


class Trap:
    """A connection on which something happens at a statement of the test's choice, once."""

    def __init__(self, database: Database) -> None:
        """Take the place of the database's connection."""
        self._connection = database._connection
        self.close = self._connection.close
        self.kind = ""  # of statement
        self.statements = 0  # of that kind until then
        self.before = self.after = nothing
        database._connection = cast(sqlite3.Connection, self)

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, sql: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        if sql == "ROLLBACK" or not sql.startswith(self.kind):
            return self._connection.execute(sql, values)
        self.statements -= 1
        if self.statements == 0:
            self.before()
        cursor = self._connection.execute(sql, values)
        if self.statements == 0 and not sql.startswith("BEGIN"):
            self.after()
        return cursor


def nothing() -> None: ...


class DiskFailure(sqlite3.OperationalError):
    sqlite_errorname = "SQLITE_IOERR_WRITE"


def fail() -> None:
    raise DiskFailure
