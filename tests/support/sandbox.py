"""Drive a sandbox: started here, in this process, or one that runs elsewhere."""

import base64
import contextlib
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

from telegrammer_sandbox.server import Server
from telegrammer_sandbox.state import Bot

Json = dict[str, Any]

TOKEN = "6000000001:ABC-DEF1234ghIkl-zyx57W2v1u123ew11"
USERNAME = "gate_example_bot"
PATIENCE = 10.0
_SAMPLES = Path(__file__).parents[1] / "samples"


class Sandbox:
    """Everything that a test does to "Telegram" and reads from it.

    ``Sandbox(url, token)`` drives a sandbox that runs elsewhere; ``Sandbox.start()``
    starts one in this process on a free port. All ``wait_...`` methods return as soon
    as their condition holds and raise ``AssertionError`` after ``timeout`` seconds.
    """

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token

    @classmethod
    @contextlib.contextmanager
    def start(cls, token: str = TOKEN, port: int = 0) -> Iterator["Sandbox"]:
        with Server(Bot(token, USERNAME), port=port) as server:
            yield cls(server.url, token)

    # What people and Telegram do.

    def say(self, chat_id: int, text: str, **user: object) -> int | None:
        """Write as a person; return the update's id (None: the bot does not want it).

        ``user`` is ``id``, ``first_name``, ``last_name``, ``username``, all optional.
        """
        saying: Json = {"chat_id": chat_id, "text": text}
        if user:
            saying["user"] = user
        return cast("int | None", self.control("POST", "messages", saying)["update_id"])

    def push_raw(self, update: str | bytes) -> int:
        """Queue an update's text byte for byte; return the id that offsets count."""
        body = update.encode() if isinstance(update, str) else update
        return cast("int", self.control("POST", "updates", body)["update_id"])

    def push_samples(self, *names: str) -> list[int]:
        """Queue every update of these files of ``tests/samples/updates``, byte for byte."""
        return [self.push_raw(update) for name in names for update in sample_updates(name)]

    def restart_ids(self, next_id: int) -> None:
        """Forget what waits and count on from ``next_id``."""
        self.control("POST", "update-ids", {"next": next_id})

    def add_chat(self, chat_id: int, kind: str, title: str, username: str = "") -> None:
        chat = {"id": chat_id, "type": kind, "title": title, "username": username}
        self.control("POST", "chats", chat)

    def migrate(self, chat_id: int) -> int:
        """Turn a group into a supergroup; return the new chat's id."""
        return cast("int", self.control("POST", "migrations", {"chat_id": chat_id})["chat_id"])

    def reset(self) -> None:
        self.control("POST", "reset", {})

    # What goes wrong.

    def fault(self, method: str, *, body: str | bytes | None = None, **fault: object) -> None:
        """Set a fault, as ``telegrammer_sandbox.faults.Fault`` describes it.

        For the next call only, unless ``times`` says more, or None for all. The forms:
        ``status=, body=, headers=`` answer that instead; ``hold=True``, ``delay=``,
        ``drip=``, ``cut=``, ``close=True``, ``drop=True`` spoil the delivery, of the
        true answer when none is given; ``run=True`` carries the method out even so.
        """
        if isinstance(body, bytes):
            fault["body_base64"] = base64.b64encode(body).decode("ascii")
        elif body is not None:
            fault["body"] = body
        self.control("POST", "faults", {"method": method, **fault})

    def fault_sample(self, method: str, name: str, times: int | None = 1) -> None:
        """Answer as a file of ``tests/samples/errors`` does."""
        sample = json.loads((_SAMPLES / "errors" / name).read_text("ascii"))
        status, headers = sample["http_status"], sample["headers"]
        self.fault(method, body=sample["body"], status=status, headers=headers, times=times)

    def clear_faults(self) -> None:
        """Remove every fault; what is held stays held."""
        self.control("DELETE", "faults")

    def release(self) -> int:
        """Let every held answer go; return how many there were."""
        return cast("int", self.control("POST", "release", {})["released"])

    # What happened.

    def calls(self, method: str = "", state: str = "") -> list[Json]:
        """Return the calls of a method (empty: of all), as ``ledger.Call``, oldest first.

        ``state`` is running, parked, held, answered or broken.
        """
        return self._list("calls", method=method, state=state)

    def wait_calls(
        self, method: str, n: int, timeout: float = PATIENCE, state: str = ""
    ) -> list[Json]:
        """Wait until there are ``n`` calls of the method; return all of them."""
        return self._wait("calls", n, timeout, method=method, state=state)

    def wait_held(self, method: str = "", n: int = 1, timeout: float = PATIENCE) -> list[Json]:
        """Wait until ``n`` answers are held."""
        return self.wait_calls(method, n, timeout, state="held")

    def wait_parked(self, timeout: float = PATIENCE) -> list[Json]:
        """Wait until a getUpdates waits for updates: the poller is there, and idle.

        One whose client was killed stays parked until its timeout or the next poll.
        """
        return self.wait_calls("getUpdates", 1, timeout, state="parked")

    def updates(self, state: str = "") -> list[Json]:
        """Return every update as ``ledger.UpdateRecord``: waiting, confirmed, forgotten."""
        return self._list("updates", state=state)

    def confirmed(self) -> list[int]:
        """Return the ids that an offset has confirmed, oldest first."""
        return [update["update_id"] for update in self.updates("confirmed")]

    def wait_confirmed(self, n: int, timeout: float = PATIENCE) -> list[int]:
        """Wait until ``n`` updates are confirmed; return the ids of all that are."""
        updates = self._wait("updates", n, timeout, state="confirmed")
        return [update["update_id"] for update in updates]

    def sent(self, chat_id: int = 0) -> list[Json]:
        """Return the messages that the bot sent (0: to any chat), as Bot API Messages."""
        return [sent["message"] for sent in self._list("sent", chat_id=chat_id)]

    def wait_sent(self, n: int, timeout: float = PATIENCE, chat_id: int = 0) -> list[Json]:
        """Wait until the bot has sent ``n`` messages; return all of them."""
        return [sent["message"] for sent in self._wait("sent", n, timeout, chat_id=chat_id)]

    # How it is said.

    def call(self, method: str, **parameters: object) -> tuple[int, Json]:
        """Call a Bot API method as the bot would; return status and envelope."""
        status, body = self.request("POST", f"/bot{self.token}/{method}", parameters)
        return status, cast("Json", json.loads(body))

    def control(self, method: str, path: str, content: object = None) -> Json:
        """Call the control interface; raise ``AssertionError`` unless it answers 200."""
        status, body = self.request(method, f"/sandbox/{path}", content)
        assert status == 200, f"{method} /sandbox/{path}: {status} {body!r}"
        return cast("Json", json.loads(body))

    def request(
        self, method: str, target: str, content: object = None, timeout: float = 75
    ) -> tuple[int, bytes]:
        """Send one request on a connection of its own; bytes go out as they are."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        headers = {} if isinstance(content, bytes) else {"Content-Type": "application/json"}
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=timeout)
        with contextlib.closing(connection):
            connection.request(method, target, None if content is None else body, headers)
            response = connection.getresponse()
            return response.status, response.read()

    def _list(self, name: str, **query: object) -> list[Json]:
        given = urlencode({key: value for key, value in query.items() if value})
        return cast("list[Json]", self.control("GET", f"{name}?{given}"))

    def _wait(self, name: str, n: int, timeout: float, **query: object) -> list[Json]:
        found = self._list(name, at_least=n, timeout=timeout, **query)
        if len(found) < n:
            raise AssertionError(f"{len(found)} of {n} {name} {query} after {timeout} s")
        return found


def sample_updates(name: str) -> list[bytes]:
    """Return the updates of a getUpdates body, each in its own bytes."""
    text = (_SAMPLES / "updates" / name).read_text("ascii")
    decoder = json.JSONDecoder()
    at = text.index("[") + 1
    updates = []
    while text[at] != "]":
        _, end = decoder.raw_decode(text, at)
        updates.append(text[at:end].encode("ascii"))
        at = end
        while text[at] in ",\n":
            at += 1
    return updates
