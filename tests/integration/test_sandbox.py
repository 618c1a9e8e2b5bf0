"""The sandbox over real sockets: what the pure tests cannot see."""

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode, urlsplit

import pytest

from support.sandbox import TOKEN, Sandbox, sample_updates

ANN, TEAM, OPERATIONS, NEWS = 5000000001, -4000000001, -1002000000001, -1001000000003


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def exchange(sandbox: Sandbox, data: bytes) -> bytes:
    """Send bytes, half-close, and return everything that comes back."""
    address = urlsplit(sandbox.url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    return answer


def bot_path(method: str, **query: object) -> str:
    return f"/bot{TOKEN}/{method}?{urlencode(query)}"


def test_a_parked_poll_is_answered_within_milliseconds(
    sandbox: Sandbox, background: ThreadPoolExecutor
) -> None:
    delays = []
    for turn in range(5):
        poll = background.submit(sandbox.call, "getUpdates", offset=100_000_001 + turn, timeout=50)
        sandbox.wait_parked()
        sandbox.say(ANN, "wake up")
        said = time.monotonic()
        status, answer = poll.result(timeout=10)
        delays.append(time.monotonic() - said)
        assert (status, len(answer["result"])) == (200, 1)

    assert min(delays) < 0.02


def test_an_empty_poll_ends_at_its_timeout(sandbox: Sandbox) -> None:
    begun = time.monotonic()

    assert sandbox.call("getUpdates", timeout=1) == (200, {"ok": True, "result": []})
    assert 1.0 <= time.monotonic() - begun < 2.0


def test_of_two_polls_that_wait_the_older_ends_with_409(
    sandbox: Sandbox, background: ThreadPoolExecutor
) -> None:
    older = background.submit(sandbox.call, "getUpdates", offset=1, timeout=50)
    sandbox.wait_parked()
    newer = background.submit(sandbox.call, "getUpdates", offset=2, timeout=50)

    assert older.result(timeout=10) == (
        409,
        {
            "ok": False,
            "error_code": 409,
            "description": "Conflict: terminated by other getUpdates request;"
            " make sure that only one bot instance is running",
        },
    )
    sandbox.say(ANN, "for the newer")
    assert newer.result(timeout=10)[0] == 200


def test_a_short_poll_beside_one_that_waits_makes_no_conflict(
    sandbox: Sandbox, background: ThreadPoolExecutor
) -> None:
    parked = background.submit(sandbox.call, "getUpdates", offset=100_000_001, timeout=50)
    sandbox.wait_parked()

    assert sandbox.call("getUpdates", offset=2, timeout=0) == (200, {"ok": True, "result": []})
    sandbox.say(ANN, "for the parked one")
    assert parked.result(timeout=10)[0] == 200


def test_set_webhook_ends_a_parked_poll(sandbox: Sandbox, background: ThreadPoolExecutor) -> None:
    parked = background.submit(sandbox.call, "getUpdates", timeout=50)
    sandbox.wait_parked()
    sandbox.call("setWebhook", url="https://example.org/")

    status, answer = parked.result(timeout=10)
    assert (status, answer["description"]) == (409, "Conflict: terminated by setWebhook request")


def test_samples_go_out_byte_for_byte(sandbox: Sandbox) -> None:
    names = ["u02_private_command_entities.json", "u30_lone_surrogates.json"]
    updates = [update for name in names for update in sample_updates(name)]
    sandbox.push_samples(*names)

    status, body = sandbox.request("GET", bot_path("getUpdates"))
    assert (status, body) == (200, b'{"ok":true,"result":[' + b",\n".join(updates) + b"]}")


@pytest.mark.parametrize("name", ["u16_service_left_title_pin.json", "u44_empty.json"])
def test_a_whole_sample_is_the_body_that_it_was(sandbox: Sandbox, name: str) -> None:
    ids = sandbox.push_samples(name)
    _, body = sandbox.request("GET", bot_path("getUpdates"))

    assert [update["update_id"] for update in json.loads(body)["result"]] == ids
    assert body.count(b"update_id") == len(ids)


def test_texts_go_out_as_ascii_escapes(sandbox: Sandbox) -> None:
    sandbox.say(ANN, "h\u00e9 \U0001f680")
    _, body = sandbox.request("GET", bot_path("getUpdates"))

    assert body.isascii()
    assert b'"text":"h\\u00e9 \\ud83d\\ude80"' in body
    assert body.startswith(b'{"ok":true,"result":[{"update_id":100000001,\n"message":{')


def as_query(sandbox: Sandbox) -> tuple[int, bytes]:
    return sandbox.request("GET", bot_path("sendMessage", chat_id=ANN, text="h\u00e9"))


def as_json(sandbox: Sandbox) -> tuple[int, bytes]:
    content = {"chat_id": ANN, "text": "h\u00e9"}
    return sandbox.request("POST", bot_path("sendMessage"), content)


def as_form(sandbox: Sandbox) -> tuple[int, bytes]:
    return post(
        sandbox, "application/x-www-form-urlencoded", f"chat_id={ANN}&text=h%C3%A9".encode()
    )


def as_multipart(sandbox: Sandbox) -> tuple[int, bytes]:
    fields = {"chat_id": str(ANN), "text": "h\u00e9"}.items()
    parts = (f'--X\r\nContent-Disposition: form-data; name="{n}"\r\n\r\n{v}\r\n' for n, v in fields)
    return post(sandbox, "multipart/form-data; boundary=X", ("".join(parts) + "--X--\r\n").encode())


def post(sandbox: Sandbox, kind: str, body: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(sandbox.url).netloc, timeout=10)
    with contextlib.closing(connection):
        connection.request("POST", bot_path("sendMessage"), body, {"Content-Type": kind})
        response = connection.getresponse()
        return response.status, response.read()


@pytest.mark.parametrize("way", [as_query, as_json, as_form, as_multipart])
def test_parameters_come_in_every_form(
    sandbox: Sandbox, way: Callable[[Sandbox], tuple[int, bytes]]
) -> None:
    status, body = way(sandbox)

    assert status == 200
    assert json.loads(body)["result"]["text"] == "h\u00e9"
    assert sandbox.calls("sendMessage")[0]["parameters"] == {"chat_id": str(ANN), "text": "h\u00e9"}


@pytest.mark.parametrize(
    ("path", "status", "description"),
    [
        ("/bot123456:wrong/getMe", 401, "Unauthorized"),
        ("/bot123456/getMe", 401, "Unauthorized: invalid token specified"),
        ("/bot0:x/getMe", 401, "Unauthorized: invalid token specified"),
        (f"/bot{TOKEN}/getMee", 404, "Not Found: method not found"),
        (f"/bot{TOKEN}", 404, "Not Found: method not found"),
        ("/elsewhere", 404, "Not Found"),
    ],
)
def test_wrong_tokens_methods_and_paths(
    sandbox: Sandbox, path: str, status: int, description: str
) -> None:
    found, body = sandbox.request("GET", path)

    assert (found, json.loads(body)["description"]) == (status, description)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"garbage\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", 400),
        (b"PUT / HTTP/1.1\r\n\r\n", 501),
        (b"GET /" + b"x" * 70000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431),
        (b"POST /botX/getMe HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /botX/getMe HTTP/1.1\r\nContent-Length: 1048577\r\n\r\n", 413),
        (b"POST /botX/getMe HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
        (
            b"POST /botX/getMe HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 1\r\n\r\n[",
            400,
        ),
    ],
)
def test_what_cannot_be_read_gets_a_bare_status_and_a_closed_connection(
    sandbox: Sandbox, request_: bytes, status: int
) -> None:
    head, _, body = exchange(sandbox, request_).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"Content-Length: 0" in head
    assert b"Connection: close" in head
    assert body == b""
    assert sandbox.call("getMe")[0] == 200


