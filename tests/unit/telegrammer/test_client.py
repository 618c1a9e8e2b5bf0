"""What the Bot API's answers mean to us."""

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from requests.structures import CaseInsensitiveDict

from telegrammer.errors import (
    PollingRefused,
    RateLimited,
    Rejected,
    TelegramError,
    TimedOut,
    UpstreamFailed,
)
from telegrammer.http import Door, Limits, Response
from telegrammer.model import Update
from telegrammer.settings import Secret
from telegrammer.telegram.client import BotApi

SAMPLES = Path(__file__).parents[2] / "samples"
TOKEN = "123456789:AAF-secret_token_of_a_bot_0123456789"


class FakeDoor(Door):
    """A door behind which stands one response."""

    def __init__(self, answer: Response) -> None:
        self._answer = answer
        self.dropped = False
        self.asked: list[tuple[str, str, Limits, object, Mapping[str, str] | None]] = []

    def exchange(
        self,
        method: str,
        url: str,
        limits: Limits,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        assert body is not None
        self.asked.append((method, url, limits, json.loads(body), headers))
        return self._answer

    def drop(self) -> None:
        self.dropped = True


def response(status: int, body: bytes | str, headers: Mapping[str, str] | None = None) -> Response:
    raw = body if isinstance(body, bytes) else body.encode()
    return Response(status, CaseInsensitiveDict(headers or {}), raw)


def ok(name: str) -> Response:
    return response(200, (SAMPLES / "ok" / name).read_bytes())


def bot(answer: Response) -> BotApi:
    return BotApi(FakeDoor(answer), "https://api.test", Secret(TOKEN))


@pytest.mark.parametrize(
    ("answer", "drops"),
    [
        (response(200, '{"ok":true,"result":{}}'), False),
        (response(400, '{"ok":false,"error_code":400,"description":"x"}'), False),
        (response(200, '{"ok":true,"result":true}'), True),
        (response(200, '{"ok":true}'), True),
        (response(200, "<html></html>"), True),
        (response(502, ""), True),
    ],
)
def test_the_connection_is_kept_only_while_the_bot_api_answers_on_it(
    answer: Response, drops: bool
) -> None:
    """What else it was may be the answer to another request: no later one comes that way."""
    door = FakeDoor(answer)
    with contextlib.suppress(TelegramError):
        BotApi(door, "https://api.test", Secret(TOKEN)).send_message(7, "Hello", 5, 20)

    assert door.dropped is drops


def get_me(api: BotApi) -> object:
    return api.get_me(5)


def get_webhook_url(api: BotApi) -> object:
    return api.get_webhook_url()


def get_updates(api: BotApi) -> object:
    return api.get_updates(None, 100, 30)


def send_message(api: BotApi) -> object:
    return api.send_message(7, "Hello", 5, 20)


Call = Callable[[BotApi], object]
POLLING = [get_me, get_webhook_url, get_updates]
ALL = [*POLLING, send_message]


def refusal(call: Call, answer: Response) -> TelegramError:
    with pytest.raises(TelegramError) as caught:
        call(bot(answer))
    assert TOKEN not in repr(caught.value) + str(caught.value.args)
    return caught.value


# Requests


@pytest.mark.parametrize(
    ("call", "answer", "method", "limits", "parameters"),
    [
        (get_me, "getMe.json", "getMe", (5, 5), {}),
        (get_webhook_url, "getWebhookInfo_polling.json", "getWebhookInfo", (5, 10), {}),
        (
            lambda api: api.send_message(-7, "Häß", 3, 20),
            "sendMessage_private.json",
            "sendMessage",
            (3, 20),
            {"chat_id": -7, "text": "Häß"},
        ),
    ],
)
def test_a_method_is_asked_with_its_parameters_as_json(
    call: Call,
    answer: str,
    method: str,
    limits: tuple[float, float],
    parameters: dict[str, object],
) -> None:
    door = FakeDoor(ok(answer))
    call(BotApi(door, "http://127.0.0.1:8081", Secret(TOKEN)))

    assert door.asked == [
        (
            "POST",
            f"http://127.0.0.1:8081/bot{TOKEN}/{method}",
            Limits(connect=limits[0], total=limits[1], size=1024 * 1024),
            parameters,
            {"Content-Type": "application/json"},
        )
    ]


@pytest.mark.parametrize(("offset", "sent"), [(None, {}), (0, {"offset": 0}), (8, {"offset": 8})])
def test_updates_are_asked_for_with_ten_seconds_beyond_the_wait(
    offset: int | None, sent: dict[str, int]
) -> None:
    door = FakeDoor(response(200, '{"ok":true,"result":[]}'))
    assert BotApi(door, "https://api.test", Secret(TOKEN)).get_updates(offset, 25, 30) == []

    [(_, url, limits, parameters, _)] = door.asked
    assert url == f"https://api.test/bot{TOKEN}/getUpdates"
    assert limits == Limits(connect=5, total=40, size=16 * 1024 * 1024)
    assert parameters == {"limit": 25, "timeout": 30, "allowed_updates": ["message"], **sent}


# Successes


@pytest.mark.parametrize(
    "sample", sorted((SAMPLES / "ok").glob("sendMessage_*")), ids=lambda path: path.stem
)
def test_a_sent_messages_envelope_comes_back_in_its_own_bytes(sample: Path) -> None:
    assert send_message(bot(ok(sample.name))) == sample.read_bytes()


def test_white_space_and_lone_surrogates_of_a_success_stay() -> None:
    body = b'\n{ "result":{"text":"\\ud800","n":1.0} , "ok":true, "x":[] } '
    assert send_message(bot(response(200, body))) == body


def test_the_bots_id_is_read() -> None:
    assert bot(ok("getMe.json")).get_me(5) == 6000000001


def test_a_standing_webhook_is_read() -> None:
    assert bot(ok("getWebhookInfo_polling.json")).get_webhook_url() == ""
    standing = response(200, '{"ok":true,"result":{"url":"https://h.test/x"}}')
    assert bot(standing).get_webhook_url() == "https://h.test/x"


def test_updates_are_read() -> None:
    sample = (SAMPLES / "updates" / "u42_unknown_future_update_type.json").read_bytes()
    found = bot(response(200, sample)).get_updates(None, 100, 30)
    assert [update.update_id for update in found] == [700000061, 700000062, 700000063]
    assert found[1] == Update(700000062)


@pytest.mark.parametrize("call", ALL)
@pytest.mark.parametrize(
    "body",
    [
        "",
        "<html>ok</html>",
        "{}",
        '{"ok":true}',
        '{"ok":true,"result":null}',
        '{"ok":true,"result":true}',
        '{"ok":true,"result":"x"}',
        '{"ok":true,"result":[{]}',
        '{"ok":true,"result":{"id":"1","url":1,"x":NaN}}',
        '{"ok":1,"result":{"id":1,"url":""}}',
        '{"ok":"true","result":{"id":1,"url":""}}',
        '\ufeff{"ok":true,"result":{"id":1,"url":""}}',
    ],
)
def test_a_200_that_is_no_success_is_a_failure(call: Call, body: str) -> None:
    error = refusal(call, response(200, body))
    assert (type(error), error.code) == (UpstreamFailed, 200)


@pytest.mark.parametrize(
    "member",
    [
        '"id":true,"url":null',
        '"id":1.0,"url":7',
        '"id":-1,"url":[]',
        '"id":9223372036854775808,"url":{}',
        '"x":1',
    ],
)
@pytest.mark.parametrize("call", [get_me, get_webhook_url])
def test_an_object_without_what_was_asked_for_is_a_failure(call: Call, member: str) -> None:
    assert type(refusal(call, response(200, f'{{"ok":true,"result":{{{member}}}}}'))) is (
        UpstreamFailed
    )


@pytest.mark.parametrize("call", ALL)
@pytest.mark.parametrize("status", [199, 302, 400, 403, 500])
def test_a_success_needs_a_2xx(call: Call, status: int) -> None:
    body = '{"ok":true,"result":{"id":1,"url":""}}'
    error = refusal(call, response(status, body))
    assert (type(error), error.code) == (UpstreamFailed, status)


# Refusals


def expected(method: str, code: int, readable: bool) -> type[TelegramError]:
    if code == 429:
        return RateLimited
    if method == "getUpdates" and code in (401, 404, 409):
        return PollingRefused
    if method != "getUpdates" and readable and code in (400, 403):
        return Rejected
    return UpstreamFailed


@pytest.mark.parametrize(
    "sample", sorted((SAMPLES / "errors").glob("*.json")), ids=lambda path: path.stem
)
@pytest.mark.parametrize("call", [get_updates, send_message])
def test_every_sample_of_an_error_is_understood(call: Call, sample: Path) -> None:
    """Also when the envelope stands under a 200, which some servers do."""
    case = json.loads(sample.read_text())
    readable = case["body"].startswith("{") and case["http_status"] != 200
    method = "getUpdates" if call is get_updates else "sendMessage"
    kind = expected(method, case["http_status"], readable)

    for status in {case["http_status"], 200} if readable else {case["http_status"]}:
        error = refusal(call, response(status, case["body"], case["headers"]))

        assert (type(error), error.code) == (kind, case["http_status"])
        if readable:
            assert error.description == json.loads(case["body"])["description"]
        if isinstance(error, RateLimited):
            assert error.retry_after == int(case["headers"]["Retry-After"])
        if isinstance(error, Rejected):
            parameters = json.loads(case["body"]).get("parameters", {})
            assert error.migrate_to_chat_id == parameters.get("migrate_to_chat_id")


@pytest.mark.parametrize("status", [400, 403])
@pytest.mark.parametrize("body", ["", "<html></html>", "{}", '{"ok":false', "[]", '{"error":1}'])
def test_a_bare_400_or_403_says_nothing_about_the_message(status: int, body: str) -> None:
    error = refusal(send_message, response(status, body))
    assert (type(error), error.code) == (UpstreamFailed, status)


@pytest.mark.parametrize("call", POLLING)
@pytest.mark.parametrize("status", [401, 404, 409])
def test_polling_is_refused_with_or_without_an_envelope(call: Call, status: int) -> None:
    for body in ("", f'{{"ok":false,"error_code":{status},"description":"x"}}'):
        error = refusal(call, response(status, body))
        assert (type(error), error.code) == (PollingRefused, status)


@pytest.mark.parametrize("status", [401, 404, 409])
def test_a_send_with_a_refused_token_is_a_failure_upstream(status: int) -> None:
    body = f'{{"ok":false,"error_code":{status},"description":"x"}}'
    assert type(refusal(send_message, response(status, body))) is UpstreamFailed


def test_an_envelope_without_a_code_has_its_statuss() -> None:
    error = refusal(send_message, response(403, '{"ok":false,"description":"Forbidden"}'))
    assert (type(error), error.code, error.description) == (Rejected, 403, "Forbidden")


@pytest.mark.parametrize("call", ALL)
@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
@pytest.mark.parametrize(
    "spelling",
    [
        "123:aB_-",
        "123%3AaB_-",
        "123%3aaB_-",
        "%31%32%33%3A%61%42%5F%2D",
        "%31%32%33%3a%61%42%5f%2d",
        "123%253AaB_-",
    ],
)
def test_a_description_never_holds_the_token(call: Call, status: int, spelling: str) -> None:
    """However short it is: what only looks like a token is the log's to find."""
    text = json.dumps(f"no /bot{spelling}/x, /BOT{spelling}")
    answer = response(status, f'{{"ok":false,"error_code":{status},"description":{text}}}')
    with pytest.raises(TelegramError) as caught:
        call(BotApi(FakeDoor(answer), "https://api.test", Secret("123:aB_-")))

    assert caught.value.description == "no /bot[redacted]/x, /BOT[redacted]"


def test_no_part_of_the_token_stands_at_the_end_of_a_description_that_is_cut() -> None:
    text = "x" * 480 + TOKEN
    error = refusal(send_message, response(400, f'{{"ok":false,"description":"{text}"}}'))

    assert error.description == "x" * 480 + "[redacted]"


@pytest.mark.parametrize("code", ["true", "400.0", '"400"', "null", "0", "1" + "0" * 30])
def test_an_insane_code_counts_as_none(code: str) -> None:
    error = refusal(send_message, response(500, f'{{"ok":false,"error_code":{code}}}'))
    assert (type(error), error.code) == (UpstreamFailed, 500)


@pytest.mark.parametrize(
    ("parameters", "header", "seconds"),
    [
        ("{}", "7", 7),
        ('{"retry_after":5}', "7", 5),
        ('{"retry_after":0}', "7", 7),
        ('{"retry_after":9999999}', "", None),
        ("{}", "", None),
        ("{}", "0", None),
        ("{}", "-5", None),
        ("{}", "1.5", None),
        ("{}", "\N{ARABIC-INDIC DIGIT SEVEN}", None),
        ("{}", "604801", None),
        ("{}", "Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("{}", "9" * 5000, None),
    ],
)
def test_the_time_to_wait_is_the_envelopes_or_the_headers(
    parameters: str, header: str, seconds: int | None
) -> None:
    """Never the description's, whose wording changes."""
    body = (
        f'{{"ok":false,"error_code":429,"description":"retry after 3","parameters":{parameters}}}'
    )
    error = refusal(send_message, response(429, body, {"retry-after": header}))

    assert isinstance(error, RateLimited)
    assert error.retry_after == seconds


def test_a_bare_429_is_a_rate_limit_too() -> None:
    error = refusal(get_updates, response(429, "<html>", {"Retry-After": "9"}))
    assert isinstance(error, RateLimited)
    assert error.retry_after == 9


def test_what_happens_at_the_door_comes_through() -> None:
    class ShutDoor(FakeDoor):
        def exchange(self, *_: object, **__: object) -> Response:
            raise TimedOut("timeout")

    api = BotApi(ShutDoor(response(200, "")), "https://api.test", Secret(TOKEN))
    for call in ALL:
        with pytest.raises(TimedOut):
            call(api)
