"""Opening a database that must be there: only what writes may make one."""

from pathlib import Path

from telegrammer.store.connection import Database
from telegrammer.store.layout import Layout, exists, inspect, no_database, open_database


def open_existing(path: Path) -> Database:
    """Return a connection to a database that is there.

    Raises ``Failure`` when there is none, and what ``open_database`` raises.
    """
    if not exists(path) or (path.is_file() and inspect(path) is Layout.EMPTY):
        raise no_database(path)
    return open_database(path)
