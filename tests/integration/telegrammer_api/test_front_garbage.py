"""The front and any bytes at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.front import Front
from support.raw_http import RawClient

TIMEOUT = 0.5

# Pieces that lead far into the parser, between bytes that lead nowhere.
PIECES = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n",
        b"POST /body HTTP/1.1\r\n",
        b"HEAD /refuse/405 HTTP/1.0\r\n",
        b"Host: a\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: 18446744073709551617\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Expect: 100-continue\r\n",
        b"Connection: keep-alive\r\n",
        b"Authorization: Bearer x\r\n",
        b"\r\n",
        b"\n",
        b": ",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"http://[::1/ ",
        b"\xff\x00",
        b"\x16\x03\x01",
        b"a" * 5000,
    ]
)
BYTES = st.one_of(st.binary(max_size=300), st.lists(PIECES | st.binary(max_size=8)).map(b"".join))

OURS = {400, 408, 413, 414, 417, 431, 501}


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    with Front(threads=2, queue=50, request_timeout=TIMEOUT, idle_timeout=TIMEOUT) as running:
        yield running.ready()
        assert "raceback" not in running.log
        assert "level=error" not in running.log


def answers(client: RawClient, data: bytes) -> None:
    """Read answers until the close; each is the application's or one of ours."""
    to_head = data.lstrip().startswith(b"HEAD ")
    while True:
        try:
            response = client.read_response(to_head=to_head)
        except EOFError:
            return
        assert response.status in OURS | {100, 200, 405}
        if response.status in OURS and response.body:
            assert response.json()["ok"] is False
            assert response.headers["connection"] == "close"


@settings(
    max_examples=150,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=BYTES)
def test_any_bytes_get_a_well_formed_answer_or_a_close(front: Front, data: bytes) -> None:
    with front.client(patience=5) as client:
        client.send(data)
        client.half_close()

        answers(client, data)


@settings(
    max_examples=10,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=BYTES)
def test_no_bytes_hold_a_connection_longer_than_the_timeout(front: Front, data: bytes) -> None:
    with front.client(patience=5) as client:
        client.send(data)

        answers(client, data)
        # A body, the idle time after it, lingering: nothing else may take time.
        assert client.age < 2 * TIMEOUT + 2.5
