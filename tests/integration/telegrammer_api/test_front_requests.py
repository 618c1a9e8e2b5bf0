"""The front and single requests: framing, refusals, bodies, what the application sees."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator

import pytest

from support.front import Front
from support.raw_http import RawClient, Response, request
from telegrammer_api import front as contract

# Enough for a busy machine, and well below the front's request timeout of 2 s.
AT_ONCE = 1.0


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    with Front(threads=4, queue=8, request_timeout=2.0) as running:
        yield running.ready()


@pytest.fixture
def client(front: Front) -> Iterator[RawClient]:
    with front.client() as connected:
        yield connected


def assert_page(response: Response, status: int, code: str) -> None:
    """The answer is one of the front's own, complete in every part."""
    assert (response.status, response.code) == (status, code)
    assert response.json() == {
        "ok": False,
        "error": {"code": code, "message": response.json()["error"]["message"]},
    }
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["connection"] == "close"
    assert re.fullmatch("[0-9a-f]{16}", response.headers["x-request-id"])


def head(*lines: str) -> bytes:
    return "\r\n".join(["GET / HTTP/1.1", "Host: gateway", *lines, "", ""]).encode("latin-1")


MALFORMED = {
    "no version": b"GET /\r\n",
    "four words": b"GET / HTTP/1.1 more\r\nHost: a\r\n\r\n",
    "no words": b"\r\n\r\n\r\n",
    "method that is no token": b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/3.0": b"GET / HTTP/3.0\r\nHost: a\r\n\r\n",
    "raw byte in the path": b"GET /\xe9 HTTP/1.1\r\nHost: a\r\n\r\n",
    "control character in the path": b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n",
    "bare LF after the request line": b"GET / HTTP/1.1\n",
    "bare LF after a header": b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n",
    "folded header": head("X: a", " b"),
    "header without a colon": head("X"),
    "header without a name": head(": x"),
    "space before the colon": head("X : a"),
    "NUL in a header": head("X: a\0b"),
    "two Hosts": head("Host: b"),
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Content-Types": head("Content-Type: a/b", "Content-Type: a/b"),
    "two equal Content-Lengths": head("Content-Length: 1", "Content-Length: 1"),
    "Content-Length with a sign": head("Content-Length: +5"),
    "Content-Length below zero": head("Content-Length: -1"),
    "Content-Length as a list": head("Content-Length: 5, 5"),
    "Content-Length in foreign digits": head("Content-Length: \xb2"),
    "Content-Length of 5000 digits": head("Content-Length: " + "9" * 5000),
    "length and chunks": head("Content-Length: 5", "Transfer-Encoding: chunked"),
    "chunked twice": head("Transfer-Encoding: chunked, chunked"),
    "chunked in two headers": head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "coding that is not chunked last": head("Transfer-Encoding: gzip"),
    "identity alone": head("Transfer-Encoding: identity"),
    "chunks in HTTP/1.0": b"POST /body HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
}