def test_a_body_that_never_comes_whole_gets_no_answer(sandbox: Sandbox) -> None:
    assert exchange(sandbox, b"POST /botX/getMe HTTP/1.1\r\nContent-Length: 9\r\n\r\n{") == b""


def test_connections_are_kept_alive(sandbox: Sandbox) -> None:
    request = f"GET {bot_path('getMe')} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()

    assert exchange(sandbox, request * 3).count(b"HTTP/1.1 200 OK\r\n") == 3


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Host: 127.0.0.1:1", 200),
        ("Host: localhost", 200),
        ("Host: [::1]:80\r\nOrigin: http://[::1]:80", 200),
        ("Host: 127.0.0.1:1\r\nOrigin: http://127.0.0.1:1", 200),
        ("Host: 127.0.0.1:1\r\nSec-Fetch-Site: same-origin", 200),
        ("Host: 127.0.0.1:1\r\nSec-Fetch-Site: none", 200),
        ("Host: 127.0.0.1:1\r\nOrigin: http://evil.example", 403),
        ("Host: 127.0.0.1:1\r\nOrigin: http://127.0.0.1:2", 403),
        ("Host: 127.0.0.1:1\r\nOrigin: null", 403),
        ("Host: evil.example", 403),
        ("Host: [", 403),
    ],
)
@pytest.mark.parametrize("path", ["/", "/sandbox/chats", bot_path("getMe")])
def test_all_is_for_this_machine_and_its_own_page(
    sandbox: Sandbox, path: str, headers: str, status: int
) -> None:
    """No page from elsewhere drives it, not even one whose name leads here."""
    answer = exchange(sandbox, f"GET {path} HTTP/1.1\r\n{headers}\r\n\r\n".encode())

    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert len(sandbox.calls("getMe")) == (status == 200 and path.startswith("/bot"))


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_from_elsewhere_may_link_to_the_chat_page_alone(sandbox: Sandbox, site: str) -> None:
    for path, status in (("/", 200), ("/sandbox/chats", 403), (bot_path("getMe"), 403)):
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: {site}\r\n\r\n"
        assert exchange(sandbox, head.encode()).startswith(f"HTTP/1.1 {status} ".encode())


