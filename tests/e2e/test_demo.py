"""`make demo`: shows everything, and leaves nothing."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil
import pytest

from support.processes import REPOSITORY, Process, Processes
from support.sandbox import TOKEN

PATIENCE: Final = 60.0  # seconds; the demo starts five processes, on a machine that has others
CONF: Final = REPOSITORY / "supervisord.conf"
SHOWN: Final = (
    "start",
    "add a key",
    "subscribe",
    "receive",
    "Ann: Hello from Ann!",
    "X-Telegrammer-Delivery-Id: ",
    "send",
    "bot: Hello Ann, this is the gateway.",
)


def demo(
    processes: Processes,
    folder: Path,
    *options: str,
    conf: Path = CONF,
    env: Mapping[str, str] | None = None,
) -> Process:
    command = [sys.executable, "-m", "telegrammer_demo", *options, str(conf)]
    return processes.start("demo", command, env or {}, cwd=folder)


def assert_shown(process: Process) -> None:
    positions = [process.stdout.find(text) for text in SHOWN]
    assert -1 not in positions, process.output
    assert positions == sorted(positions)


def daemons_of(folder: Path) -> list[psutil.Process]:
    """Return the running processes whose database lies in the folder."""
    found = []
    for process in psutil.process_iter(["environ"]):
        if (process.info["environ"] or {}).get("TELEGRAMMER_DB", "").startswith(str(folder)):
            found.append(process)
    return found


def test_it_shows_everything_and_leaves_nothing(processes: Processes, tmp_path: Path) -> None:
    """Five steps in order, exit 0, nothing of it left; the caller's own gateway is not touched."""
    real = tmp_path / "real.db"
    own = {"TELEGRAMMER_BOT_TOKEN": TOKEN, "TELEGRAMMER_DB": str(real), "TELEGRAMMER_PORT": "1"}
    process = demo(processes, tmp_path, "--once", env=own)

    assert process.wait(PATIENCE) == 0, process.output
    assert_shown(process)
    assert daemons_of(tmp_path) == []
    assert list((tmp_path / ".demo" / "1").iterdir()) == []
    assert not real.exists()


def test_two_at_once_and_taken_ports(processes: Processes, tmp_path: Path) -> None:
    """Two demos at once, the usual ports being taken by others, do not disturb each other."""
    held = []
    for port in (8080, 8081):
        try:
            held.append(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue  # taken by somebody else: as good
    try:
        both = [demo(processes, tmp_path, "--once") for _ in range(2)]
        for process in both:
            assert process.wait(PATIENCE) == 0, process.output
            assert_shown(process)
    finally:
        for listener in held:
            listener.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_it_can_be_tried_and_stopped(
    processes: Processes, tmp_path: Path, number: signal.Signals
) -> None:
    """The curl lines that it prints work as they stand; Ctrl-C ends all of it, with 0."""
    process = demo(processes, tmp_path)
    process.wait_output("Ctrl-C stops everything.", PATIENCE)
    lines = process.stdout.replace("\\\n", "")
    commands = re.findall(r"^ +(curl .*)$", lines, re.M)
    answers = [
        subprocess.run(["sh", "-c", f"{command} -sS"], capture_output=True, text=True, check=True)
        for command in commands
    ]

    assert len(answers) == 2
    assert '"status":"healthy"' in answers[0].stdout
    assert '"text":"Hello once more"' in answers[1].stdout
    process.send(number)
    assert process.wait(PATIENCE) == 0, process.output
    assert "nothing is left running" in process.stdout
    assert daemons_of(tmp_path) == []


def test_it_cleans_up_after_one_that_was_killed(processes: Processes, tmp_path: Path) -> None:
    """A demo that was killed leaves its processes; the next one starts when they have ended."""
    impatient = tmp_path / "supervisord.conf"
    conf = CONF.read_text()
    impatient.write_text(re.sub(r"stopwaitsecs *= *\d+", "stopwaitsecs = 6", conf))
    first = demo(processes, tmp_path, conf=impatient)
    first.wait_output("Ctrl-C stops everything.", PATIENCE)
    first.kill()
    left = daemons_of(tmp_path)
    [poller] = [process for process in left if "telegrammer-poller" in " ".join(process.cmdline())]
    poller.suspend()  # it ends when supervisord kills it

    second = demo(processes, tmp_path, "--once")
    second.wait_output(SHOWN[0], PATIENCE)

    assert not any(process.is_running() for process in left)
    assert second.wait(PATIENCE) == 0, second.output
    assert_shown(second)


def test_it_says_what_went_wrong(processes: Processes, tmp_path: Path) -> None:
    """When supervisord cannot go on, the demo ends with 1 at once and shows its last words."""
    broken = tmp_path / "broken.conf"
    text = CONF.read_text()
    broken.write_text(text.replace("stopwaitsecs = 60", "stopwaitsecs = a while"))

    process = demo(processes, tmp_path, "--once", conf=broken)

    assert process.wait(PATIENCE) == 1
    assert "supervisord has ended" in process.stderr
    assert "a while" in process.stderr


def test_make_run_wants_a_token() -> None:
    """Without a token `make run` says so in one line, status 78, and starts nothing."""
    env = {name: value for name, value in os.environ.items() if "TELEGRAMMER" not in name}
    command = ["make", "--no-print-directory", "-C", str(REPOSITORY), "run"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    line, *rest = done.stderr.splitlines()
    assert done.returncode == 2  # make's own, whatever failed
    assert "TELEGRAMMER_BOT_TOKEN" in line
    assert len(rest) == 1
    assert rest[0].endswith("Error 78")


def fake_checkout(folder: Path) -> Path:
    """Make a checkout in which every program that make starts prints its PATH, and no more."""
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    (folder / ".ci").mkdir()
    shutil.copy(REPOSITORY / "Makefile", folder)
    for name in ("python", "telegrammer", "supervisord", "ruff", "mypy", "../../.ci/setup"):
        (programs / name).write_text('#!/bin/sh\necho "$PATH"\n')
        (programs / name).chmod(0o700)
    return programs


def make(checkout: Path, target: str) -> "subprocess.CompletedProcess[str]":
    command = ["make", "--no-print-directory", "-C", str(checkout), target]
    env = os.environ | {"TELEGRAMMER_BOT_TOKEN": "123456:any"}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("status", "starts"), [(0, True), (1, True), (78, False)])
def test_make_run_ends_at_a_wrong_setting(tmp_path: Path, status: int, starts: bool) -> None:
    """What else the check finds may have passed by the time that it matters."""
    programs = fake_checkout(tmp_path)
    (programs / "telegrammer").write_text(f"#!/bin/sh\nexit {status}\n")
    (programs / "supervisord").write_text("#!/bin/sh\necho started\n")

    done = make(tmp_path, "run")

    assert ("started" in done.stdout.splitlines()) is starts
    assert (done.returncode == 0) is starts
    assert done.stderr.endswith("Error 78\n") is not starts


@pytest.mark.parametrize("target", ["demo", "run", "test", "lint"])
def test_a_checkout_may_stand_in_a_folder_with_a_space(tmp_path: Path, target: str) -> None:
    """Every program that make starts is found there, the daemons' commands too."""
    checkout = tmp_path / "a folder"
    programs = fake_checkout(checkout)

    done = make(checkout, target)

    assert (done.returncode, done.stderr) == (0, "")
    if target == "run":
        assert done.stdout.splitlines()[-1].startswith(f"{programs}:")
