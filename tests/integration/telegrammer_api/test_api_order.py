"""The contract's order of refusals, as bytes on the wire."""

import json
import time

import pytest

from support.raw_http import Response, request
from support.running_api import RunningApi, outcome

CHAT = 7
SEND = json.dumps({"chat_id": CHAT, "text": "Hello"}).encode()
ROUTES = [
    ("POST", "/send"),
    ("POST", "/subscribe"),
    ("GET", "/subscriptions"),
    ("DELETE", "/subscriptions/1"),
    ("GET", "/health"),
]
METHODS = ["HEAD", "OPTIONS", "PUT", "PATCH", "TRACE", "CONNECT", "get", "post", "Post", "X"]
METHODS += ["FOO", "WEBSOCKET", "M-SEARCH", "A" * 100]
UNKNOWN = ["/", "/x", "/send/", "//send", "/%73end", "/send%2f", "/./send", "/send#a", "/send?#a"]
UNKNOWN += ["http://gateway/send", "/subscriptions/", "/subscriptions/1/", "/subscriptions//1"]
UNKNOWN += ["/subscriptions/1%00", "/subscriptions%2f1", "/SEND", "/send;a", "/health/x"]
WRONG_BODIES = [b"", b"null", b"[]", b"{", b"\xef\xbb\xbf{}", b"\xff", b"[" * 60000]
WRONG_BODIES += [b'{"chat_id":1,"chat_id":1,"text":"x"}', b'{"chat_id":1,"text":"\\ud800"}']
WRONG_BODIES += [b'{"chat_id":NaN,"text":"x"}', b'{"chat_id":' + b"9" * 60000 + b',"text":"x"}']
WRONG_BODIES += [b'{"chat_id":1.0,"text":"x"}', b'{"chat_id":1,"text":"x","parse_mode":"HTML"}']
WRONG_BODIES += [b'{"chat_id":1,"username":"a","text":"x"}', b'{"chat_id":1}', b'{"text":"x"}']
BAD_KEY = "Authorization: Bearer " + "0" * 64


@pytest.mark.parametrize("target", UNKNOWN)
@pytest.mark.parametrize("method", ["POST", "OPTIONS", "FOO", "get"])
def test_404_needs_no_key(api: RunningApi, method: str, target: str) -> None:
    """Every other spelling of a path is unknown, whatever the method."""
    assert outcome(api.raw(request(target, method))) == (404, "NOT_FOUND")


def test_options_of_the_server_itself_is_404(api: RunningApi) -> None:
    assert outcome(api.raw(request("*", "OPTIONS"))) == (404, "NOT_FOUND")


@pytest.mark.parametrize(("offered", "path"), ROUTES)
@pytest.mark.parametrize("method", METHODS)
def test_405_needs_no_key(api: RunningApi, offered: str, path: str, method: str) -> None:
    response = api.raw(request(path, method, "Expect: 100-continue", body=b""))

    assert response.status == 405
    assert response.headers["allow"] == offered
    if method != "HEAD":
        assert response.code == "METHOD_NOT_ALLOWED"


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_401_comes_before_a_byte_of_the_body(api: RunningApi, method: str, path: str) -> None:
    """It neither waits for the body nor asks for it with ``100 Continue``."""
    for credential in ((), (BAD_KEY,), (f"Authorization: Basic {api.key}",)):
        head = request(path, method, *credential, "Content-Length: 99999", "Expect: 100-continue")
        response = api.raw(head)

        assert outcome(response) == (401, "UNAUTHORIZED")
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.headers["connection"] == "close"


def test_two_authorization_headers_are_401(api: RunningApi) -> None:
    good = f"Authorization: Bearer {api.key}"
    for pair in ((good, good), (good, BAD_KEY), (BAD_KEY, good), (good, "authorization:")):
        response = api.raw(request("/subscriptions", "GET", *pair))

        assert outcome(response) == (401, "UNAUTHORIZED")


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "bEARER  "])
def test_the_scheme_is_taken_in_any_case(api: RunningApi, scheme: str) -> None:
    head = request("/subscriptions", "GET", f"Authorization: {scheme} {api.key}")

    assert api.raw(head).status == 200


