"""``POST /send`` through the real API to a Telegram that answers as a test says."""

import json
import threading
import time
from urllib.parse import urlsplit

import psutil
import pytest

from support.builders import NOW, private
from support.front import until
from support.raw_http import Response, request
from support.running_api import RunningApi, outcome

CHAT = 7
NEW_CHAT = -1001234567890
TEXT = 'Grüße \N{GRINNING FACE} "quoted" \\ \u2028 <b>&amp;</b>\n\x00'


def send(api: RunningApi, text: str = "Hello", **to: object) -> Response:
    return api.call("POST", "/send", {**(to or {"chat_id": CHAT}), "text": text})


def test_a_message_arrives_and_its_envelope_comes_back(api: RunningApi) -> None:
    api.sandbox.say(CHAT, "hi")
    response = send(api, TEXT)

    assert response.status == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json()["ok"] is True
    assert response.json()["result"] == api.sandbox.wait_sent(1)[0]


def test_the_text_reaches_the_bot_api_unchanged(api: RunningApi) -> None:
    """What is cut or refused of it is Telegram's to say; no parse mode is added."""
    api.sandbox.say(CHAT, "hi")
    send(api, TEXT)

    # The sandbox notes every parameter as text.
    assert api.sandbox.calls("sendMessage")[0]["parameters"] == {"chat_id": "7", "text": TEXT}


def test_the_envelope_comes_back_in_its_own_bytes(api: RunningApi) -> None:
    envelope = '{ "result":{"b":1e3,"a":"\\u00e9\\ud800","a":2}, "new":[1,2.50] ,"ok":true }\r\n'
    api.sandbox.fault("sendMessage", body=envelope)

    response = send(api)

    assert response.status == 200
    assert response.body == envelope.encode()


def test_the_longest_text_is_sent(api: RunningApi) -> None:
    """4096 code points, each of them four bytes on the wire."""
    api.sandbox.say(CHAT, "hi")

    assert send(api, "\N{GRINNING FACE}" * 4096).status in (200, 422)
    assert len(api.sandbox.calls("sendMessage")) == 1
    assert outcome(send(api, "\N{GRINNING FACE}" * 4097)) == (400, "INVALID_REQUEST")
    assert len(api.sandbox.calls("sendMessage")) == 1


def envelope_of(code: int, description: str = "Refused", **members: object) -> str:
    refusal = {"ok": False, "error_code": code, "description": description, **members}
    return json.dumps(refusal)


REFUSALS = [
    (400, envelope_of(400), (422, "TELEGRAM_REJECTED")),
    (403, envelope_of(403), (422, "TELEGRAM_REJECTED")),
    (200, envelope_of(400), (422, "TELEGRAM_REJECTED")),
    (200, envelope_of(403), (422, "TELEGRAM_REJECTED")),
    (429, envelope_of(429), (429, "TELEGRAM_RATE_LIMITED")),
    (200, envelope_of(429), (429, "TELEGRAM_RATE_LIMITED")),
    (401, envelope_of(401), (502, "UPSTREAM_ERROR")),
    (404, envelope_of(404), (502, "UPSTREAM_ERROR")),
    (409, envelope_of(409), (502, "UPSTREAM_ERROR")),
    (413, envelope_of(413), (502, "UPSTREAM_ERROR")),
    (418, envelope_of(418), (502, "UPSTREAM_ERROR")),
    (500, envelope_of(500), (502, "UPSTREAM_ERROR")),
    (502, envelope_of(502), (502, "UPSTREAM_ERROR")),
    (200, envelope_of(401), (502, "UPSTREAM_ERROR")),
    (200, '{"ok":false}', (502, "UPSTREAM_ERROR")),
]
UNUSABLE = [
    (400, ""),
    (403, "<html>Forbidden</html>"),
    (500, '{"ok":true,"result":{}}'),
    (302, '{"ok":true,"result":{}}'),
    (200, ""),
    (200, "<html>fine</html>"),
    (200, "null"),
    (200, "[]"),
    (200, '{"ok":true}'),
    (200, '{"ok":true,"result":true}'),
    (200, '{"ok":true,"result":[]}'),
    (200, '{"ok":true,"result":null}'),
    (200, '{"ok":"true","result":{}}'),
    (200, '{"ok":1,"result":{}}'),
    (200, '{"result":{}}'),
    (200, '{"ok":true,"result":{}'),
    (200, '{"ok":true,"result":{}} x'),
    (200, "[" * 100_000),
]


