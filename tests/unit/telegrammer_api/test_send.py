"""``POST /send``: which chat, and what the caller hears of Telegram's answer."""

import json

import pytest

from support.builders import NOW
from support.wsgi import Api, error_of
from telegrammer.errors import RateLimited, Rejected, TimedOut
from telegrammer.model import Message, Update
from telegrammer.store.inbox import Inbox

BODY = {"chat_id": 7, "text": "Hello"}


def meet(api: Api, username: str, chat_id: int) -> None:
    """Let a private chat show its username."""
    message = Message(chat_id, "{}", is_private=True, username=username)
    with api.pool.borrow() as database:
        inbox = Inbox(database)
        inbox.bind(1)
        inbox.ingest([Update(chat_id, message)], 100, NOW)


def test_the_envelope_comes_back_in_its_own_bytes(api: Api) -> None:
    """Spacing, order, escapes and number spelling included."""
    envelope = b'{ "ok":true, "result" : {"b":1e3,"a":"\\u00e9 \xc3\xa9"} }\n'
    api.telegram.answer = envelope
    result = api.call("POST", "/send", BODY)

    assert result.status_code == 200
    assert result.content == envelope
    assert result.headers["content-type"] == "application/json"
    assert result.headers["cache-control"] == "no-store"
    assert api.telegram.sent == [(7, "Hello")]


def test_a_username_means_the_chat_that_showed_it(api: Api) -> None:
    meet(api, "some_user", 123)
    result = api.call("POST", "/send", {"username": "@Some_User", "text": "Hello"})

    assert result.status_code == 200
    assert api.telegram.sent == [(123, "Hello")]


def test_an_unknown_username_is_404_and_nothing_is_sent(api: Api) -> None:
    result = api.call("POST", "/send", {"username": "nobody", "text": "Hello"})

    assert result.status_code == 404
    assert error_of(result)["code"] == "USERNAME_NOT_FOUND"
    assert api.telegram.sent == []


def test_a_failed_send_is_not_tried_again(api: Api) -> None:
    api.telegram.answer = TimedOut("timeout")
    result = api.call("POST", "/send", BODY)

    assert result.status_code == 504
    assert error_of(result)["code"] == "UPSTREAM_TIMEOUT"
    assert len(api.telegram.sent) == 1


def test_a_refusal_is_told_in_telegrams_words(api: Api) -> None:
    api.telegram.answer = Rejected(400, "Bad Request: group chat was upgraded", -100123)
    result = api.call("POST", "/send", BODY)

    assert result.status_code == 422
    assert json.loads(result.content)["error"] == {
        "code": "TELEGRAM_REJECTED",
        "message": "Bad Request: group chat was upgraded",
        "migrate_to_chat_id": -100123,
    }


@pytest.mark.parametrize("retry_after", [None, 30])
def test_a_rate_limit_says_how_long(api: Api, retry_after: int | None) -> None:
    api.telegram.answer = RateLimited("Too Many Requests", retry_after)
    result = api.call("POST", "/send", BODY)

    assert result.status_code == 429
    assert error_of(result)["code"] == "TELEGRAM_RATE_LIMITED"
    assert result.headers.get("retry-after") == (None if retry_after is None else "30")


def test_a_refused_body_sends_nothing(api: Api) -> None:
    result = api.call("POST", "/send", {"chat_id": 7.0, "text": "Hello"})

    assert result.status_code == 400
    assert error_of(result)["field"] == "chat_id"
    assert api.telegram.sent == []
