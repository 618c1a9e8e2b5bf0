"""Answers that go wrong, as raw bytes on a socket show them."""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from support.sandbox import TOKEN, Sandbox

ANN = 5000000001
GET_ME = f"GET /bot{TOKEN}/getMe HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


@pytest.fixture
def connection(sandbox: Sandbox) -> Iterator[socket.socket]:
    address = urlsplit(sandbox.url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        yield connection


def read_rest(connection: socket.socket) -> bytes:
    """Read until the other side closes."""
    answer = b""
    while chunk := connection.recv(65536):
        answer += chunk
    return answer


def read_all(connection: socket.socket) -> tuple[str, bytes]:
    """Read until the other side closes; return head and body."""
    answer = read_rest(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.decode("latin-1"), body


def true_answer(sandbox: Sandbox) -> bytes:
    return sandbox.request("GET", f"/bot{TOKEN}/getMe")[1]


def test_an_answer_of_its_own_for_n_calls(sandbox: Sandbox) -> None:
    html = {"Content-Type": "text/html"}
    sandbox.fault("getMe", status=502, headers=html, body=b"<h1>\xff</h1>", times=2)

    answers = [sandbox.request("GET", f"/bot{TOKEN}/getMe") for _ in range(3)]
    assert answers[:2] == [(502, b"<h1>\xff</h1>")] * 2
    assert answers[2][0] == 200
    assert [call["status"] for call in sandbox.calls("getMe")] == [502, 502, 200]


def test_an_answer_of_its_own_keeps_the_method_from_running_unless_told(sandbox: Sandbox) -> None:
    sandbox.fault("sendMessage", status=500)
    sandbox.request("POST", f"/bot{TOKEN}/sendMessage", {"chat_id": ANN, "text": "no"})
    assert sandbox.sent() == []

    sandbox.fault("sendMessage", status=500, run=True)
    sandbox.request("POST", f"/bot{TOKEN}/sendMessage", {"chat_id": ANN, "text": "yes"})
    assert [message["text"] for message in sandbox.sent()] == ["yes"]


def test_a_sample_is_answered_with_its_headers(sandbox: Sandbox) -> None:
    sandbox.fault_sample("sendMessage", "e04_429_retry_after_huge.json", times=None)

    for _ in range(2):
        status, answer = sandbox.call("sendMessage", chat_id=ANN, text="hi")
        assert (status, answer["parameters"]["retry_after"]) == (429, 10072)
    sandbox.clear_faults()
    assert sandbox.call("sendMessage", chat_id=ANN, text="hi")[0] == 200


def test_a_wrong_token_takes_no_fault(sandbox: Sandbox) -> None:
    sandbox.fault("*", status=500)

    assert sandbox.request("GET", "/bot1:x/getMe")[0] == 401
    assert sandbox.request("GET", f"/bot{TOKEN}/getMe")[0] == 500


def test_cut_sends_less_than_it_promised(sandbox: Sandbox, connection: socket.socket) -> None:
    whole = true_answer(sandbox)
    sandbox.fault("getMe", cut=10)
    connection.sendall(GET_ME)
    head, body = read_all(connection)

    assert f"Content-Length: {len(whole)}" in head
    assert body == whole[:10]
    sandbox.wait_calls("getMe", 1, state="broken")


def test_close_says_nothing_though_the_method_ran(sandbox: Sandbox) -> None:
    sandbox.fault("sendMessage", close=True)
    with pytest.raises(http.client.RemoteDisconnected):
        sandbox.call("sendMessage", chat_id=ANN, text="taken")

    assert [message["text"] for message in sandbox.sent()] == ["taken"]
    sandbox.wait_calls("sendMessage", 1, state="broken")


def test_drop_closes_unannounced_after_a_whole_answer(
    sandbox: Sandbox, connection: socket.socket
) -> None:
    whole = true_answer(sandbox)
    sandbox.fault("getMe", drop=True)
    connection.sendall(GET_ME)
    head, body = read_all(connection)

    assert "Connection: keep-alive" in head
    assert body == whole
    sandbox.wait_calls("getMe", 2, state="answered")


def test_a_closing_answer_of_its_own_is_followed_by_the_close(
    sandbox: Sandbox, connection: socket.socket
) -> None:
    sandbox.fault_sample("getMe", "e42_413_json.json")
    connection.sendall(GET_ME)
    head, body = read_all(connection)

    assert head.count("Connection: close") == 1
    assert head.count("Content-Length: 70") == 1
    assert len(body) == 70


def test_delay_comes_before_the_head(sandbox: Sandbox, connection: socket.socket) -> None:
    sandbox.fault("getMe", delay=0.3, drop=True)
    begun = time.monotonic()
    connection.sendall(GET_ME)

    assert connection.recv(1) == b"H"
    assert time.monotonic() - begun >= 0.3


def test_drip_sends_the_body_byte_by_byte(sandbox: Sandbox, connection: socket.socket) -> None:
    sandbox.fault("getMe", body="abc", drip=0.1, drop=True)
    connection.sendall(GET_ME)
    head = connection.recv(65536)
    begun = time.monotonic()
    rest = read_rest(connection)
    took = time.monotonic() - begun

    assert (head + rest).endswith(b"\r\n\r\nabc")
    assert took >= 0.15


def test_hold_keeps_the_answer_while_the_method_has_run(sandbox: Sandbox) -> None:
    first = sandbox.say(ANN, "one")
    assert first is not None
    sandbox.fault("getUpdates", hold=True)
    with ThreadPoolExecutor() as pool:
        held = pool.submit(sandbox.call, "getUpdates", offset=first + 1)
        second = sandbox.say(ANN, "two")
        (call,) = sandbox.wait_held("getUpdates")
        assert sandbox.confirmed() == [first], "the offset counts before the answer"
        assert not held.done()

        assert sandbox.release() == 1
        status, answer = held.result(timeout=10)
    assert status == 200
    assert [update["update_id"] for update in answer["result"]] == call["handed_out"]
    assert call["handed_out"] in ([], [second])
    assert sandbox.release() == 0


def test_a_client_that_goes_away_while_held_breaks_only_its_own_call(
    sandbox: Sandbox, connection: socket.socket
) -> None:
    sandbox.fault("getMe", body=b"x" * 10_000_000, hold=True)
    connection.sendall(GET_ME)
    sandbox.wait_held("getMe")
    connection.close()
    sandbox.release()

    sandbox.wait_calls("getMe", 1, state="broken")
    assert sandbox.call("getMe")[0] == 200


def test_faults_that_are_left_can_be_read(sandbox: Sandbox) -> None:
    sandbox.fault("getMe", status=500, times=3)
    sandbox.request("GET", f"/bot{TOKEN}/getMe")
    _, body = sandbox.request("GET", "/sandbox/faults")

    (left,) = json.loads(body)
    assert (left["method"], left["times"], left["status"]) == ("getMe", 2, 500)
