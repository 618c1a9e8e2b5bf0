"""The systemd units: correct, shut in, and yet the processes run inside them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from support.instance import READY, ROLES, Instance
from support.processes import PYTHON, REPOSITORY, Processes
from support.receiver import Receiver
from support.sandbox import Sandbox
from support.secrets import Secrets

UNITS: Final = REPOSITORY / "systemd"
CHAT: Final = 5000000001


def needs(program: str, package: str) -> pytest.MarkDecorator:
    """Skip without the program; where CI promises all of them, fail instead."""
    return pytest.mark.skipif(
        not shutil.which(program) and "CI" not in os.environ,
        reason=f"{program} is not installed: apt-get install -y {package}",
    )


def settings_of(role: str) -> list[str]:
    """Return the lines of a unit, without comments and empty ones."""
    lines = (UNITS / f"telegrammer-{role}.service").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def analyze(*arguments: str) -> str:
    done = subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@needs("systemd-analyze", "systemd")
def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    """`systemd-analyze verify` has not a word to say, the programs being installed."""
    for unit in UNITS.iterdir():
        text = re.sub(r"^(ExecStart=)\S+", rf"\1{sys.executable}", unit.read_text(), flags=re.M)
        (tmp_path / unit.name).write_text(text)

    assert analyze("verify", *map(str, sorted(tmp_path.iterdir()))) == ""


@needs("systemd-analyze", "systemd")
@pytest.mark.parametrize("role", ROLES)
def test_the_exposure_is_low(role: str) -> None:
    """`systemd-analyze security` gives every unit less than 2.0 of 10."""
    found = analyze("security", "--offline=true", str(UNITS / f"telegrammer-{role}.service"))
    exposure = re.search(r"Overall exposure level .*: ([0-9.]+)", found)

    assert exposure
    assert float(exposure[1]) < 2.0


@pytest.mark.parametrize("role", ROLES)
def test_each_unit_says_what_operators_rely_on(role: str) -> None:
    """Folder, modes, database, time to stop, statuses after which nothing is tried again."""
    program, db = f"/opt/telegrammer/bin/telegrammer-{role}", "/var/lib/telegrammer/telegrammer.db"
    assert {
        "User=telegrammer",
        "StateDirectory=telegrammer",
        "StateDirectoryMode=0700",
        "UMask=0077",
        f"ExecStart={program} --db {db}",
        "TimeoutStopSec=60",
        "Restart=on-failure",
        "RestartPreventExitStatus=75 78",
        "PartOf=telegrammer.target",
    } <= set(settings_of(role))


def test_the_dispatcher_never_sees_the_token() -> None:
    """Not even when it stands in the file of the other settings."""
    (unset,) = [s for s in settings_of("dispatcher") if s.startswith("UnsetEnvironment=")]

    assert {"TELEGRAMMER_BOT_TOKEN", "TELEGRAMMER_TELEGRAM_PROXY"} <= set(unset[17:].split())


def test_the_units_differ_only_where_they_must() -> None:
    """Sandboxing and the rest are the same in all three units."""
    own = re.compile(
        "Description|Type|NotifyAccess|ExecStart|LoadCredential|Environment=|Unset|KillMode"
    )
    shared = [[line for line in settings_of(role) if not own.match(line)] for role in ROLES]

    assert shared[0] == shared[1] == shared[2]
    assert len(shared[0]) > 40


def test_only_those_who_need_it_get_the_token() -> None:
    """API and poller get the token as a credential, the dispatcher does not."""
    credential = "LoadCredential=bot-token:/etc/telegrammer/bot-token"

    assert [credential in settings_of(role) for role in ROLES] == [True, True, False]
    assert "bot-token" not in "".join(settings_of("dispatcher"))


def test_the_target_starts_all_three() -> None:
    """The target wants each unit."""
    wanted = " ".join(f"telegrammer-{role}.service" for role in ROLES)

    assert f"Wants={wanted}" in (UNITS / "telegrammer.target").read_text()


@needs("systemd-analyze", "systemd")
@needs("strace", "strace")
def test_the_processes_need_no_more_than_the_units_allow(
    instance: Instance, processes: Processes, sandbox: Sandbox, secrets: Secrets, tmp_path: Path
) -> None:
    """A message in and one out need only system calls and sockets that the units allow."""
    key = instance.add_key()
    traced = {}
    for role in ROLES:
        strace = ["strace", "-f", "-qq", "-o", str(tmp_path / role)]
        command = [*strace, *PYTHON, "-m", f"telegrammer_{role}"]
        env = instance.env | (instance.token if role != "dispatcher" else {})
        traced[role] = processes.start(role, command, env)
        traced[role].wait_event(READY[role], timeout=60)
    with Receiver() as receiver:
        instance.subscribe(key, CHAT, receiver.url)
        sandbox.say(CHAT, secrets.text())
        receiver.wait(1)
        assert instance.call(key, "/send", {"chat_id": CHAT, "text": secrets.text()}) == 200
    for process in traced.values():
        process.stop_children()
        assert process.wait(60) == 0

    allowed = allowed_calls() | ({"fchown"} if os.geteuid() == 0 else set())  # SQLite, as root
    for role in ROLES:
        trace = (tmp_path / role).read_text()
        assert set(re.findall(r"^\d+ +([a-z0-9_]+)\(", trace, re.M)) <= allowed, role
        assert set(re.findall(r"socket\((AF_\w+)", trace)) <= {"AF_INET", "AF_INET6", "AF_UNIX"}
        assert not re.search(r"PROT_WRITE.*PROT_EXEC|PROT_EXEC.*PROT_WRITE", trace), role


def allowed_calls() -> set[str]:
    """Return the system calls of ``SystemCallFilter=`` in the units."""
    lines = settings_of("poller")
    assert "SystemCallFilter=@system-service" in lines
    assert "SystemCallFilter=~@privileged @resources" in lines
    groups: dict[str, set[str]] = {}
    for line in analyze("syscall-filter", "--no-pager").splitlines():
        if line.startswith("@"):
            members = groups.setdefault(line.strip(), set())
        elif line.startswith("    ") and not line.lstrip().startswith("#"):
            members.add(line.strip())

    def calls(group: str) -> set[str]:
        nested = (calls(name) if name[0] == "@" else {name} for name in groups[group])
        return set().union(*nested)

    return calls("@system-service") - calls("@privileged") - calls("@resources")