def test_the_ledger_tells_what_was_handed_out_and_confirmed(sandbox: Sandbox) -> None:
    first, second = sandbox.say(ANN, "one"), sandbox.say(ANN, "two")
    sandbox.call("getUpdates", limit=1)
    sandbox.call("getUpdates", offset=second, limit=1)

    given, confirming = sandbox.calls("getUpdates")
    assert (given["handed_out"], given["confirmed"]) == ([first], [])
    assert (confirming["handed_out"], confirming["confirmed"]) == ([second], [first])
    confirmed, waiting = sandbox.updates()
    assert confirmed["state"] == "confirmed"
    assert confirmed["handed_out"] == [given["number"]]
    assert confirmed["confirmed_by"] == confirming["number"]
    assert confirmed["confirmed_at"] >= confirming["received_at"]
    assert waiting["state"] == "waiting"
    assert sandbox.confirmed() == [first]


def test_the_ledger_holds_no_token(sandbox: Sandbox) -> None:
    sandbox.call("getMe")
    _, body = sandbox.request("GET", "/sandbox/calls")

    assert TOKEN.encode() not in body


def test_waiting_ends_with_the_condition_or_with_the_time(
    sandbox: Sandbox, background: ThreadPoolExecutor
) -> None:
    waiting = background.submit(sandbox.wait_sent, 1)
    sandbox.call("sendMessage", chat_id=ANN, text="hi")

    assert [message["text"] for message in waiting.result(timeout=10)] == ["hi"]
    assert sandbox.sent(chat_id=TEAM) == []
    with pytest.raises(AssertionError, match="1 of 2 sent"):
        sandbox.wait_sent(2, timeout=0.05)


