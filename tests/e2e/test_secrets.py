"""Nothing that must stay secret is written anywhere, whatever goes wrong.

The looking is done by ``support.secrets``, after every test; here everything happens that
could tempt a process to write too much.
"""

import json

import pytest

from support.instance import ROLES, Instance
from support.processes import parse_event
from support.receiver import Receiver, Reply
from support.running_api import free_port
from support.sandbox import Sandbox
from support.secrets import Secrets

ANN = 5000000001


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_log_answer_or_listing_holds_a_secret(
    instance: Instance, sandbox: Sandbox, secrets: Secrets, log_format: str
) -> None:
    """At the level debug, in both formats, with failures of every kind: not one secret."""
    env = {
        "TELEGRAMMER_LOG_LEVEL": "debug",
        "TELEGRAMMER_LOG_FORMAT": log_format,
        "TELEGRAMMER_CALLBACK_ATTEMPTS": "1",
    }
    key, stranger = instance.add_key(), secrets.key("0" * 64)
    running = [instance.start(role, env) for role in ROLES]
    poller, dispatcher = running[1], running[2]
    with Receiver(lambda _: Reply(404, body=secrets.text("answer").encode())) as receiver:
        host = receiver.url.removeprefix("http://")
        for origin in (f"http://{host}", f"https://{host}", f"http://127.0.0.1:{free_port()}"):
            url = f"{origin}/{secrets.text('path')}?q={secrets.text('query')}"
            instance.subscribe(key, ANN, url)
        sandbox.say(ANN, secrets.text())
        dispatcher.wait_event("dead", n=3)

    sandbox.push_raw(json.dumps({"update_id": 900000001, "message": {"text": secrets.text()}}))
    poller.wait_event("poll_failed", reason="malformed_update")
    sandbox.fault("sendMessage", status=500, body=secrets.text("body"))
    sandbox.fault("sendMessage", close=True)
    for _ in range(2):
        assert instance.call(key, "/send", {"chat_id": ANN, "text": secrets.text()}) == 502
    refused = f"/send?q={secrets.text('query')}"
    assert instance.call(key, refused, {"chat_id": ANN, "txt": secrets.text()}) == 400
    assert instance.call(stranger, refused, {"chat_id": ANN}) == 401
    assert instance.call(key, f"/{secrets.text('path')}", {}) == 404
    for listing in ("list-keys", "list-failed-deliveries", "config", "status", "check"):
        instance.list(listing)
        instance.list(listing, "--json")

    for process in running:
        events = [parse_event(line) for line in process.stderr.splitlines()]
        assert len(events) > 3
        assert all({"time", "level", "component", "event"} <= event.keys() for event in events)
        assert process.stderr.startswith("{") is (log_format == "json")
