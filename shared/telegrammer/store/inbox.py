"""The poller's side: the cursor, private chats' usernames, one job per subscription."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from telegrammer.errors import QueueFull, WrongBot
from telegrammer.model import Message, Update
from telegrammer.store.connection import Database
from telegrammer.store.subscriptions import follow_migration

# After a week without updates Telegram may go on at a random id (Bot API, "Update").
# Lower ids that come after this long are a new sequence, not a replay; in seconds.
NEW_SEQUENCE_AFTER: Final = 6 * 86400


@dataclass(frozen=True, slots=True)
class Ingested:
    """What became of a batch.

    ``adopted`` says that its ids were taken as a new sequence; ``moved`` counts the
    subscriptions that followed a group to its supergroup; ``already_queued`` counts
    messages whose job stood in the queue already.
    """

    updates: int
    jobs: int
    adopted: bool = False
    moved: int = 0
    already_queued: int = 0


class Inbox:
    """Where updates come in, each exactly once."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def bind(self, bot_id: int) -> None:
        """Bind an unbound database to the bot. Raises ``WrongBot`` when it is another's."""
        with self._database.write() as tx:
            if not _is_bound(tx, bot_id):
                tx.execute("INSERT INTO poll_state VALUES (1, ?, 0)", (bot_id,))

    def require_bot(self, bot_id: int) -> None:
        """Raise ``WrongBot`` when the database is bound to another bot."""
        with self._database.read() as tx:
            _is_bound(tx, bot_id)

    def cursor(self) -> int:
        """Return the lowest update id that was not ingested yet; 0 when none was."""
        with self._database.read() as tx:
            row: tuple[int] | None = tx.execute("SELECT next_offset FROM poll_state").fetchone()
        return row[0] if row else 0

    def ingest(self, updates: Sequence[Update], max_jobs: int, now: int) -> Ingested:
        """Keep a batch: jobs, usernames, moves and cursor together, or nothing.

        Updates before the cursor are ignored. ``Ingested.updates`` is 0 when the whole
        batch was a replay. Raises ``QueueFull`` when its jobs would pass ``max_jobs``.
        """
        with self._database.write() as tx:
            fresh, adopted = _fresh(tx, updates, now)
            if not fresh:
                return Ingested(0, 0)
            batch = _Batch(tx, max_jobs, now)
            for update in fresh:
                if update.message is not None:
                    batch.add(update.update_id, update.message)
            _advance(tx, fresh[-1].update_id + 1, now)
            return Ingested(len(fresh), batch.jobs, adopted, batch.moved, batch.already_queued)

    def request_skip(self, update_id: int, now: int) -> bool:
        """Let the poller pass over a malformed update; False when it was taken in already."""
        with self._database.write() as tx:
            row = tx.execute("SELECT next_offset FROM poll_state").fetchone()
            is_past = row and update_id < row[0] and not _may_begin_anew(tx, now)
            if is_past and not _is_holding_up(tx, update_id):
                return False
            tx.execute("INSERT OR IGNORE INTO skips VALUES (?, ?)", (update_id, now))
            return True

    def skips(self) -> set[int]:
        """Return the ids of the updates that may be passed over if they are malformed."""
        with self._database.read() as tx:
            return {row[0] for row in tx.execute("SELECT update_id FROM skips")}

    def chat_of(self, username: str) -> int | None:
        """Return the private chat that showed the username last (lower case, no ``@``)."""
        with self._database.read() as tx:
            row: tuple[int] | None = tx.execute(
                "SELECT chat_id FROM usernames WHERE username = ?", (username,)
            ).fetchone()
        return row[0] if row else None


def _is_bound(tx: sqlite3.Connection, bot_id: int) -> bool:
    """Tell whether the database is bound yet. Raises ``WrongBot`` when to another bot."""
    row = tx.execute("SELECT bot_id FROM poll_state").fetchone()
    if row is not None and row[0] != bot_id:
        raise WrongBot(
            f"the database belongs to bot {row[0]}, the token to bot {bot_id}:"
            " use that bot's token or another database"
        )
    return row is not None


