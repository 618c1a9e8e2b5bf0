"""Databases as the old daemon left them: keys in clear."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path

KEYS = (
    ("billing", "legacy-key-one", 1_600_000_000),
    ("ci", "LEGACY key two ü", "2021-05-06 07:08:09"),
)
SCHEMA = "CREATE TABLE api_keys (name TEXT PRIMARY KEY, key TEXT NOT NULL, created_at)"

Row = tuple[object, object, object]


def make_legacy(path: Path, keys: Iterable[Row] = KEYS, schema: str = SCHEMA) -> None:
    """Make a database of the old layout in SQLite's default journal mode."""
    connection = sqlite3.connect(path)
    connection.execute(schema)
    connection.executemany("INSERT INTO api_keys (name, key, created_at) VALUES (?, ?, ?)", keys)
    connection.commit()
    connection.close()


def dump(path: Path) -> list[str]:
    """Return everything that a database holds, as SQL."""
    connection = sqlite3.connect(path)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def snapshot(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Return content, mode and time of every file in a folder, by name."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns)
        for path in folder.iterdir()
        if path.is_file()
    }
