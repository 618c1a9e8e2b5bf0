"""Rows and counts -> healthy, degraded, unavailable."""

from dataclasses import replace

import pytest

from telegrammer.health import Health, Status, examine
from telegrammer.model import State
from telegrammer.store.components import Component
from telegrammer.store.queue import Counts

NOW = 1_790_000_000


def running(name: str) -> Component:
    return Component(name, 42, State.RUNNING, None, NOW - 1000, NOW, last_success_at=NOW)


ROWS = {name: running(name) for name in ("api", "poller", "dispatcher")}


def look(**changes: Component | None) -> Health:
    rows = {name: row for name, row in (ROWS | changes).items() if row is not None}
    return examine(rows, Counts(3, 2, 1), 100, NOW)


def poller(**changes: object) -> Component:
    return replace(ROWS["poller"], **changes)  # type: ignore[arg-type]


def test_three_running_processes_are_healthy_in_the_shape_of_the_contract() -> None:
    health = look()

    assert health.ok
    assert health.status == "healthy"
    assert health.components == {
        "api": {"state": "running"},
        "poller": {"state": "running", "last_success_at": NOW, "consecutive_failures": 0},
        "dispatcher": {"state": "running"},
    }
    assert health.queue == {"pending": 3, "in_flight": 2, "dead": 1, "limit": 100}


@pytest.mark.parametrize("name", ["poller", "dispatcher"])
def test_without_poller_or_dispatcher_it_is_unavailable(name: str) -> None:
    health = look(**{name: None})

    assert health.status is Status.UNAVAILABLE
    assert not health.ok
    assert health.components[name]["state"] == "absent"
    assert health.components[name]["reason"] == "not_running"


def test_an_api_that_is_not_seen_degrades_only() -> None:
    """Whoever asks over HTTP has proof of an API; whoever asks by command can still send."""
    assert look(api=None).status is Status.DEGRADED


@pytest.mark.parametrize("name", ["poller", "dispatcher"])
@pytest.mark.parametrize(("age", "state"), [(0, "running"), (15, "running"), (16, "stale")])
def test_a_row_older_than_three_beats_is_stale(name: str, age: int, state: str) -> None:
    health = look(**{name: replace(ROWS[name], heartbeat=NOW - age)})

    assert health.components[name]["state"] == state
    assert health.ok is (state == "running")


def test_a_beat_from_the_future_is_stale_too() -> None:
    """The clock was set back: nothing tells when that beat was."""
    stale = look(dispatcher=replace(ROWS["dispatcher"], heartbeat=NOW + 16))

    assert stale.components["dispatcher"] == {"state": "stale", "reason": "heartbeat_lost"}


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (State.STARTING, Status.DEGRADED),
        (State.BACKING_OFF, Status.DEGRADED),
        (State.CAPACITY, Status.UNAVAILABLE),
        (State.STOPPED, Status.UNAVAILABLE),
    ],
)
def test_a_poller_that_retries_degrades_and_one_that_cannot_go_on_does_not_count(
    state: State, status: Status
) -> None:
    health = look(poller=poller(state=state, reason="conflict"))

    assert health.status is status
    assert health.components["poller"]["reason"] == "conflict"


def test_a_state_without_a_reason_names_itself() -> None:
    assert look(poller=poller(state=State.CAPACITY)).components["poller"]["reason"] == "capacity"


@pytest.mark.parametrize(("failures", "ok"), [(4, True), (5, False)])
def test_five_failures_in_a_row_are_persistent(failures: int, ok: bool) -> None:
    row = poller(state=State.BACKING_OFF, consecutive_failures=failures)

    assert look(poller=row).ok is ok


@pytest.mark.parametrize(("age", "ok"), [(300, True), (301, False)])
def test_five_minutes_without_a_successful_poll_are_persistent(age: int, ok: bool) -> None:
    assert look(poller=poller(last_success_at=NOW - age)).ok is ok


@pytest.mark.parametrize(("age", "ok"), [(300, True), (301, False)])
def test_before_the_first_success_the_five_minutes_count_from_the_start(age: int, ok: bool) -> None:
    row = poller(state=State.STARTING, last_success_at=None, since=NOW - age)

    assert look(poller=row).ok is ok


def test_a_malformed_update_is_named() -> None:
    row = poller(state=State.BACKING_OFF, reason="malformed_update", update_id=7)

    assert look(poller=row).components["poller"]["update_id"] == 7


@pytest.mark.parametrize("state", [s for s in State if s is not State.RUNNING])
def test_a_dispatcher_or_api_that_does_not_run_is_never_healthy(state: State) -> None:
    for name in ("api", "dispatcher"):
        assert look(**{name: replace(ROWS[name], state=state)}).status is not Status.HEALTHY
