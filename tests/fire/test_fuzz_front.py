"""Whatever bytes a peer sends: an answer of the contract or none, soon, and no harm done."""

import contextlib
import itertools
import json
import re
from collections.abc import Iterator

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fire.bytes_of import mutated
from fire.effort import tries
from support.raw_http import RawClient, request
from support.running_api import RunningApi
from telegrammer_api.bodies import SendBody, SubscribeBody
from telegrammer_api.errors import ApiError, Code

PATIENCE = 6.0
"""Seconds until a peer that says nothing more is rid of: 1 s to read, 2 s to linger, and load."""

MEMORY = 48 * 1024 * 1024
"""Bytes by which a worker may grow while it is shot at."""

_KEY = b"KEY"  # stands for the caller's key, which only the running API knows

_STATUSES = {
    100, 200, 204, 400, 401, 404, 405, 408, 409, 413, 414, 415, 417, 422, 429, 431, 501,
}  # fmt: skip

_CODES = {code.name for code in Code} | {
    "URI_TOO_LONG", "EXPECTATION_FAILED", "HEADERS_TOO_LARGE", "NOT_IMPLEMENTED", "OVERLOADED",
}  # fmt: skip


def _post(target: str, body: object, *headers: str) -> bytes:
    json_type = "Content-Type: application/json"
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return request(target, "POST", "Authorization: Bearer KEY", json_type, *headers, body=data)


_CHUNKED = (
    b"POST /send HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\n"
    b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'5;x="y"\r\n{"cha\r\n1b\r\nt_id":1001,"text":"hello"}\r\n0\r\nTrailer: x\r\n\r\n'
)
REQUESTS = (
    request("/health", "GET", "Authorization: Bearer KEY"),
    request("/subscriptions", "GET", "Authorization: bearer  KEY", "Connection: close"),
    request("/subscriptions/17", "DELETE", "Authorization: Bearer KEY"),
    request("/health?a=b", "HEAD", "Authorization: Bearer KEY"),
    request("/%68ealth", "OPTIONS", "Authorization: Bearer KEY", version="1.0"),
    _post("/send", {"chat_id": 1001, "text": "hello"}),
    _post("/send", {"username": "@somebody", "text": "hello"}, "Expect: 100-continue"),
    _post("/subscribe", {"chat_id": -5, "callback_url": "http://127.0.0.1:9/x?y"}),
    _post("/subscribe", b'{"chat_id":1,"chat_id":2,"callback_url":"http://[::1]/"}'),
    _CHUNKED,
    _CHUNKED + _CHUNKED,
    request("/health", "GET", "Authorization: Bearer KEY") * 3,
    request("/send", "POST", "Transfer-Encoding: gzip, chunked", "Content-Length: 5"),
    b"GET /health\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)


@pytest.fixture(scope="module")
def steady(api: RunningApi) -> Iterator[RunningApi]:
    """The API; at the end each worker is still the same one, and has not grown."""
    workers = psutil.Process(api.process.pid).children()
    before = {worker.pid: worker.memory_info().rss for worker in workers}
    yield api
    assert api.call("GET", "/subscriptions").status == 200
    after = {w.pid: w.memory_info().rss for w in psutil.Process(api.process.pid).children()}
    assert after.keys() == before.keys()
    assert all(after[pid] - before[pid] < MEMORY for pid in before), (before, after)


def shoot(api: RunningApi, pieces: list[bytes], *, half_close: bool) -> bytes:
    """Send the pieces on one connection; return all that comes until it is closed."""
    with RawClient(api.address, patience=PATIENCE) as client:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                client.send(piece.replace(_KEY, api.key.encode()))
            if half_close:
                client.half_close()
        answers = client.read_to_end()
        assert client.age < PATIENCE, "it hangs"
    return answers


def check(answers: bytes) -> None:
    """Check each answer, as far as can be told: which ones had no body, nobody knows any more."""
    statuses = [int(status) for status in re.findall(rb"HTTP/\d\.\d (\d{3}) ", answers)]
    if b'"components"' in answers:  # a health report
        statuses = [status for status in statuses if status != 503]
    assert answers == b"" or answers.startswith(b"HTTP/")
    assert set(statuses) <= _STATUSES, answers
    assert answers.lower().count(b"\r\ncache-control: no-store\r\n") >= len(
        statuses
    ) - statuses.count(100)
    assert {code.decode() for code in re.findall(rb'"code":"(\w+)"', answers)} <= _CODES


def cut_up(data: bytes, shares: list[float]) -> list[bytes]:
    places = [0, *sorted(int(share * len(data)) for share in shares), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(places)]


@tries(400)
@given(data=mutated(REQUESTS), shares=st.lists(st.floats(0, 1), max_size=3))
def test_requests_that_are_nearly_good(
    steady: RunningApi, data: bytes, shares: list[float]
) -> None:
    check(shoot(steady, cut_up(data, shares), half_close=True))


@tries(200)
@given(data=st.binary(max_size=300))
def test_any_bytes(steady: RunningApi, data: bytes) -> None:
    check(shoot(steady, [data], half_close=True))


@tries(4)
@given(data=mutated(REQUESTS, most=2))
def test_a_peer_that_waits_after_it_is_answered_or_left_in_time(
    steady: RunningApi, data: bytes
) -> None:
    # An idle connection after a good answer is kept for 30 s: ask for its end.
    data = re.sub(rb"( HTTP/1\.\d\r?\n)", rb"\1Connection: close\r\n", data)
    check(shoot(steady, [data], half_close=False))


BODIES = (
    b'{"chat_id":1001,"text":"hello"}',
    b'{"username":"@Some_Body","text":"hello \\ud83d\\ude00"}',
    b'{"chat_id":-9223372036854775808,"callback_url":"http://127.0.0.1:8081/a?b=c"}',
    b'{"chat_id":1,"callback_url":"HTTPS://[::1]:443/%2e%2E/"}',
)


def parsed(
    kind: type[SendBody] | type[SubscribeBody], body: bytes
) -> SendBody | SubscribeBody | None:
    """Return what the body means; None when it is refused as the contract says."""
    with contextlib.suppress(ApiError):
        return kind.parse(body)
    with pytest.raises(ApiError, match="INVALID_REQUEST"):
        kind.parse(body)
    return None


@tries(500)
@given(body=mutated(BODIES) | st.binary(max_size=60))
def test_bodies_are_good_by_the_contract_or_refused(body: bytes) -> None:
    for kind in (SendBody, SubscribeBody):
        wanted = parsed(kind, body)
        if wanted is not None:
            fields = json.loads(body)
            assert isinstance(fields, dict)
            if isinstance(wanted, SendBody):
                assert 1 <= len(wanted.text) <= 4096
                wanted.text.encode()
            else:
                assert -(2**63) <= wanted.chat_id < 2**63
                assert str(wanted.callback_url).isascii()