def test_people_speak_in_every_kind_of_chat(sandbox: Sandbox) -> None:
    for chat_id in (ANN, TEAM, OPERATIONS, NEWS, 77, -77):
        sandbox.say(chat_id, "hi")
    sandbox.say(TEAM, "I am Eve", id=666, first_name="Eve", username="eve")
    sandbox.say(TEAM, "still Eve", id=666)

    _, answer = sandbox.call("getUpdates")
    *others, new, again = answer["result"]
    kinds = [list(update)[1] for update in others]
    assert kinds == ["message", "message", "message", "channel_post", "message", "message"]
    assert new["message"]["from"]["username"] == "eve"
    assert again["message"]["from"] == new["message"]["from"]


def test_a_stranger_cannot_write_in_a_private_chat(sandbox: Sandbox) -> None:
    with pytest.raises(AssertionError, match="only its owner"):
        sandbox.say(ANN, "hi", id=666)


def test_migration_and_reset_of_ids(sandbox: Sandbox) -> None:
    new = sandbox.migrate(TEAM)
    status, answer = sandbox.call("sendMessage", chat_id=TEAM, text="hi")
    assert (status, answer["parameters"]) == (400, {"migrate_to_chat_id": new})
    with pytest.raises(AssertionError, match="became a supergroup"):
        sandbox.say(TEAM, "anybody?")
    with pytest.raises(AssertionError, match="only a group"):
        sandbox.migrate(TEAM)

    sandbox.restart_ids(7)
    assert [update["state"] for update in sandbox.updates()] == ["forgotten", "forgotten"]
    assert sandbox.say(new, "hi") == 7


def test_reset_begins_anew(sandbox: Sandbox, background: ThreadPoolExecutor) -> None:
    sandbox.say(ANN, "gone")
    sandbox.fault("getMe", hold=True)
    held = background.submit(sandbox.call, "getMe")
    sandbox.wait_held("getMe")
    sandbox.reset()

    assert held.result(timeout=10)[0] == 200
    assert sandbox.updates() == []
    assert sandbox.call("getUpdates") == (200, {"ok": True, "result": []})


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("GET", "nowhere", None, 404),
        ("DELETE", "messages", None, 405),
        ("POST", "messages", {}, 400),
        ("POST", "messages", {"chat_id": ANN, "text": ""}, 400),
        ("POST", "messages", {"chat_id": ANN, "text": "x" * 4097}, 400),
        ("POST", "messages", {"chat_id": ANN, "text": "x", "typo": 1}, 400),
        ("POST", "messages", b"\xff", 400),
        ("POST", "update-ids", {"next": 0}, 400),
        ("GET", "calls?timeout=61", None, 400),
        ("GET", "calls?timeout=nan", None, 400),
        ("GET", "calls?at_least=x", None, 400),
        ("POST", "faults", {"times": 0}, 400),
    ],
)
def test_control_mistakes_are_told(
    sandbox: Sandbox, method: str, path: str, content: object, status: int
) -> None:
    found, body = sandbox.request(method, f"/sandbox/{path}", content)

    assert found == status
    assert json.loads(body)["error"]


def test_closing_ends_parked_held_and_idle_connections_and_leaves_no_thread(
    background: ThreadPoolExecutor,
) -> None:
    background.submit(int).result()
    before = set(threading.enumerate())
    with Sandbox.start() as sandbox:
        sandbox.fault("getMe", hold=True)
        address = urlsplit(sandbox.url)
        idle = socket.create_connection((address.hostname, address.port))
        calls = [
            background.submit(sandbox.call, "getUpdates", timeout=50),
            background.submit(sandbox.call, "getMe"),
        ]
        sandbox.wait_parked()
        sandbox.wait_held("getMe")
        begun = time.monotonic()

    with idle:
        assert idle.recv(1) == b""
    assert time.monotonic() - begun < 2
    for call in calls:
        assert call.exception(timeout=10) is None or isinstance(
            call.exception(), OSError | http.client.HTTPException
        )
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if not thread.name.startswith("ThreadPool")]
