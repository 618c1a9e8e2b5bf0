"""Subscriptions: the same one twice, the limits, and nobody else's."""

import pytest

from support.builders import NOW
from support.wsgi import Api, error_of
from telegrammer.store.keys import Keys
from telegrammer.store.subscriptions import Limits, Subscriptions

HOOK = "http://127.0.0.1:8000/hook"


def subscribe(api: Api, url: str = HOOK, chat_id: int = 7, key: str = "") -> int:
    authorization = f"Bearer {key}" if key else ""
    body = {"chat_id": chat_id, "callback_url": url}
    result = api.call("POST", "/subscribe", body, authorization=authorization)

    assert result.status_code == 200, result.text
    assert result.json.keys() == {"ok", "subscription_id"}
    assert result.json["ok"] is True
    subscription_id: int = result.json["subscription_id"]
    return subscription_id


def listed(api: Api, key: str = "") -> list[dict[str, object]]:
    authorization = f"Bearer {key}" if key else ""
    result = api.call("GET", "/subscriptions", authorization=authorization)

    assert result.status_code == 200
    assert result.json.keys() == {"ok", "subscriptions"}
    subscriptions: list[dict[str, object]] = result.json["subscriptions"]
    return subscriptions


def test_an_equal_subscription_is_the_same_one(api: Api) -> None:
    """Equal after its URL became canonical; the listing shows that form."""
    first = subscribe(api, "http://h/?A=%2f")

    assert subscribe(api, "HTTP://H:80?A=%2f") == first
    assert listed(api) == [{"id": first, "chat_id": 7, "callback_url": "http://h/?A=%2f"}]


def test_another_chat_url_or_key_is_another_one(api: Api) -> None:
    ids = {
        subscribe(api),
        subscribe(api, chat_id=8),
        subscribe(api, HOOK + "/"),
        subscribe(api, key=api.add_key("other")),
    }

    assert len(ids) == 4


def test_everyone_sees_their_own_in_order_of_id(api: Api) -> None:
    other = api.add_key("other")
    own = [subscribe(api, chat_id=9), subscribe(api, chat_id=8)]
    foreign = subscribe(api, key=other)

    assert [each["id"] for each in listed(api)] == own == sorted(own)
    assert [each["id"] for each in listed(api, other)] == [foreign]


def test_both_limits_are_409_and_an_equal_one_needs_no_room(api: Api) -> None:
    """Three for each key and five in all, here."""
    other = api.add_key("other")
    first, *_ = (subscribe(api, chat_id=chat_id) for chat_id in (1, 2, 3))
    of_key = api.call("POST", "/subscribe", {"chat_id": 4, "callback_url": HOOK})
    for chat_id in (1, 2):
        subscribe(api, chat_id=chat_id, key=other)
    body = {"chat_id": 3, "callback_url": HOOK}
    of_all = api.call("POST", "/subscribe", body, authorization=f"Bearer {other}")

    for refused in (of_key, of_all):
        assert refused.status_code == 409
        assert error_of(refused)["code"] == "SUBSCRIPTION_LIMIT"
    assert subscribe(api, chat_id=1) == first
    assert len(listed(api)) == 3
    assert len(listed(api, other)) == 2


def test_deleting_is_204_once(api: Api) -> None:
    subscription_id = subscribe(api)
    result = api.call("DELETE", f"/subscriptions/{subscription_id}")
    again = api.call("DELETE", f"/subscriptions/{subscription_id}")

    assert result.status_code == 204
    assert result.content == b""
    assert result.headers["cache-control"] == "no-store"
    assert "content-type" not in result.headers
    assert again.status_code == 404
    assert error_of(again)["code"] == "SUBSCRIPTION_NOT_FOUND"
    assert listed(api) == []


def test_a_foreign_subscription_is_not_there(api: Api) -> None:
    foreign = subscribe(api, key=api.add_key("other"))
    result = api.call("DELETE", f"/subscriptions/{foreign}")

    assert result.status_code == 404
    assert error_of(result)["code"] == "SUBSCRIPTION_NOT_FOUND"


@pytest.mark.parametrize(
    "subscription_id",
    ["0", "01", "-1", "+1", "1.0", "1e3", "abc", "1;", "9223372036854775808", "9" * 19, "9" * 99],
)
def test_a_malformed_id_is_not_there_either(api: Api, subscription_id: str) -> None:
    result = api.call("DELETE", f"/subscriptions/{subscription_id}")
    unknown = api.call("DELETE", f"/subscriptions/{subscription_id}", authorization=None)

    assert (result.status_code, error_of(result)["code"]) == (404, "SUBSCRIPTION_NOT_FOUND")
    assert unknown.status_code == 401


def test_a_key_that_goes_between_check_and_insert_is_401(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves no subscription behind."""
    register = Subscriptions.register

    def register_after_deletion(
        self: Subscriptions, owner: int, chat: int, url: str, limits: Limits, now: int
    ) -> int | None:
        with api.pool.borrow() as database:
            Keys(database).delete("tests")
        return register(self, owner, chat, url, limits, now)

    monkeypatch.setattr(Subscriptions, "register", register_after_deletion)
    result = api.call("POST", "/subscribe", {"chat_id": 7, "callback_url": HOOK})

    assert (result.status_code, error_of(result)["code"]) == (401, "UNAUTHORIZED")
    with api.pool.borrow() as database, database.read() as tx:
        assert tx.execute("SELECT count(*) FROM subscriptions").fetchone() == (0,)


def test_a_deleted_key_is_401_at_once(api: Api) -> None:
    subscribe(api)
    with api.pool.borrow() as database:
        Keys(database).delete("tests")

    assert api.call("GET", "/subscriptions").status_code == 401


def test_the_time_of_registration_is_kept(api: Api) -> None:
    subscribe(api)

    with api.pool.borrow() as database, database.read() as tx:
        assert tx.execute("SELECT created_at FROM subscriptions").fetchone() == (NOW,)
