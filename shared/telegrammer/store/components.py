"""What each process says about itself, in its own row."""

from dataclasses import dataclass

from telegrammer.model import State
from telegrammer.store.connection import Database


@dataclass(frozen=True, slots=True)
class Component:
    """A process's row. ``update_id`` names the malformed update that blocks the poller."""

    name: str
    pid: int
    state: State
    reason: str | None
    since: int
    heartbeat: int
    consecutive_failures: int = 0
    last_success_at: int | None = None
    update_id: int | None = None


class Components:
    """The rows of the processes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, row: Component) -> None:
        with self._database.write() as tx:
            tx.execute(
                "INSERT OR REPLACE INTO components (name, pid, state, reason, since, heartbeat,"
                " consecutive_failures, last_success_at, update_id)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    row.name,
                    row.pid,
                    row.state.value,
                    row.reason,
                    row.since,
                    row.heartbeat,
                    row.consecutive_failures,
                    row.last_success_at,
                    row.update_id,
                ),
            )

    def all(self) -> dict[str, Component]:
        with self._database.read() as tx:
            rows = tx.execute(
                "SELECT name, pid, state, reason, since, heartbeat, consecutive_failures,"
                " last_success_at, update_id FROM components"
            ).fetchall()
        return {row[0]: Component(row[0], row[1], State(row[2]), *row[3:]) for row in rows}

    def remove(self, name: str, pid: int) -> None:
        """Remove the row, unless another process has taken it over."""
        with self._database.write() as tx:
            tx.execute("DELETE FROM components WHERE name = ? AND pid = ?", (name, pid))