def _fresh(
    tx: sqlite3.Connection, updates: Sequence[Update], now: int
) -> tuple[list[Update], bool]:
    """Return the updates to ingest, ascending, and whether they begin a new sequence of ids."""
    by_id = {update.update_id: update for update in updates}
    ordered = [by_id[update_id] for update_id in sorted(by_id)]
    (cursor,) = tx.execute("SELECT next_offset FROM poll_state").fetchone()
    fresh = [update for update in ordered if update.update_id >= cursor]
    if fresh or not ordered:
        return fresh, False
    return (ordered, True) if _may_begin_anew(tx, now) else ([], False)


def _may_begin_anew(tx: sqlite3.Connection, now: int) -> bool:
    """Tell whether ids below the cursor that come now are a new sequence, not a replay."""
    last = tx.execute("SELECT last_update_at FROM ingestion").fetchone()
    # Far in the future it tells as little of a replay as far in the past: the clock was wrong,
    # and to wait until it shows that time again would leave the bot deaf so long.
    return last is not None and abs(now - last[0]) > NEW_SEQUENCE_AFTER


def _is_holding_up(tx: sqlite3.Connection, update_id: int) -> bool:
    """Tell whether the poller has named this update as the one it cannot pass over."""
    found = tx.execute(
        "SELECT 1 FROM components WHERE name = 'poller' AND update_id = ?", (update_id,)
    )
    return found.fetchone() is not None


def _advance(tx: sqlite3.Connection, next_offset: int, now: int) -> None:
    tx.execute("UPDATE poll_state SET next_offset = ?", (next_offset,))
    tx.execute("INSERT OR REPLACE INTO ingestion VALUES (1, ?)", (now,))
    tx.execute("DELETE FROM skips WHERE update_id < ?", (next_offset,))


class _Batch:
    """The messages of one transaction."""

    def __init__(self, tx: sqlite3.Connection, max_jobs: int, now: int) -> None:
        self._tx = tx
        self._now = now
        (queued,) = tx.execute("SELECT jobs FROM queue_size").fetchone()
        self._room = max_jobs - queued
        self.jobs = 0
        self.moved = 0
        self.already_queued = 0

    def add(self, update_id: int, message: Message) -> None:
        if message.is_private:
            self._observe(message.chat_id, message.username)
        if message.migrated_from is not None:
            self.moved += follow_migration(self._tx, message.migrated_from, message.chat_id)
        self._fan_out(update_id, message)
        if message.migrated_to is not None:
            # After its own fan-out: the group's last message still is the group's.
            self.moved += follow_migration(self._tx, message.chat_id, message.migrated_to)

    def _fan_out(self, update_id: int, message: Message) -> None:
        (wanted,) = self._tx.execute(
            "SELECT count(*) FROM subscriptions WHERE chat_id = ?", (message.chat_id,)
        ).fetchone()
        if wanted and self.jobs + wanted > self._room:
            raise QueueFull
        # A conflict needs a job that outlived its sequence of update ids; it would go
        # out under the old message's delivery id, which receivers take as a repeat.
        added = self._tx.execute(
            "INSERT INTO deliveries"
            " (subscription_id, update_id, payload, state, next_attempt_at, created_at)"
            " SELECT id, ?, ?, 'PENDING', ?, ? FROM subscriptions WHERE chat_id = ? ORDER BY id"
            " ON CONFLICT (subscription_id, update_id) DO NOTHING",
            (update_id, message.payload, self._now, self._now, message.chat_id),
        ).rowcount
        self.jobs += added
        self.already_queued += wanted - added

    def _observe(self, chat_id: int, username: str | None) -> None:
        """Keep the name that a private chat showed last; its old one goes."""
        self._tx.execute(
            "DELETE FROM usernames WHERE chat_id = ? OR username = ?", (chat_id, username)
        )
        if username is not None:
            self._tx.execute(
                "INSERT INTO usernames VALUES (?, ?, ?)", (username, chat_id, self._now)
            )