@pytest.mark.parametrize(
    "framing", ["Content-Length: 65537", "Content-Length: 99999999999999999999999999"]
)
def test_a_declared_413_comes_before_a_byte_of_the_body(api: RunningApi, framing: str) -> None:
    headers = [*api.headers(), framing, "Expect: 100-continue"]

    response = api.raw(request("/send", "POST", *headers))

    assert outcome(response) == (413, "PAYLOAD_TOO_LARGE")
    assert response.headers["connection"] == "close"


def chunked(body: bytes, size: int = 8000) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def send_chunked(api: RunningApi, body: bytes, size: int = 8000) -> Response:
    lines = [*api.headers(), "Transfer-Encoding: chunked"]
    return api.raw(request("/send", "POST", *lines) + chunked(body, size))


def test_413_is_exact_declared_and_chunked(api: RunningApi) -> None:
    api.sandbox.say(CHAT, "hi")
    longest = SEND.ljust(65536)

    for response in (
        api.raw(request("/send", "POST", *api.headers(), body=longest)),
        send_chunked(api, longest),
        send_chunked(api, longest, size=2),
    ):
        assert response.status == 200
    for response in (
        api.raw(request("/send", "POST", *api.headers(), body=longest + b" ")),
        send_chunked(api, longest + b" "),
    ):
        assert outcome(response) == (413, "PAYLOAD_TOO_LARGE")


