"""Opening a database that must be there: only what writes may make one."""

from pathlib import Path

from telegrammer.store.connection import Database
from telegrammer.store.layout import is_missing, no_database, open_database


def open_existing(path: Path) -> Database:
    """Return a connection to a database that is there.

    Raises ``Failure`` when there is none, and what ``open_database`` raises.
    """
    if is_missing(path):
        raise no_database(path)
    return open_database(path)