@pytest.mark.parametrize(("status", "body", "expected"), REFUSALS)
def test_each_answer_of_telegram_has_its_own(
    api: RunningApi, status: int, body: str, expected: tuple[int, str]
) -> None:
    """And none is asked for twice."""
    api.sandbox.fault("sendMessage", status=status, body=body)

    assert outcome(send(api)) == expected
    assert len(api.sandbox.calls("sendMessage")) == 1


@pytest.mark.parametrize(("status", "body"), UNUSABLE)
def test_no_usable_envelope_is_502(api: RunningApi, status: int, body: str) -> None:
    """Only a 2xx with ``ok`` true and an object as result is a success."""
    api.sandbox.fault("sendMessage", status=status, body=body)

    assert outcome(send(api)) == (502, "UPSTREAM_ERROR")
    assert len(api.sandbox.calls("sendMessage")) == 1


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ("e02_403_blocked.json", (422, "TELEGRAM_REJECTED")),
        ("e08_400_text_too_long.json", (422, "TELEGRAM_REJECTED")),
        ("e04_429_retry_after_huge.json", (429, "TELEGRAM_RATE_LIMITED")),
        ("e28_401_invalid_token_specified.json", (502, "UPSTREAM_ERROR")),
        ("e36_500_nginx_html.json", (502, "UPSTREAM_ERROR")),
        ("e44_413_empty_body.json", (502, "UPSTREAM_ERROR")),
    ],
)
def test_answers_that_telegram_really_gives(
    api: RunningApi, sample: str, expected: tuple[int, str]
) -> None:
    api.sandbox.fault_sample("sendMessage", sample)

    assert outcome(send(api)) == expected


def test_a_refusal_is_told_in_telegrams_words(api: RunningApi) -> None:
    body = envelope_of(400, "Bad Request: upgraded", parameters={"migrate_to_chat_id": NEW_CHAT})
    api.sandbox.fault("sendMessage", status=400, body=body)

    assert send(api).json()["error"] == {
        "code": "TELEGRAM_REJECTED",
        "message": "Bad Request: upgraded",
        "migrate_to_chat_id": NEW_CHAT,
    }


def test_a_migrated_group_answers_with_its_new_id(api: RunningApi) -> None:
    api.sandbox.add_chat(-5, "group", "Friends")
    new_chat = api.sandbox.migrate(-5)
    response = send(api, chat_id=-5)

    assert outcome(response) == (422, "TELEGRAM_REJECTED")
    assert response.json()["error"]["migrate_to_chat_id"] == new_chat
    assert send(api, chat_id=new_chat).status == 200


@pytest.mark.parametrize(
    ("parameters", "headers", "retry_after"),
    [
        ({"retry_after": 35}, {}, "35"),
        ({}, {"Retry-After": "12"}, "12"),
        ({}, {}, None),
        ({"retry_after": 0}, {}, None),
        ({"retry_after": -1}, {}, None),
        ({"retry_after": "35"}, {}, None),
        ({"retry_after": 1.5}, {}, None),
        ({"retry_after": 10**30}, {}, None),
    ],
)
def test_retry_after_is_sent_when_a_sane_one_came(
    api: RunningApi,
    parameters: dict[str, object],
    headers: dict[str, str],
    retry_after: str | None,
) -> None:
    """Never out of the description's words."""
    body = envelope_of(429, "Too Many Requests: retry after 99", parameters=parameters)
    api.sandbox.fault("sendMessage", status=429, body=body, headers=headers)
    response = send(api)

    assert outcome(response) == (429, "TELEGRAM_RATE_LIMITED")
    assert response.headers.get("retry-after") == retry_after


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"close": True}, (502, "UPSTREAM_UNAVAILABLE")),
        ({"cut": 5}, (502, "UPSTREAM_ERROR")),
        ({"hold": True}, (504, "UPSTREAM_TIMEOUT")),
        ({"drip": 0.2}, (504, "UPSTREAM_TIMEOUT")),
    ],
)
def test_a_spoiled_delivery_is_told_in_time_and_not_tried_again(
    api: RunningApi, fault: dict[str, object], expected: tuple[int, str]
) -> None:
    """The total time is 1 s here; Telegram may have taken the message all the same."""
    api.sandbox.say(CHAT, "hi")
    api.sandbox.fault("sendMessage", **fault)  # type: ignore[arg-type]
    began = time.monotonic()
    response = send(api)

    assert outcome(response) == expected
    assert "may have taken the message" in response.json()["error"]["message"]
    assert time.monotonic() - began < 4
    assert len(api.sandbox.calls("sendMessage")) == 1
    api.sandbox.release()


