"""What a machine does to the processes: files that go, a full disk, few descriptors."""

import contextlib
import sys

import pytest

from support.instance import READY, ROLES, Instance
from support.processes import Process, Processes
from support.receiver import Receiver
from support.sandbox import Sandbox
from support.secrets import Secrets

CHAT = 5000000001


def spawn_in_shell(
    processes: Processes, instance: Instance, role: str, script: str, *options: str
) -> Process:
    """Start a process by a line of the shell, in which ``"$@"`` is its command."""
    command = [sys.executable, "-m", f"telegrammer_{role}", *options]
    env = instance.env | ({} if role == "dispatcher" else instance.token)
    return processes.start(f"telegrammer_{role}", ["sh", "-c", script, "sh", *command], env)


def test_nothing_is_taken_into_a_database_that_was_removed(
    instance: Instance, sandbox: Sandbox, secrets: Secrets
) -> None:
    """Telegram keeps the message: what the open file took would be lost with it."""
    poller = instance.start("poller")
    sandbox.wait_parked()
    instance.db.unlink()

    sandbox.say(CHAT, secrets.text())

    poller.wait_event("poll_failed", reason="storage_replaced")
    assert sandbox.confirmed() == []


@pytest.mark.parametrize("role", ["poller", "dispatcher"])
def test_a_link_to_the_database_is_no_second_database(instance: Instance, role: str) -> None:
    """Else each name would have locks of its own."""
    instance.start(role)
    link = instance.db.with_name("link.db")
    link.symlink_to(instance.db)

    second = instance.spawn(role, "--db", str(link))

    assert second.wait() == 75, second.output


@pytest.mark.parametrize("role", ROLES)
def test_a_log_that_cannot_be_written_does_not_change_the_exit_status(
    instance: Instance, processes: Processes, role: str
) -> None:
    """A supervisor decides by it whether to start the process again."""
    wrong = spawn_in_shell(
        processes, instance, role, 'exec "$@" 2>/dev/full', "--callback-workers", "many"
    )

    assert wrong.wait() == 78


def test_few_descriptors_do_not_cut_receivers_off(
    instance: Instance, processes: Processes, sandbox: Sandbox, secrets: Secrets
) -> None:
    """Connections that are kept idle leave room for those to other receivers."""
    key = instance.add_key()
    instance.start("api")
    instance.start("poller")
    dispatcher = spawn_in_shell(processes, instance, "dispatcher", 'ulimit -n 64; exec "$@"')
    dispatcher.wait_event(READY["dispatcher"])
    with contextlib.ExitStack() as opened:
        receivers = [opened.enter_context(Receiver()) for _ in range(70)]
        for receiver in receivers:
            instance.subscribe(key, CHAT, receiver.url)
        sandbox.say(CHAT, secrets.text())
        for receiver in receivers:
            receiver.wait(1)


def test_more_callbacks_than_descriptors_are_a_wrong_setting(
    instance: Instance, processes: Processes
) -> None:
    script = 'ulimit -n 64; exec "$@"'
    dispatcher = spawn_in_shell(
        processes, instance, "dispatcher", script, "--callback-workers", "256"
    )

    assert dispatcher.wait() == 78
    assert "TELEGRAMMER_CALLBACK_WORKERS" in dispatcher.output