def test_an_endless_chunked_body_is_413_without_the_rest(api: RunningApi) -> None:
    head = request("/send", "POST", *api.headers(), "Transfer-Encoding: chunked")

    response = api.raw(head + b"fffffff\r\n" + b" " * 70000)

    assert outcome(response) == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize(
    "chunk", [b"1;" + b"a" * 4000 + b"\r\n \r\n", b"1\r\n \r\n"], ids=["extensions", "tiny"]
)
def test_chunks_that_are_mostly_overhead_are_413(api: RunningApi, chunk: bytes) -> None:
    """Although the body itself is small enough: a key holder could send any amount."""
    chunks = chunk * (300_000 // len(chunk)) + chunked(SEND)
    head = request("/send", "POST", *api.headers(), "Transfer-Encoding: chunked")

    response = api.raw(head + chunks)

    assert outcome(response) == (413, "PAYLOAD_TOO_LARGE")
    assert response.headers["connection"] == "close"
    assert api.sandbox.calls("sendMessage") == []


def test_413_comes_before_415_and_415_before_400(api: RunningApi) -> None:
    key = f"Authorization: Bearer {api.key}"
    large = api.raw(request("/send", "POST", key, "Content-Type: text/plain", body=b" " * 65537))
    plain = api.raw(request("/send", "POST", key, "Content-Type: text/plain", body=b"{"))
    none = api.raw(request("/send", "POST", key, body=SEND))
    broken = api.raw(request("/send", "POST", *api.headers(), body=b"{"))

    assert outcome(large) == (413, "PAYLOAD_TOO_LARGE")
    assert outcome(plain) == outcome(none) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert outcome(broken) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize("body", WRONG_BODIES, ids=lambda body: repr(body[:30]))
def test_a_wrong_body_is_400_and_nothing_is_sent(api: RunningApi, body: bytes) -> None:
    response = api.raw(request("/send", "POST", *api.headers(), body=body))

    assert outcome(response) == (400, "INVALID_REQUEST")
    assert api.sandbox.calls("sendMessage") == []


def test_100_continue_is_sent_when_the_body_is_wanted(api: RunningApi) -> None:
    api.sandbox.say(CHAT, "hi")
    headers = [*api.headers(), f"Content-Length: {len(SEND)}", "Expect: 100-continue"]
    with api.client() as client:
        interim = client.exchange(request("/send", "POST", *headers))
        final = client.exchange(SEND)

    assert (interim.status, final.status) == (100, 200)


def test_a_body_that_drips_is_408(api: RunningApi) -> None:
    """At the request timeout, 1 s here, however steadily it drips."""
    head = request("/send", "POST", *api.headers(), f"Content-Length: {len(SEND)}")
    with api.client() as client:
        client.send(head)
        client.drip(SEND[:20], 0.1)
        response = api.checked(client.read_response())

        assert outcome(response) == (408, "REQUEST_TIMEOUT")
        assert client.age < 4
    assert api.sandbox.calls("sendMessage") == []


@pytest.mark.parametrize("framing", ["Content-Length: 999", "Transfer-Encoding: chunked"])
def test_a_body_that_ends_short_is_400(api: RunningApi, framing: str) -> None:
    """Even when what came would be a complete request."""
    sent = SEND if framing.startswith("Content") else chunked(SEND).removesuffix(b"0\r\n\r\n")
    with api.client() as client:
        client.send(request("/send", "POST", *api.headers(), framing) + sent)
        client.half_close()

        assert outcome(api.checked(client.read_response())) == (400, "INVALID_REQUEST")
    assert api.sandbox.calls("sendMessage") == []


def test_malformed_chunks_are_400(api: RunningApi) -> None:
    head = request("/send", "POST", *api.headers(), "Transfer-Encoding: chunked")

    assert outcome(api.raw(head + b"xyz\r\n{}\r\n0\r\n\r\n")) == (400, "INVALID_REQUEST")


def test_a_body_where_none_belongs_is_not_taken_for_a_request(api: RunningApi) -> None:
    """It is not read; the connection closes over it."""
    hidden = request("/subscriptions", "DELETE", *api.headers())
    with api.client() as client:
        client.send(request("/subscriptions", "GET", *api.headers(), body=hidden))
        response = client.read_response()

        assert response.status == 200
        assert response.headers["connection"] == "close"
        assert client.read_to_end() == b""


def test_requests_follow_each_other_on_one_connection(api: RunningApi) -> None:
    """Bodies that were read, pipelined or not, and a refusal without a body in between."""
    api.sandbox.say(CHAT, "hi")
    send = request("/send", "POST", *api.headers(), body=SEND)
    with api.client() as client:
        client.send(send + request("/nothing") + send)
        statuses = [client.read_response().status for _ in range(3)]

        assert statuses == [200, 404, 200]
        assert client.exchange(send).status == 200


def test_headers_that_proxies_set_change_nothing(api: RunningApi) -> None:
    """No path prefix, no other method, no key from elsewhere."""
    believed = ["SCRIPT_NAME: /send", "X-Forwarded-Prefix: /x", "X-HTTP-Method-Override: GET"]
    believed += [f"X-Authorization: Bearer {api.key}", "X-Request-Id: mine"]

    assert outcome(api.raw(request("/send/health", "GET", *believed))) == (404, "NOT_FOUND")
    assert outcome(api.raw(request("/health", "POST", *believed))) == (405, "METHOD_NOT_ALLOWED")
    assert outcome(api.raw(request("/health", "GET", *believed))) == (401, "UNAUTHORIZED")


def test_a_query_is_accepted_and_never_logged(api: RunningApi) -> None:
    query = api.secrets.text("query")

    assert api.raw(request(f"/subscriptions?{query}", "GET", *api.headers())).status == 200
    assert api.raw(request(f"/nothing?{query}")).status == 404
    api.secrets.check()


@pytest.mark.parametrize(
    "data",
    [
        request("/health", "GET", "X-Request-Id: mine"),
        request("/nothing", "GET", "X-Request-Id: mine"),
        request("/send", "GET", "X-Request-Id: mine"),
        b"nonsense\r\n\r\n",
        request("/" + "a" * 5000),
        request("/", "GET", "X: " + "a" * 9000),
    ],
    ids=["401", "404", "405", "400", "414", "431"],
)
def test_every_answer_has_an_id_that_the_log_has_too(api: RunningApi, data: bytes) -> None:
    """Our own, whatever the caller sends; the front's answers included."""
    response = api.raw(data)
    request_id = response.headers["x-request-id"]

    event = api.process.wait_event("request", request_id=request_id)
    assert request_id != "mine"
    assert event["status"] == str(response.status)


def test_the_log_names_the_route_and_not_the_path(api: RunningApi) -> None:
    response = api.call("DELETE", "/subscriptions/4711")

    event = api.process.wait_event("request", request_id=response.headers["x-request-id"])
    assert (event["method"], event["route"]) == ("DELETE", "/subscriptions/{subscription_id}")


def test_a_slow_body_does_not_stop_others(api: RunningApi) -> None:
    """Eight callers with a key who never send their body; the ninth is served in time."""
    head = request("/send", "POST", *api.headers(), "Content-Length: 10")
    slow = [api.client() for _ in range(8)]
    try:
        for client in slow:
            client.send(head)
        began = time.monotonic()
        response = api.call("GET", "/subscriptions")

        assert response.status == 200
        assert time.monotonic() - began < 4
        assert [client.read_response().status for client in slow] == [408] * 8
    finally:
        for client in slow:
            client.close()
