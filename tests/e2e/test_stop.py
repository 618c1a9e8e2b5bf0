"""SIGTERM and SIGINT: nothing new is begun, what runs is finished, the status is 0."""

import signal
import threading
import time

import pytest

from support.instance import ROLES, Instance
from support.processes import PATIENCE, Process
from support.receiver import Received, Receiver, Reply
from support.sandbox import Sandbox
from support.secrets import Secrets

AT_ONCE = 1.0  # seconds
CHAT = 5000000001


def stop(process: Process, number: signal.Signals = signal.SIGTERM) -> float:
    """Stop the process; return how many seconds that took."""
    began = time.monotonic()
    process.send(number)
    assert process.wait() == 0, process.output
    return time.monotonic() - began


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("role", ROLES)
def test_an_idle_process_stops_at_once(
    instance: Instance, sandbox: Sandbox, role: str, number: signal.Signals
) -> None:
    """Idle, which for the poller means in a long poll of 30 s: under a second.

    The best of three counts: the machine may have other work.
    """
    took: list[float] = []
    while not took or (min(took) > AT_ONCE and len(took) < 3):
        process = instance.start(role)
        if role == "poller":
            sandbox.wait_calls("getUpdates", 1, state="parked")
        took.append(stop(process, number))
        assert process.events("stopped")
    assert min(took) < AT_ONCE


def test_a_backoff_is_cut_short(instance: Instance, sandbox: Sandbox) -> None:
    """A poller that waits for a minute because of 429 stops at once."""
    sandbox.fault_sample("getUpdates", "e04_429_retry_after_huge.json")
    poller = instance.start("poller")
    assert float(poller.wait_event("poll_failed")["retry_in"]) >= 60

    assert stop(poller) < 5


def test_a_stopped_poller_stops(instance: Instance, sandbox: Sandbox) -> None:
    """After a refused token the poller stays up, says what to do, and stops when told."""
    sandbox.fault_sample("getUpdates", "e28_401_invalid_token_specified.json")
    poller = instance.start("poller")
    assert "token" in poller.wait_event("polling_stopped")["advice"]

    assert stop(poller) < 5


def test_unconfirmed_updates_come_again(
    instance: Instance, sandbox: Sandbox, secrets: Secrets
) -> None:
    """A stop in the middle of an answer loses nothing: the next poller gets the message."""
    sandbox.fault("getUpdates", hold=True)
    poller = instance.start("poller")
    sandbox.wait_calls("getUpdates", 1, state="parked")
    sandbox.say(CHAT, secrets.text())
    sandbox.wait_held("getUpdates")
    stop(poller)
    sandbox.release()

    instance.start("poller")

    assert len(sandbox.wait_confirmed(1)) == 1


def test_a_running_callback_is_finished(
    instance: Instance, sandbox: Sandbox, secrets: Secrets
) -> None:
    """A callback in flight gets its answer recorded, and nothing else is begun."""
    answered = threading.Event()

    def reply(_request: Received) -> Reply:
        answered.wait(PATIENCE)
        return Reply(200)

    key = instance.add_key()
    with Receiver(reply) as receiver:
        api = instance.start("api")
        instance.subscribe(key, CHAT, receiver.url)
        instance.start("poller")
        dispatcher = instance.start("dispatcher")
        sandbox.say(CHAT, secrets.text())
        sandbox.say(CHAT, secrets.text())
        receiver.wait(1)
        sandbox.wait_confirmed(2)

        dispatcher.stop_signal()
        dispatcher.wait_event("stopping", running=1)
        answered.set()
        assert dispatcher.wait() == 0

        assert len(dispatcher.events("delivered")) == len(receiver.received) == 1
        assert stop(api) < 5


def test_a_running_request_is_finished(
    instance: Instance, sandbox: Sandbox, secrets: Secrets
) -> None:
    """A send that waits for Telegram gets its answer after the stop began."""
    key, text = instance.add_key(), secrets.text()
    api = instance.start("api")
    sandbox.fault("sendMessage", hold=True, run=True)
    answers: list[int] = []
    caller = threading.Thread(
        target=lambda: answers.append(instance.call(key, "/send", {"chat_id": CHAT, "text": text}))
    )
    caller.start()
    sandbox.wait_held("sendMessage")

    api.stop_signal()
    sandbox.release()
    caller.join(PATIENCE)

    assert api.wait() == 0
    assert answers == [200]
    assert [message["text"] for message in sandbox.sent()] == [text]
