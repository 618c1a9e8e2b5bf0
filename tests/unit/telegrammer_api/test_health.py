"""``GET /health``: the members that the contract names, and 503 when unavailable."""

import pytest

from support.builders import NOW
from support.wsgi import MAX_JOBS, Api
from telegrammer.model import Message, State, Update
from telegrammer.store.components import Component, Components
from telegrammer.store.inbox import Inbox
from telegrammer.store.subscriptions import Limits, Subscriptions


def say(api: Api, name: str, state: State, reason: str | None = None) -> None:
    """Write what a process says about itself."""
    success = NOW if name == "poller" else None
    row = Component(name, 1, state, reason, NOW, NOW, last_success_at=success)
    with api.pool.borrow() as database:
        Components(database).write(row)


def test_healthy_when_all_three_run(api: Api) -> None:
    """The process that answers counts as running, without a row of its own."""
    say(api, "poller", State.RUNNING)
    say(api, "dispatcher", State.RUNNING)
    result = api.call("GET", "/health")

    assert result.status_code == 200
    assert result.json == {
        "ok": True,
        "status": "healthy",
        "components": {
            "api": {"state": "running"},
            "poller": {
                "state": "running",
                "last_success_at": NOW,
                "consecutive_failures": 0,
            },
            "dispatcher": {"state": "running"},
        },
        "queue": {"pending": 0, "in_flight": 0, "dead": 0, "limit": MAX_JOBS},
    }


def test_unavailable_is_503_with_the_same_members(api: Api) -> None:
    result = api.call("GET", "/health")

    assert result.status_code == 503
    assert result.json["ok"] is False
    assert result.json["status"] == "unavailable"
    assert result.json["components"]["poller"] == {
        "state": "absent",
        "reason": "not_running",
        "last_success_at": None,
        "consecutive_failures": 0,
    }
    assert result.json["queue"]["limit"] == MAX_JOBS


@pytest.mark.parametrize(
    ("state", "status", "word"),
    [
        (State.STARTING, 200, "degraded"),
        (State.BACKING_OFF, 200, "degraded"),
        (State.CAPACITY, 503, "unavailable"),
        (State.STOPPED, 503, "unavailable"),
    ],
)
def test_the_pollers_state_decides(api: Api, state: State, status: int, word: str) -> None:
    say(api, "poller", state, "why")
    say(api, "dispatcher", State.RUNNING)
    result = api.call("GET", "/health")

    assert (result.status_code, result.json["status"]) == (status, word)
    assert result.json["components"]["poller"]["reason"] == "why"


def test_a_process_that_fell_silent_is_stale(api: Api) -> None:
    say(api, "poller", State.RUNNING)
    say(api, "dispatcher", State.RUNNING)
    api.clock.pass_time(60)
    result = api.call("GET", "/health")

    assert result.status_code == 503
    assert result.json["components"]["dispatcher"]["state"] == "stale"
    assert result.json["components"]["api"] == {"state": "running"}


def test_the_queue_is_counted_and_never_shown(api: Api) -> None:
    with api.pool.borrow() as database:
        limits = Limits(10, 10)
        Subscriptions(database).register(1, 7, "http://h/secret-path", limits, NOW)
        inbox = Inbox(database)
        inbox.bind(1)
        inbox.ingest([Update(1, Message(7, '{"text":"secret-text"}'))], MAX_JOBS, NOW)
    result = api.call("GET", "/health")

    assert result.json["queue"]["pending"] == 1
    assert "secret" not in result.text
