"""The dispatcher's side: claim, outcome, dead letters, purge.

A subscription is served in order of its jobs' ids, which is the order of ingestion,
and has at most one job in flight.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from telegrammer.store.connection import Database
from telegrammer.store.subscriptions import remove_retired

# Dead jobs that one transaction purges: others wait for the write lock meanwhile.
PURGE_CHUNK: Final = 2000


# A named tuple, like all that is made anew for each delivery: a frozen dataclass takes
# several times as long to make.
class Job(NamedTuple):
    """A live job. ``attempt_count`` counts the attempts already begun."""

    id: int
    subscription_id: int
    update_id: int
    payload: str
    attempt_count: int
    next_attempt_at: int
    created_at: int
    callback_url: str


class Queued(NamedTuple):
    """A live job, and whose it is."""

    id: int
    subscription_id: int


class Marks(NamedTuple):
    """How far the queue has come.

    ``newest`` is the highest id in the table. Ids ascend with the commits and are never given
    out twice: jobs that came since are those above it, but for the dead that were revived. It
    goes back when the newest jobs go, which hides none.
    """

    newest: int
    revivals: int


@dataclass(frozen=True, slots=True)
class Counts:
    """How many jobs there are in each state."""

    pending: int
    in_flight: int
    dead: int


@dataclass(frozen=True, slots=True)
class DeadJob:
    """What a listing shows of a dead letter: no payload, no URL.

    ``key`` is the name of the key that the subscription belongs to: whose receiver it is.
    """

    id: int
    key: str
    subscription_id: int
    chat_id: int
    update_id: int
    attempts: int
    created_at: int
    died_at: int
    reason: str


class Turn:
    """Outcomes and claims that are committed together."""

    def __init__(self, tx: sqlite3.Connection) -> None:
        self._tx = tx

    def delivered(self, job_id: int) -> bool:
        """Forget the job; False when it went with its subscription meanwhile."""
        return self._changed("DELETE FROM deliveries WHERE id = ?", (job_id,))

    def retry(self, job_id: int, at: int, error: str) -> bool:
        return self._changed(
            "UPDATE deliveries SET state = 'PENDING', next_attempt_at = ?, last_error = ?"
            " WHERE id = ?",
            (at, error, job_id),
        )

    def dead(self, job_id: int, now: int, error: str) -> bool:
        """Make the job a dead letter; its age as one counts from ``next_attempt_at``."""
        return self._changed(
            "UPDATE deliveries SET state = 'DEAD', next_attempt_at = ?, last_error = ?"
            " WHERE id = ?",
            (now, error, job_id),
        )

    def job(self, job_id: int) -> Job | None:
        """Return a live job; None when there is none of that id."""
        row = self._tx.execute(
            "SELECT d.id, d.subscription_id, d.update_id, d.payload, d.attempt_count,"
            " d.next_attempt_at, d.created_at, s.callback_url"
            " FROM deliveries d JOIN subscriptions s ON s.id = d.subscription_id"
            " WHERE d.id = ? AND d.state <> 'DEAD'",
            (job_id,),
        ).fetchone()
        return Job._make(row) if row else None

    def claim(self, job_id: int) -> None:
        # Due at once should a crash bring it back, whatever the clock shows by then.
        self._tx.execute(
            "UPDATE deliveries SET state = 'IN_FLIGHT', attempt_count = attempt_count + 1,"
            " next_attempt_at = 0 WHERE id = ?",
            (job_id,),
        )

    def _changed(self, statement: str, values: tuple[int | str, ...]) -> bool:
        return self._tx.execute(statement, values).rowcount == 1


class Look:
    """Which jobs there are. The connection serves nothing else until the last is read."""

    def __init__(self, tx: sqlite3.Connection) -> None:
        self._tx = tx

    def marks(self) -> Marks:
        """Return what tells whether there are jobs that were not seen yet."""
        row = self._tx.execute(
            "SELECT coalesce((SELECT max(id) FROM deliveries), 0), count FROM revivals"
        ).fetchone()
        return Marks(*row)

    def new(self, after: int) -> Iterator[Queued]:
        """Yield the jobs with higher ids, which no dispatcher has seen: they are live."""
        rows = self._tx.execute("SELECT id, subscription_id FROM deliveries WHERE id > ?", (after,))
        return map(Queued._make, rows)

    def live(self) -> Iterator[Queued]:
        """Yield all live jobs, in any order."""
        # By the indexes alone: a row's state stands behind its payload, on further pages if
        # that is long. A hundred thousand long messages would take seconds.
        rows = self._tx.execute(
            "SELECT id, subscription_id FROM deliveries"
            " WHERE id NOT IN (SELECT id FROM deliveries WHERE state = 'DEAD')"
        )
        return map(Queued._make, rows)


class Queue:
    """The jobs of all subscriptions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextlib.contextmanager
    def turn(self) -> Iterator[Turn]:
        """Yield a ``Turn``, committed at the end. Nothing of it counts before."""
        with self._database.write() as tx:
            yield Turn(tx)
            remove_retired(tx)

    def recover(self) -> int:
        """Put back what was in flight when the last dispatcher ended; return how many."""
        with self._database.write() as tx:
            return tx.execute(
                "UPDATE deliveries SET state = 'PENDING' WHERE state = 'IN_FLIGHT'"
            ).rowcount

    @contextlib.contextmanager
    def look(self) -> Iterator[Look]:
        """Yield a ``Look``, all of it at one state of the queue."""
        with self._database.read() as tx:
            yield Look(tx)

    def clock_seen_at(self) -> int | None:
        """Return what the wall clock showed when a dispatcher last noted it."""
        with self._database.read() as tx:
            row: tuple[int] | None = tx.execute("SELECT seen_at FROM clock").fetchone()
        return row[0] if row else None

    def see_clock(self, now: int, moved: int = 0) -> None:
        """Note the wall clock, and by how many seconds it was set, back or forward, just now.

        Retries are due earlier by what it was set back. No job, live or dead, gets older by
        what it was set forward: its time would be up unused. None is left in the future.
        """
        with self._database.write() as tx:
            tx.execute("INSERT OR REPLACE INTO clock VALUES (1, ?)", (now,))
            if moved < 0:
                tx.execute(
                    "UPDATE deliveries SET next_attempt_at = next_attempt_at + ?"
                    " WHERE state = 'PENDING' AND attempt_count > 0",
                    (moved,),
                )
            if moved:
                later = {"by": max(0, moved), "now": now}
                tx.execute(
                    "UPDATE deliveries SET created_at = min(created_at + :by, :now)"
                    " WHERE state <> 'DEAD' AND (:by > 0 OR created_at > :now)",
                    later,
                )
                tx.execute(
                    "UPDATE deliveries SET next_attempt_at = min(next_attempt_at + :by, :now)"
                    " WHERE state = 'DEAD' AND (:by > 0 OR next_attempt_at > :now)",
                    later,
                )

    def bot_id(self) -> int | None:
        """Return the bot that the database is bound to."""
        with self._database.read() as tx:
            row: tuple[int] | None = tx.execute("SELECT bot_id FROM poll_state").fetchone()
        return row[0] if row else None

    def counts(self) -> Counts:
        with self._database.read() as tx:
            total, in_flight, dead = tx.execute(
                "SELECT (SELECT jobs FROM queue_size),"
                " (SELECT count(*) FROM deliveries WHERE state = 'IN_FLIGHT'),"
                " (SELECT count(*) FROM deliveries WHERE state = 'DEAD')"
            ).fetchone()
        return Counts(total - in_flight - dead, in_flight, dead)

    def purge(self, died_before: int) -> int:
        """Delete some of the jobs that died before then; return how many.

        There may be more when it returns ``PURGE_CHUNK``.
        """
        with self._database.write() as tx:
            purged = tx.execute(
                "DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries"
                " WHERE state = 'DEAD' AND next_attempt_at < ? LIMIT ?)",
                (died_before, PURGE_CHUNK),
            ).rowcount
            remove_retired(tx)
            return purged

    def dead_jobs(self) -> list[DeadJob]:
        """Return the dead letters, the oldest first."""
        with self._database.read() as tx:
            rows = tx.execute(
                "SELECT d.id, k.name, s.id, s.chat_id, d.update_id, d.attempt_count, d.created_at,"
                " d.next_attempt_at, coalesce(d.last_error, 'unknown') FROM deliveries d"
                " JOIN subscriptions s ON s.id = d.subscription_id"
                " JOIN api_keys k ON k.id = s.owner_id"
                " WHERE d.state = 'DEAD' ORDER BY d.id"
            ).fetchall()
        return [DeadJob(*row) for row in rows]

    def revive(self, job_id: int, now: int) -> bool:
        """Give a dead letter its whole budget again; False when there is no such one."""
        with self._database.write() as tx:
            revived = tx.execute(
                "UPDATE deliveries SET state = 'PENDING', attempt_count = 0,"
                " next_attempt_at = ?, created_at = ?, last_error = NULL"
                " WHERE id = ? AND state = 'DEAD'",
                (now, now, job_id),
            ).rowcount
            tx.execute("UPDATE revivals SET count = count + ?", (revived,))
            return revived == 1

    def delete_dead(self, job_id: int) -> bool:
        """Delete a dead letter for good; False when there is no such one."""
        with self._database.write() as tx:
            deleted = tx.execute(
                "DELETE FROM deliveries WHERE id = ? AND state = 'DEAD'", (job_id,)
            )
            remove_retired(tx)
            return deleted.rowcount == 1
