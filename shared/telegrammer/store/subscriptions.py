"""Who wants which chat's messages, where."""

import sqlite3
from dataclasses import dataclass

from telegrammer.errors import SubscriptionLimit
from telegrammer.store.connection import Database


@dataclass(frozen=True, slots=True)
class Subscription:
    """One callback URL of one owner for one chat."""

    id: int
    chat_id: int
    callback_url: str


@dataclass(frozen=True, slots=True)
class Limits:
    """How many subscriptions there may be."""

    per_key: int
    total: int


class Subscriptions:
    """The subscriptions of all owners."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def register(
        self, owner_id: int, chat_id: int, callback_url: str, limits: Limits, now: int
    ) -> int | None:
        """Return the subscription's id: the existing one when an equal one exists.

        None when the owner is gone meanwhile. Raises ``SubscriptionLimit``.
        """
        with self._database.write() as tx:
            known: tuple[int] | None = tx.execute(
                "SELECT id FROM subscriptions"
                " WHERE owner_id = ? AND chat_id = ? AND callback_url = ?",
                (owner_id, chat_id, callback_url),
            ).fetchone()
            if known:
                # Wanted again: it is no longer on its way out.
                tx.execute("DELETE FROM retiring WHERE subscription_id = ?", known)
                return known[0]
            if not tx.execute("SELECT 1 FROM api_keys WHERE id = ?", (owner_id,)).fetchone():
                return None
            _check_limits(tx, owner_id, limits)
            return tx.execute(
                "INSERT INTO subscriptions (owner_id, chat_id, callback_url, created_at)"
                " VALUES (?, ?, ?, ?)",
                (owner_id, chat_id, callback_url, now),
            ).lastrowid

    def of_owner(self, owner_id: int) -> list[Subscription]:
        """Return the owner's subscriptions in order of id."""
        with self._database.read() as tx:
            rows = tx.execute(
                "SELECT id, chat_id, callback_url FROM subscriptions"
                " WHERE owner_id = ? ORDER BY id",
                (owner_id,),
            ).fetchall()
        return [Subscription(*row) for row in rows]

    def delete(self, owner_id: int, subscription_id: int) -> bool:
        """Delete the owner's subscription with its jobs; tell whether there was one."""
        with self._database.write() as tx:
            deleted = tx.execute(
                "DELETE FROM subscriptions WHERE id = ? AND owner_id = ?",
                (subscription_id, owner_id),
            )
            return deleted.rowcount == 1


def _check_limits(tx: sqlite3.Connection, owner_id: int, limits: Limits) -> None:
    own, total = tx.execute(
        "SELECT (SELECT count(*) FROM subscriptions WHERE owner_id = ?),"
        " (SELECT count(*) FROM subscriptions)",
        (owner_id,),
    ).fetchone()
    if own >= limits.per_key or total >= limits.total:
        raise SubscriptionLimit


def follow_migration(tx: sqlite3.Connection, old_chat: int, new_chat: int) -> int:
    """Move a group's subscriptions to the supergroup it became; return how many moved.

    An owner's equal one on the new chat stays; the old one is then removed once its
    jobs are done.
    """
    if old_chat == new_chat:
        return 0
    moved = tx.execute(
        "UPDATE OR IGNORE subscriptions SET chat_id = ? WHERE chat_id = ?", (new_chat, old_chat)
    ).rowcount
    # One that was retiring may have moved now: the owner has ended the equal one meanwhile.
    tx.execute(
        "DELETE FROM retiring WHERE subscription_id IN"
        " (SELECT id FROM subscriptions WHERE chat_id = ?)",
        (new_chat,),
    )
    tx.execute(
        "INSERT OR IGNORE INTO retiring SELECT id FROM subscriptions WHERE chat_id = ?",
        (old_chat,),
    )
    remove_retired(tx)
    return moved


def remove_retired(tx: sqlite3.Connection) -> None:
    """Remove the retiring subscriptions that have no job left, dead letters included."""
    tx.execute(
        "DELETE FROM subscriptions WHERE id IN (SELECT subscription_id FROM retiring)"
        " AND NOT EXISTS (SELECT 1 FROM deliveries WHERE subscription_id = subscriptions.id)"
    )