REFUSED = {
    **{name: (data, 400, "INVALID_REQUEST") for name, data in MALFORMED.items()},
    "line of 5000 bytes": (request("/" + "a" * 5000), 414, "URI_TOO_LONG"),
    "line of 5000 bytes without an end": (b"GET /" + b"a" * 5000, 414, "URI_TOO_LONG"),
    "header of 9000 bytes": (head("X: " + "a" * 9000), 431, "HEADERS_TOO_LARGE"),
    "101 headers": (head(*["X: a"] * 100), 431, "HEADERS_TOO_LARGE"),
    "headers of 40000 bytes": (
        head(*["X: " + "a" * 8000] * 5).removesuffix(b"\r\n"),
        431,
        "HEADERS_TOO_LARGE",
    ),
    "unknown coding": (head("Transfer-Encoding: xyz"), 501, "NOT_IMPLEMENTED"),
    "coding before chunked": (head("Transfer-Encoding: gzip, chunked"), 501, "NOT_IMPLEMENTED"),
    "identity before chunked": (
        head("Transfer-Encoding: identity, chunked"),
        501,
        "NOT_IMPLEMENTED",
    ),
    "unknown expectation": (head("Expect: miracles"), 417, "EXPECTATION_FAILED"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_a_request_is_refused_at_once_in_our_shape(
    client: RawClient, name: str
) -> None:
    data, status, code = REFUSED[name]
    client.send(data)

    assert_page(client.read_response(), status, code)
    assert client.is_closed()
    assert client.age < AT_ONCE


@pytest.mark.parametrize("line", ["Expect: miracles", "X : a", "Transfer-Encoding: xyz"])
def test_a_refusal_of_head_has_no_body(client: RawClient, line: str) -> None:
    client.send(request("/", "HEAD", line))

    response = client.read_response(to_head=True)

    assert response.status in (400, 417, 501)
    assert int(response.headers["content-length"]) > 0
    assert client.read_to_end() == b""


def test_a_refusal_does_not_repeat_what_was_sent(front: Front, client: RawClient) -> None:
    client.send(b"GET /?token=SECRET-IN-LINE HTTP/9.9\r\nX SECRET-IN-HEADER\r\n\r\n")

    answer = client.read_to_end()

    assert b" 400 " in answer
    assert b"SECRET" not in answer
    assert "SECRET" not in front.log


def test_the_request_line_in_the_log_has_the_route_and_never_the_path(
    front: Front, client: RawClient
) -> None:
    response = client.exchange(request("/seen/SECRET-PATH%0aforged?key=SECRET-QUERY"))

    request_id = response.headers["x-request-id"]
    assert front.logged(request_id)
    (line,) = [line for line in front.log.splitlines() if request_id in line]
    assert re.fullmatch(
        r"time=\S+ level=info component=api event=request method=GET route=/seen "
        rf"status=200 duration_ms=[0-9.]+ request_id={request_id}",
        line,
    )
    assert "SECRET" not in front.log


def test_the_application_sees_the_target_as_it_came(client: RawClient) -> None:
    for target in ("//v1/messages", "/v1%2Fmessages", "/a/../b", "http://evil/v1", "/a%00?x=%ff"):
        assert client.exchange(request(target)).json()["RAW_URI"] == target


def test_the_application_is_told_how_many_authorizations_came(client: RawClient) -> None:
    for count in (0, 1, 2):
        seen = client.exchange(request("/", "GET", *["Authorization: Bearer a"] * count)).json()
        assert seen[contract.AUTHORIZATIONS] == count


@pytest.mark.parametrize("method", ["BREW", "get", "X", "SECRET-METHOD" * 5])
def test_an_unknown_method_reaches_the_application_and_not_the_log(
    front: Front, client: RawClient, method: str
) -> None:
    response = client.exchange(request("/", method))

    assert response.json()["REQUEST_METHOD"] == method
    assert front.logged(f"method=OTHER .*{response.headers['x-request-id']}")


def test_http_1_0_needs_no_host_and_closes(client: RawClient) -> None:
    assert client.exchange(b"GET / HTTP/1.0\r\n\r\n").headers["connection"] == "close"
    assert client.is_closed()


def test_a_later_http_1_is_answered_in_ours(client: RawClient) -> None:
    client.send(b"GET / HTTP/1.9\r\nHost: gateway\r\n\r\n")

    assert client.read_until(b"\r\n").startswith(b"HTTP/1.1 200 ")


def test_no_peer_is_believed_about_scheme_address_or_path(client: RawClient) -> None:
    plain = client.exchange(request("/zzz/env")).json()
    told = client.exchange(
        request(
            "/zzz/env",
            "GET",
            "SCRIPT_NAME: /zzz",
            "PATH_INFO: /other",
            "REMOTE_USER: root",
            "X-Forwarded-Proto: https",
            "X-Forwarded-For: 203.0.113.1",
            "Forwarded: for=203.0.113.1;proto=https",
        )
    ).json()

    for name in ("SCRIPT_NAME", "PATH_INFO", "REMOTE_ADDR", "wsgi.url_scheme"):
        assert told[name] == plain[name]
    assert plain["wsgi.url_scheme"] == "http"
    assert "REMOTE_USER" not in told
    assert "HTTP_SCRIPT_NAME" not in told


def test_requests_of_one_connection_are_answered_in_order(client: RawClient) -> None:
    chunked = b"POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    client.send(
        request("/body", "POST", body=b"first")
        + chunked
        + b"3\r\nsec\r\n3;x=y\r\nond\r\n0\r\nX: y\r\n\r\n"
        + b"\r\n"
        + request("/refuse/404")
        + request("/no-content")
        + request("/", "GET", "Connection: close")
    )

    assert client.read_response().body == b"first"
    assert client.read_response().body == b"second"
    assert client.read_response().status == 404
    nothing = client.read_response()
    assert (nothing.status, "content-length" in nothing.headers) == (204, False)
    assert client.read_response().headers["connection"] == "close"
    assert client.is_closed()


@pytest.mark.parametrize("option", ["close", "Close", "TE, close", "close,TE", "x\t,\tclose"])
def test_whoever_asks_for_the_end_gets_it(client: RawClient, option: str) -> None:
    """RFC 9112, 9.6: the header is a list."""
    client.send(request("/", "GET", f"Connection: {option}"))

    assert client.read_response().headers["connection"] == "close"
    assert client.is_closed()


def test_a_head_may_come_in_pieces(client: RawClient) -> None:
    client.drip(request("/body", "POST", body=b"whole"), pause=0.001)

    assert client.read_response().body == b"whole"


# -- 100 Continue -----------------------------------------------------------------


def expecting(target: str, *, length: int = 4) -> bytes:
    return request(target, "POST", "Expect: 100-continue", f"Content-Length: {length}")


def test_continue_is_said_once_when_the_application_reads(client: RawClient) -> None:
    client.send(expecting("/body"))
    assert client.read_response().status == 100

    client.send(b"body")
    response = client.read_response()

    assert (response.status, response.body) == (200, b"body")
    assert response.headers["connection"] == "keep-alive"


@pytest.mark.parametrize("status", [401, 404, 405, 413, 415])
def test_continue_is_never_said_before_a_refusal(client: RawClient, status: int) -> None:
    client.send(expecting(f"/refuse/{status}"))

    response = client.read_response()

    assert (response.status, response.headers["connection"]) == (status, "close")
    assert client.is_closed()


def test_continue_is_not_said_for_an_empty_body(client: RawClient) -> None:
    assert client.exchange(expecting("/body", length=0)).status == 200


def test_http_1_0_expectations_are_ignored(client: RawClient) -> None:
    data = expecting("/body").replace(b"HTTP/1.1", b"HTTP/1.0") + b"body"

    assert client.exchange(data).status == 200


# -- bodies -----------------------------------------------------------------------


def test_an_answer_before_the_body_closes_the_connection(client: RawClient) -> None:
    client.send(request("/refuse/401", "POST", "Content-Length: 100") + b"0123456789")

    assert client.read_response().headers["connection"] == "close"
    assert client.is_closed()
    assert client.age < AT_ONCE


@pytest.mark.parametrize("target", ["/refuse/401", "/part"])
def test_an_unread_body_is_never_taken_for_a_request(client: RawClient, target: str) -> None:
    client.send(request(target, "POST", body=request("/smuggled") * 100))

    answers = client.read_to_end()

    assert answers.count(b"HTTP/1.1 ") == 1
    assert b"smuggled" not in answers


def test_the_answer_arrives_although_20_mb_of_body_are_not_read(client: RawClient) -> None:
    client.send(request("/refuse/413", "POST", f"Content-Length: {20 << 20}"))

    def send() -> None:
        with contextlib.suppress(OSError):  # the front lingers for two seconds, no longer
            client.send(b"x" * (20 << 20))

    sender = threading.Thread(target=send)
    sender.start()
    response = client.read_response()
    client.read_to_end()
    sender.join()

    assert response.status == 413


def test_a_body_shorter_than_its_length_is_refused(client: RawClient) -> None:
    client.send(request("/body", "POST", "Content-Length: 100") + b'{"a":1}')
    client.half_close()

    assert_page(client.read_response(), 400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "chunks",
    [
        b"zz\r\n",
        b"\r\n",
        b"-1\r\n",
        b"0x3\r\nabc\r\n0\r\n\r\n",
        b"3\r\nabcd\r\n0\r\n\r\n",
        b"3;\x01\r\nabc\r\n0\r\n\r\n",
        b"0\r\nContent-Length: 3\r\n\r\n",
        b"0\r\nno colon\r\n\r\n",
    ],
)
def test_malformed_chunks_are_refused_and_close(client: RawClient, chunks: bytes) -> None:
    client.send(request("/body", "POST", "Transfer-Encoding: chunked") + chunks)

    assert_page(client.read_response(), 400, "INVALID_REQUEST")
    assert client.is_closed()


def test_malformed_chunks_close_even_when_the_application_reads_on(client: RawClient) -> None:
    client.send(request("/forgiving", "POST", "Transfer-Encoding: chunked") + b"zz\r\n\r\n")
    client.send(request("/smuggled"))

    response = client.read_response()

    assert (response.body, response.headers["connection"]) == (b"forgiven", "close")
    assert client.is_closed()


def test_a_body_of_nothing_but_chunk_sizes_ends_with_413_although_nobody_catches_it(
    client: RawClient,
) -> None:
    extended = b"1;" + b"a" * 4000 + b"\r\nx\r\n"
    client.send(request("/body", "POST", "Transfer-Encoding: chunked") + extended * 100)

    assert client.read_response().code == "PAYLOAD_TOO_LARGE"
    assert client.is_closed()


def test_chunks_without_an_end_are_refused(client: RawClient) -> None:
    client.send(request("/body", "POST", "Transfer-Encoding: chunked") + b"3\r\nabc\r\n")
    client.half_close()

    assert_page(client.read_response(), 400, "INVALID_REQUEST")


# -- an application that fails ------------------------------------------------------


@pytest.mark.parametrize("target", ["/fail", "/exit", "/bad-header"])
def test_what_the_application_does_not_catch_is_answered_500(
    front: Front, client: RawClient, target: str
) -> None:
    response = client.exchange(request(target))

    assert_page(response, 500, "INTERNAL_ERROR")
    assert b"the application failed" not in response.body
    assert front.logged(f"event=request_failed request_id={response.headers['x-request-id']}")
    with front.client() as other:
        assert other.exchange(request("/")).status == 200
