"""Rows and counts -> healthy, degraded or unavailable. The one place of these rules."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from telegrammer.heartbeat import PERIOD
from telegrammer.model import State
from telegrammer.store.components import Component
from telegrammer.store.queue import Counts

STALE_AFTER: Final = 3 * PERIOD
FAILURES_LIMIT: Final = 5  # in a row
SUCCESS_LIMIT: Final = 300  # seconds without a successful poll

Member = dict[str, str | int | None]


class Status(StrEnum):
    """What the gateway as a whole can do."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Health:
    """The body of ``GET /health``, apart from ``ok``."""

    status: Status
    components: dict[str, Member]
    queue: dict[str, int]

    @property
    def ok(self) -> bool:
        return self.status is not Status.UNAVAILABLE


def examine(rows: Mapping[str, Component], counts: Counts, limit: int, now: float) -> Health:
    """Return the gateway's health at ``now``, Unix seconds. ``limit`` is the job limit."""
    states = {name: _state(rows.get(name), now) for name in ("api", "poller", "dispatcher")}
    return Health(
        status=_status(states, rows.get("poller"), now),
        components={name: _member(name, state, rows.get(name)) for name, state in states.items()},
        queue={
            "pending": counts.pending,
            "in_flight": counts.in_flight,
            "dead": counts.dead,
            "limit": limit,
        },
    )


def _state(row: Component | None, now: float) -> State:
    if row is None:
        return State.ABSENT
    return State.STALE if is_stale(row, now) else row.state


def is_stale(row: Component, now: float) -> bool:
    """Tell whether the process has fallen silent."""
    # A beat from the future is none either: the clock went back since it was written.
    return abs(now - row.heartbeat) > STALE_AFTER


def _status(states: Mapping[str, State], poller: Component | None, now: float) -> Status:
    gone = (State.ABSENT, State.STALE)
    if states["dispatcher"] in gone or states["poller"] in (*gone, State.STOPPED, State.CAPACITY):
        return Status.UNAVAILABLE
    if poller is not None and _is_persistent(poller, now):
        return Status.UNAVAILABLE
    if all(state is State.RUNNING for state in states.values()):
        return Status.HEALTHY
    return Status.DEGRADED


def _is_persistent(poller: Component, now: float) -> bool:
    last_success = poller.since if poller.last_success_at is None else poller.last_success_at
    return poller.consecutive_failures >= FAILURES_LIMIT or now - last_success > SUCCESS_LIMIT


def _member(name: str, state: State, row: Component | None) -> Member:
    member: Member = {"state": state.value}
    if name == "poller":
        member["last_success_at"] = row.last_success_at if row else None
        member["consecutive_failures"] = row.consecutive_failures if row else 0
    if state is not State.RUNNING:
        member["reason"] = _reason(state, row)
    if row is not None and row.update_id is not None:
        member["update_id"] = row.update_id
    return member


def _reason(state: State, row: Component | None) -> str:
    if state is State.ABSENT:
        return "not_running"
    if state is State.STALE:
        return "heartbeat_lost"
    return (row.reason if row else None) or state.value
