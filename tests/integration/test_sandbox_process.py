"""``python -m telegrammer_sandbox`` as an operator starts it."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from support.sandbox import Sandbox

TOKEN = "777:other-token"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-X", "dev", "-W", "error", "-m", "telegrammer_sandbox", *arguments]


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.Popen(
        command("--port", "0", *arguments),
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            match = re.search(r"Bot API URL: (http://\S+)\)", line)
            assert match, line
            yield process, match[1]
        finally:
            process.kill()


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.run(
        command(*arguments),
        env=environment,
        text=True,
        capture_output=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_and_then_stops_at_once(number: signal.Signals) -> None:
    with running("--token", TOKEN, "--username", "other_bot") as (process, url):
        sandbox = Sandbox(url, TOKEN)
        _, answer = sandbox.call("getMe")
        assert (answer["result"]["id"], answer["result"]["username"]) == (777, "other_bot")
        sandbox.say(5000000001, "hi")
        assert len(sandbox.call("getUpdates")[1]["result"]) == 1

        process.send_signal(number)
        _, errors = process.communicate(timeout=2)
    assert process.returncode == 0
    assert errors == ""


def test_an_occupied_port_is_one_line_and_exit_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run("--port", str(port))

    assert ended.returncode == 1
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in line
    assert "--port" in line


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org"])
def test_it_serves_this_machine_only(host: str) -> None:
    ended = run("--host", host, "--port", "0")

    assert ended.returncode == 2
    assert "loopback" in ended.stderr


def test_a_text_that_is_no_token_is_refused() -> None:
    assert run("--token", "no token").returncode == 2


def test_the_help_says_how_to_use_it() -> None:
    ended = run("--help")

    assert ended.returncode == 0
    for word in ("--port", "--token", "--username", "Bot API URL", "/sandbox/", "8081"):
        assert word in ended.stdout
