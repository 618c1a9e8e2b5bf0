"""What a caller is told of each failure."""

import json

import falcon
import pytest

from telegrammer.errors import (
    BrokenResponse,
    Cut,
    PollingRefused,
    RateLimited,
    Rejected,
    StorageUnavailable,
    SubscriptionLimit,
    TimedOut,
    Unreachable,
    UpstreamFailed,
)
from telegrammer_api.errors import ApiError, Code, translated
from telegrammer_api.front import BodyError, BodyTimedOut


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StorageUnavailable("disk_full"), 503, "STORAGE_UNAVAILABLE"),
        (SubscriptionLimit(), 409, "SUBSCRIPTION_LIMIT"),
        (Unreachable("dns_failed"), 502, "UPSTREAM_UNAVAILABLE"),
        (Cut("cut"), 502, "UPSTREAM_UNAVAILABLE"),
        (BrokenResponse("too_large"), 502, "UPSTREAM_ERROR"),
        (TimedOut("timeout"), 504, "UPSTREAM_TIMEOUT"),
        (Rejected(400, "Bad Request: chat not found", None), 422, "TELEGRAM_REJECTED"),
        (RateLimited("Too Many Requests", 7), 429, "TELEGRAM_RATE_LIMITED"),
        (PollingRefused(401, "Unauthorized"), 502, "UPSTREAM_ERROR"),
        (UpstreamFailed(500, "Internal"), 502, "UPSTREAM_ERROR"),
        (BodyTimedOut(), 408, "REQUEST_TIMEOUT"),
        (BodyError(), 400, "INVALID_REQUEST"),
        (falcon.HTTPRouteNotFound(), 404, "NOT_FOUND"),
        (falcon.HTTPInvalidHeader("secret", "X"), 500, "INTERNAL_ERROR"),
        (RuntimeError("secret"), 500, "INTERNAL_ERROR"),
    ],
)
def test_each_failure_has_its_status_and_code(error: Exception, status: int, code: str) -> None:
    answer = translated(error)

    body = json.loads(answer.body())
    assert answer.code.status == status
    assert body["ok"] is False
    assert body["error"]["code"] == code
    assert body["error"]["message"]
    assert "secret" not in body["error"]["message"]


def test_telegrams_description_is_the_message() -> None:
    for error in (Rejected(403, "Forbidden: bot was blocked", None), RateLimited("Wait", None)):
        assert json.loads(translated(error).body())["error"]["message"] == error.description


def test_a_refusal_without_description_still_has_a_message() -> None:
    error = json.loads(translated(Rejected(400, "", None)).body())["error"]

    assert error["message"] == Code.TELEGRAM_REJECTED.message


def test_the_new_id_of_a_migrated_group_stands_inside_the_error() -> None:
    answer = translated(Rejected(400, "Bad Request: group chat was upgraded", -1001234))

    assert json.loads(answer.body())["error"]["migrate_to_chat_id"] == -1001234


def test_retry_after_is_sent_when_it_came() -> None:
    assert translated(RateLimited("", 7)).headers == {"Retry-After": "7"}
    assert translated(RateLimited("", None)).headers == {}


def test_every_401_names_the_scheme() -> None:
    assert ApiError(Code.UNAUTHORIZED).headers == {"WWW-Authenticate": "Bearer"}


def test_a_token_in_telegrams_words_goes_no_further() -> None:
    token = "123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11"
    for error in (Rejected(400, f"Bad {token}", None), RateLimited(f"Wait {token}", None)):
        assert token.encode() not in translated(error).body()


def test_no_two_codes_are_one() -> None:
    """Equal values would make one member an alias of the other, with the other's name."""
    assert len(Code.__members__) == len(list(Code))
