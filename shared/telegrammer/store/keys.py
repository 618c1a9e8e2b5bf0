"""API keys. The table holds a key's SHA-256, never the key."""

import hashlib
import secrets
import sqlite3
from dataclasses import dataclass
from typing import Final

from telegrammer.store.connection import Database

NAME_LIMIT: Final = 128


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """What a listing shows of a key."""

    name: str
    created_at: int


def digest(key: bytes) -> str:
    """Return what the table keeps of a key: lower-case hexadecimal.

    A fast digest is right here: keys are 256 random bits, not human passwords.
    """
    return hashlib.sha256(key).hexdigest()


def check_name(name: str) -> None:
    """Raise ``ValueError`` unless the name is 1 to 128 bytes of UTF-8, no control characters."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError("a key's name must be valid UTF-8") from None
    if not 1 <= size <= NAME_LIMIT:
        raise ValueError(f"a key's name must have 1 to {NAME_LIMIT} bytes")
    if any(ord(c) < 0x20 or 0x7F <= ord(c) <= 0x9F for c in name):
        raise ValueError("a key's name must not hold control characters")


class Keys:
    """The keys of the gateway's callers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, name: str, now: int) -> str | None:
        """Return a new key, which nothing can show again; None when the name is taken."""
        check_name(name)
        key = secrets.token_hex(32)
        try:
            with self._database.write() as tx:
                tx.execute(
                    "INSERT INTO api_keys (name, key_digest, created_at) VALUES (?, ?, ?)",
                    (name, digest(key.encode()), now),
                )
        except sqlite3.IntegrityError:
            return None
        return key

    def owner(self, key: str) -> int | None:
        """Return the id of the key's owner, or None when there is no such key."""
        with self._database.read() as tx:
            row: tuple[int] | None = tx.execute(
                "SELECT id FROM api_keys WHERE key_digest = ?", (digest(key.encode()),)
            ).fetchone()
        return row[0] if row else None

    def all(self) -> list[KeyInfo]:
        with self._database.read() as tx:
            rows = tx.execute("SELECT name, created_at FROM api_keys ORDER BY id").fetchall()
        return [KeyInfo(*row) for row in rows]

    def delete(self, name: str) -> bool:
        """Delete the key with its subscriptions and jobs; tell whether there was one."""
        with self._database.write() as tx:
            return tx.execute("DELETE FROM api_keys WHERE name = ?", (name,)).rowcount == 1
