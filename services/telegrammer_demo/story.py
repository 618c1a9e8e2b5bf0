"""What is done and shown, step by step."""

import http.client
import json
import queue
import textwrap
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import click

from telegrammer_demo.receiver import Arrival, Receiver
from telegrammer_demo.stage import Stage, Trouble

PATIENCE: Final = 30.0  # seconds that a step may take
CHAT: Final = 5000000001  # the sandbox's Ann, who writes to the bot in private

Json = dict[str, Any]


def start(stage: Stage) -> str:
    """Wait until everything runs; return an API key."""
    began = time.monotonic()
    key = stage.command("add-key", "demo")
    _wait_until(lambda: _is_healthy(stage, key), "the gateway is not healthy", stage)
    _step("start", f"the sandbox plays Telegram; API, poller and dispatcher run  {_took(began)}")
    _step("add a key", f"telegrammer add-key demo  ->  {key[:6]}...{key[-4:]}")
    return key


def tell(stage: Stage, receiver: Receiver, key: str) -> None:
    """Do and show one message in and one message out."""
    _subscribe(stage, receiver, key)
    _receive(stage, receiver)
    _send(stage, key)


def _subscribe(stage: Stage, receiver: Receiver, key: str) -> None:
    wanted = {"chat_id": CHAT, "callback_url": receiver.url}
    answer = call(stage.api, "POST", "/subscribe", wanted, key)
    _step("subscribe", f"POST /subscribe  chat {CHAT}  ->  {receiver.url}")
    _detail(json.dumps(answer))


def _receive(stage: Stage, receiver: Receiver) -> None:
    text = "Hello from Ann!"
    began = time.monotonic()
    call(stage.sandbox, "POST", "/sandbox/messages", {"chat_id": CHAT, "text": text})
    try:
        arrival = receiver.arrivals.get(timeout=PATIENCE)
    except queue.Empty:
        raise Trouble(f"the message did not arrive\n{stage.logs()}") from None
    _step("receive", f"Ann writes to the bot; it arrives at the receiver  {_took(began)}")
    show(arrival)
    _detail(f"X-Telegrammer-Delivery-Id: {arrival.delivery_id}")


def _send(stage: Stage, key: str) -> None:
    text = "Hello Ann, this is the gateway."
    call(stage.api, "POST", "/send", {"chat_id": CHAT, "text": text}, key)
    sent = call(stage.sandbox, "GET", f"/sandbox/sent?chat_id={CHAT}")
    shown = sent[-1]["message"]["text"]
    if shown != text:
        raise Trouble(f"the sandbox shows another message than was sent: {shown}")
    _step("send", f"POST /send  chat {CHAT};  the chat in the sandbox shows")
    _detail(f"bot: {shown}")


def show(arrival: Arrival) -> None:
    """Show what arrived at the receiver."""
    _detail(f"{arrival.writer}: {arrival.text}")


def show_next(stage: Stage, key: str) -> None:
    """Say what to try now; the lines can be pasted as they are."""
    click.echo()
    click.secho("Try next", bold=True)
    click.echo(f"  The chat page, to write as Ann:  {click.style(stage.sandbox + '/', fg='cyan')}")
    click.echo("  In another terminal:")
    click.echo(
        textwrap.indent(
            f"""
curl {stage.api}/health -H 'Authorization: Bearer {key}'
curl {stage.api}/send -H 'Authorization: Bearer {key}' \\
  -H 'Content-Type: application/json' \\
  -d '{{"username": "ann_example", "text": "Hello once more"}}'
""",
            "    ",
        )
    )
    click.echo("What arrives at the receiver is shown here. Ctrl-C stops everything.")


def call(base: str, method: str, path: str, content: object = None, key: str | None = None) -> Any:  # noqa: ANN401  # JSON of any shape
    """Make a request and return its JSON; raise ``Trouble`` unless it is answered with 200."""
    status, answer = _exchange(base, method, path, content, key)
    if status != http.client.OK:
        raise Trouble(f"{method} {path}: {status} {json.dumps(answer)}")
    return answer


def _exchange(
    base: str, method: str, path: str, content: object, key: str | None
) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    connection = http.client.HTTPConnection(urlsplit(base).netloc, timeout=PATIENCE)
    try:
        connection.request(method, path, json.dumps(content), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def _is_healthy(stage: Stage, key: str) -> bool:
    try:
        _, answer = _exchange(stage.api, "GET", "/health", None, key)
    except OSError:
        return False
    return isinstance(answer, Mapping) and answer.get("status") == "healthy"


def _wait_until(holds: Callable[[], bool], otherwise: str, stage: Stage) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if stage.supervisord.poll() is not None:
            raise Trouble(f"supervisord has ended\n{stage.logs()}")
        if time.monotonic() > deadline:
            raise Trouble(f"{otherwise} after {PATIENCE:.0f} s\n{stage.logs()}")
        time.sleep(0.05)


def _step(name: str, text: str) -> None:
    click.echo(f"{click.style('+', fg='green')} {click.style(f'{name:<10}', bold=True)} {text}")


def _detail(text: str) -> None:
    click.secho(f"{'':<13}{text}", dim=True)


def _took(began: float) -> str:
    seconds = time.monotonic() - began
    return f"({seconds:.1f} s)" if seconds >= 1 else f"({seconds * 1000:.0f} ms)"
