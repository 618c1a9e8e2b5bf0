"""Subscriptions through the real API: committed before the answer, each once, the
owner's alone."""

import contextlib
import sqlite3
import threading
from collections.abc import Iterator

import pytest

from support.builders import message
from support.raw_http import Response
from support.running_api import RunningApi, outcome

CHAT = -42
HOOK = "http://127.0.0.1:8000/hook"
WRONG_URLS = ["", "/hook", "ftp://h/", "http://", "http://h:0/", "http://h:65536/", 7, None]
WRONG_URLS += ["http://u:p@h/", "http://h/#f", "http://h/a b", "http://h/\u00e9"]
WRONG_URLS += ["http://h/" + "a" * 2040]


def subscribe(
    api: RunningApi, url: object = HOOK, chat_id: object = CHAT, key: str | None = None
) -> Response:
    return api.call("POST", "/subscribe", {"chat_id": chat_id, "callback_url": url}, key=key)


def subscription_id(response: Response) -> int:
    assert response.status == 200, response.body
    body = response.json()
    assert body == {"ok": True, "subscription_id": body["subscription_id"]}
    return int(body["subscription_id"])


def own(api: RunningApi, key: str | None = None) -> list[dict[str, object]]:
    response = api.call("GET", "/subscriptions", key=key)
    assert response.status == 200
    found: list[dict[str, object]] = response.json()["subscriptions"]
    assert response.json() == {"ok": True, "subscriptions": found}
    return found


def test_the_life_of_a_subscription(api: RunningApi) -> None:
    """Made, made again, listed in canonical form, deleted, gone."""
    first = subscription_id(subscribe(api, "HTTP://LocalHost:80?q=%2f"))
    again = subscription_id(subscribe(api, "http://localhost/?q=%2f"))
    other = subscription_id(subscribe(api, "http://localhost/?q=%2F"))

    assert again == first
    assert own(api) == [
        {"id": first, "chat_id": CHAT, "callback_url": "http://localhost/?q=%2f"},
        {"id": other, "chat_id": CHAT, "callback_url": "http://localhost/?q=%2F"},
    ]
    deleted = api.call("DELETE", f"/subscriptions/{first}")
    assert (deleted.status, deleted.body) == (204, b"")
    assert "content-length" not in deleted.headers
    assert outcome(api.call("DELETE", f"/subscriptions/{first}")) == (404, "SUBSCRIPTION_NOT_FOUND")
    assert [each["id"] for each in own(api)] == [other]


def test_it_is_committed_before_the_answer(api: RunningApi) -> None:
    """The next message finds it: one job, and none for what came before."""
    api.gateway.ingest(message(101, CHAT))
    made = subscription_id(subscribe(api))
    api.gateway.ingest(message(102, CHAT))

    assert [job[1] for job in api.gateway.jobs() if job[0] == made] == [102]


def test_deleting_takes_its_jobs_along(api: RunningApi) -> None:
    made = subscription_id(subscribe(api, chat_id=-43))
    api.gateway.ingest(message(103, -43))
    api.call("DELETE", f"/subscriptions/{made}")

    assert [job for job in api.gateway.jobs() if job[0] == made] == []


def test_eight_at_once_are_one(api: RunningApi) -> None:
    """Each over a connection of its own, let go together."""
    together = threading.Barrier(8)
    found: list[int] = []

    def register() -> None:
        together.wait(10)
        found.append(subscription_id(subscribe(api, HOOK + "/eight")))

    threads = [threading.Thread(target=register) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 8
    assert len(set(found)) == 1
    assert [each["id"] for each in own(api)] == found[:1]


def test_nobody_elses(api: RunningApi) -> None:
    """An equal one of another key is another one; it can be neither seen nor deleted."""
    other = api.new_key(f"other than {api.key[:8]}")
    mine, theirs = subscription_id(subscribe(api)), subscription_id(subscribe(api, key=other))
    refused = api.call("DELETE", f"/subscriptions/{theirs}")

    assert mine != theirs
    assert outcome(refused) == (404, "SUBSCRIPTION_NOT_FOUND")
    assert [each["id"] for each in own(api)] == [mine]
    assert [each["id"] for each in own(api, other)] == [theirs]


@pytest.mark.parametrize("wrong", ["0", "01", "abc", "1x", "-1", "9" * 19, "9" * 500])
def test_a_malformed_id_is_404_with_a_key_only(api: RunningApi, wrong: str) -> None:
    found = api.call("DELETE", f"/subscriptions/{wrong}")

    assert outcome(found) == (404, "SUBSCRIPTION_NOT_FOUND")
    unknown = api.call("DELETE", f"/subscriptions/{wrong}", key="x")
    assert outcome(unknown) == (401, "UNAUTHORIZED")


@pytest.mark.parametrize("url", WRONG_URLS)
def test_a_wrong_url_is_400_and_changes_nothing(api: RunningApi, url: object) -> None:
    response = subscribe(api, url)

    assert outcome(response) == (400, "INVALID_REQUEST")
    assert response.json()["error"]["field"] == "callback_url"
    assert own(api) == []


def test_a_url_is_kept_to_the_byte(api: RunningApi) -> None:
    url = 'http://h/%7Ea//../b;c?b=2&a=1&b=%zz&"<>{}|\\^`[]'
    subscribe(api, url)

    assert own(api)[0]["callback_url"] == url


def test_the_limit_of_a_key_is_exact(api: RunningApi) -> None:
    """A hundred; an equal one needs no room; room comes back when one goes."""
    made = [subscription_id(subscribe(api, chat_id=chat)) for chat in range(1, 101)]

    assert outcome(subscribe(api, chat_id=101)) == (409, "SUBSCRIPTION_LIMIT")
    assert subscription_id(subscribe(api, chat_id=1)) == made[0]
    assert len(own(api)) == 100
    api.call("DELETE", f"/subscriptions/{made[0]}")
    assert subscribe(api, chat_id=101).status == 200


def test_a_deleted_key_is_401_on_the_next_request(api: RunningApi) -> None:
    """On an open connection too; its subscriptions are gone."""
    name = f"revoked, not {api.key[:8]}"
    key = api.new_key(name)
    made = subscription_id(subscribe(api, key=key))
    api.gateway.keys.delete(name)

    assert outcome(api.call("GET", "/subscriptions", key=key)) == (401, "UNAUTHORIZED")
    with api.gateway.database.read() as tx:
        found = tx.execute("SELECT count(*) FROM subscriptions WHERE id = ?", (made,)).fetchone()
    assert found == (0,)


@contextlib.contextmanager
def write_locked(api: RunningApi) -> Iterator[None]:
    connection = sqlite3.connect(api.gateway.path, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()


def test_a_database_locked_for_too_long_is_503(api: RunningApi) -> None:
    """Longer than the busy timeout of 5 s. Reading goes on meanwhile."""
    with write_locked(api):
        refused = subscribe(api)

        assert outcome(refused) == (503, "STORAGE_UNAVAILABLE")
        assert own(api) == []
    event = api.process.wait_event("request_failed", request_id=refused.headers["x-request-id"])
    assert event["reason"] == "locked"
    assert subscribe(api).status == 200


def test_a_database_that_cannot_tell_is_no_401(api: RunningApi) -> None:
    elsewhere = api.gateway.path.with_name("elsewhere")
    api.gateway.path.rename(elsewhere)
    try:
        response = api.call("GET", "/subscriptions")
    finally:
        elsewhere.rename(api.gateway.path)

    assert outcome(response) == (503, "AUTH_UNAVAILABLE")
    assert own(api) == []