def test_a_send_after_a_failure_has_a_connection_again(api: RunningApi) -> None:
    api.sandbox.say(CHAT, "hi")
    api.sandbox.fault("sendMessage", close=True)
    send(api)

    assert [send(api).status for _ in range(3)] == [200, 200, 200]


def test_a_connection_that_telegram_dropped_while_idle_costs_nothing(api: RunningApi) -> None:
    """One that it drops while the next request leaves does cost it: nobody can know."""
    port = urlsplit(api.sandbox.url).port

    def dropped() -> set[object]:
        """Return the API's ends of connections that the sandbox has closed."""
        ends = [end for end in psutil.net_connections("tcp4") if end.status == "CLOSE_WAIT"]
        return {end.laddr for end in ends if end.raddr[1:] == (port,)}

    api.sandbox.say(CHAT, "hi")
    for _ in range(4):
        api.sandbox.fault("sendMessage", drop=True)
        before = dropped()

        assert send(api).status == 200
        assert until(lambda before=before: bool(dropped() - before))  # type: ignore[misc]


def test_a_token_in_telegrams_words_is_not_passed_on(api: RunningApi) -> None:
    for body in (envelope_of(400, f"Bad {api.sandbox.token}"), api.sandbox.token):
        api.sandbox.fault("sendMessage", status=400, body=body)

        assert api.sandbox.token.encode() not in send(api).body


def test_sends_do_not_wait_for_each_other(api: RunningApi) -> None:
    """Four at once, each over a connection of its own."""
    api.sandbox.say(CHAT, "hi")
    api.sandbox.fault("sendMessage", hold=True, times=4)
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(send(api).status)) for _ in range(4)]
    for thread in threads:
        thread.start()
    held = api.sandbox.wait_held("sendMessage", 4)
    api.sandbox.release()
    for thread in threads:
        thread.join()

    assert len(held) == 4
    assert found == [200] * 4


def test_a_username_is_whoever_showed_it_last(api: RunningApi) -> None:
    """Without regard to case; unknown again once it was taken away."""
    api.sandbox.say(CHAT, "hi")
    api.sandbox.say(8, "hi")
    gateway = api.gateway
    gateway.ingest(private(1, CHAT, "some_user"), now=NOW)
    first = send(api, username="@Some_USER")
    gateway.ingest(private(2, 8, "some_user"), now=NOW)
    second = send(api, username="some_user")
    gateway.ingest(private(3, 8, None), now=NOW)
    third = send(api, username="some_user")

    assert [first.json()["result"]["chat"]["id"], second.json()["result"]["chat"]["id"]] == [7, 8]
    assert outcome(third) == (404, "USERNAME_NOT_FOUND")


def test_nothing_of_a_send_is_logged(api: RunningApi) -> None:
    """Not its text, not the username, whatever Telegram answers; the reason is."""
    text = api.secrets.text()
    name = api.secrets.text("username").replace("-", "_")
    send(api, text)
    send(api, text, username=name)
    api.sandbox.fault("sendMessage", status=500, body=text)
    failed = send(api, text)

    event = api.process.wait_event("request_failed", request_id=failed.headers["x-request-id"])
    assert (event["code"], event["level"]) == ("UPSTREAM_ERROR", "warning")
    assert text not in api.process.output
    assert name not in api.process.output


def test_a_refused_request_reaches_nobody(api: RunningApi) -> None:
    raw = b'{"chat_id":7,"text":"a","text":"b"}'

    response = api.raw(request("/send", "POST", *api.headers(), body=raw))

    assert outcome(response) == (400, "INVALID_REQUEST")
    assert response.json()["error"]["field"] == "text"
    assert api.sandbox.calls() == []
