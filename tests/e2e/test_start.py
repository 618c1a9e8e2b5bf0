"""A process that cannot begin says why in one line, with the right status, at once."""

import os
import shutil
import socket
import sqlite3
import tempfile
import time
from pathlib import Path

import pytest

from support.instance import READY, ROLES, Instance
from support.legacy import make_legacy
from support.processes import PYTHON, Processes
from support.sandbox import Sandbox

AT_ONCE = 2.0  # seconds
NOBODY = 65534

# The interpreter may lie where only root can read it: it is left behind once all is loaded.
# gunicorn asks who it is when it is imported, so it is told.
AS_NOBODY = f"""
import encodings.idna, gunicorn.config, importlib, importlib.readers, os, sys
gunicorn.config.User.default = gunicorn.config.Group.default = {NOBODY}
module = importlib.import_module(sys.argv.pop(1) + ".__main__")
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
module.main()
"""
WITH_TOKEN = ("api", "poller")
ALONE = ("poller", "dispatcher")


def assert_refused(
    instance: Instance,
    role: str,
    status: int,
    *words: str,
    options: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
) -> None:
    """The process ends in time with this status and one error, which has these words.

    The time is that of the best of three starts: the machine may have other work.
    """
    took: list[float] = []
    while not took or (min(took) > AT_ONCE and len(took) < 3):
        began = time.monotonic()
        process = instance.spawn(role, *options, env=env)
        ended = process.wait()
        took.append(time.monotonic() - began)
        assert ended == status, process.output
    assert min(took) < AT_ONCE
    lines = [line for line in process.stderr.splitlines() if "level=info" not in line]
    (event,) = process.events("ended", level="error", component=role, status=status)
    assert len(lines) == 1, process.output
    assert process.stdout == ""
    assert all(word in event["error"] for word in words), event


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TELEGRAMMER_PORT", "0"),
        ("TELEGRAMMER_CALLBACK_TIMEOUT", "10 minutes"),
        ("TELEGRAMMER_BOT_API_URL", "http://api.telegram.org"),
        ("TELEGRAMMER_BOT_TOKEN_FILE", "/nowhere/bot-token"),
        ("TELEGRAMMER_LOG_LEVEL", "loud"),
    ],
)
def test_a_wrong_setting_is_named(instance: Instance, role: str, variable: str, value: str) -> None:
    """A setting out of range ends every process with 78 and its name."""
    instance.token = {}
    assert_refused(instance, role, 78, variable, env={variable: value})
    assert not instance.db.parent.exists()


@pytest.mark.parametrize("role", ROLES)
def test_a_wrong_option_is_named(instance: Instance, role: str) -> None:
    """An option out of range: 78, named as it was given; an unknown one: 2 and usage."""
    assert_refused(instance, role, 78, "--max-jobs", options=("--max-jobs", "0"))

    process = instance.spawn(role, "--no-such-option")
    assert process.wait() == 2
    assert "--no-such-option" in process.stderr


@pytest.mark.parametrize("role", WITH_TOKEN)
def test_no_token_no_start(instance: Instance, role: str) -> None:
    """Without a token: 78, and the line names both variables that can hold one."""
    instance.token = {}
    assert_refused(instance, role, 78, "TELEGRAMMER_BOT_TOKEN", "TELEGRAMMER_BOT_TOKEN_FILE")


def test_two_tokens_are_one_too_many(instance: Instance, tmp_path: Path) -> None:
    """Both variables set: 78, even when they hold the same token."""
    file = tmp_path / "bot-token"
    file.write_text(instance.token["TELEGRAMMER_BOT_TOKEN"])
    assert_refused(
        instance, "poller", 78, "not both", env={"TELEGRAMMER_BOT_TOKEN_FILE": str(file)}
    )


def test_the_dispatcher_needs_no_token(instance: Instance) -> None:
    """The dispatcher never sees the token, so it does not ask for one."""
    assert "TELEGRAMMER_BOT_TOKEN" not in instance.env
    instance.start("dispatcher")


@pytest.mark.parametrize("role", ROLES)
def test_a_legacy_database_names_the_way_on(instance: Instance, role: str) -> None:
    """The old layout: 78, `telegrammer migrate` named, and not a byte changed."""
    instance.db.parent.mkdir()
    make_legacy(instance.db)
    before = instance.db.read_bytes()

    assert_refused(instance, role, 78, "telegrammer migrate")

    assert instance.db.read_bytes() == before


@pytest.mark.parametrize("role", ROLES)
def test_a_foreign_or_newer_database_is_left_alone(instance: Instance, role: str) -> None:
    """No database, another program's or a newer version's: 78, untouched."""
    instance.db.parent.mkdir()
    instance.db.write_text("dear diary")
    assert_refused(instance, role, 78, "not a SQLite database")

    instance.db.unlink()
    connection = sqlite3.connect(instance.db)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = instance.db.read_bytes()
    assert_refused(instance, role, 78, "newer version")

    assert instance.db.read_bytes() == before


@pytest.mark.parametrize("role", ALONE)
def test_only_one_of_a_kind_runs(instance: Instance, role: str) -> None:
    """A second poller or dispatcher on the database: 75. After a kill the role is free."""
    first = instance.start(role)
    assert_refused(instance, role, 75, f"another {role} is running")
    assert first.is_running

    first.kill()
    instance.start(role)


@pytest.mark.parametrize("role", ALONE)
def test_a_lock_file_that_is_a_link_is_refused(
    instance: Instance, role: str, tmp_path: Path
) -> None:
    """The lock file is opened without following links: 78, and the target stays as it was."""
    target = tmp_path / "precious"
    target.write_text("precious")
    target.chmod(0o644)
    instance.db.parent.mkdir(mode=0o700)
    instance.db.with_name(f"{instance.db.name}.{role}.lock").symlink_to(target)

    assert_refused(instance, role, 78, "lock file")

    assert target.read_text() == "precious"
    assert target.stat().st_mode & 0o777 == 0o644


def test_an_occupied_port_ends_the_api(instance: Instance) -> None:
    """The port is taken: 1 and a line with the address, before any worker was started."""
    with socket.create_server(("127.0.0.1", instance.port)):
        assert_refused(instance, "api", 1, "127.0.0.1", str(instance.port))


@pytest.mark.parametrize("role", ROLES)
def test_a_full_disk_is_told(instance: Instance, processes: Processes, role: str) -> None:
    """No room for what SQLite puts beside a database: that, and what to do, not its disk's health.

    A limit on the size of files stands in for the disk.
    """
    instance.add_key()
    command = ["sh", "-c", 'ulimit -f 8; exec "$0" "$@"', *PYTHON, "-m", f"telegrammer_{role}"]
    process = processes.start(role, command, instance.env | instance.token)

    assert process.wait() == 1
    (event,) = process.events("ended", level="error")
    assert "disk_full (make room" in event["error"]


def test_another_bots_database_is_refused(instance: Instance, sandbox: Sandbox) -> None:
    """The database belongs to one bot: with another's token the poller ends with 78."""
    instance.start("poller").terminate()
    calls = len(sandbox.calls("getUpdates"))

    with Sandbox.start(token="654321:another-bots-token-of-thirty-five-chars") as other:
        env = {"TELEGRAMMER_BOT_API_URL": other.url, "TELEGRAMMER_BOT_TOKEN": other.token}
        assert_refused(instance, "poller", 78, "bot", "654321", env=env)
        assert other.calls("getUpdates") == []
    assert len(sandbox.calls("getUpdates")) == calls


def test_everything_is_its_owners_alone(instance: Instance, processes: Processes) -> None:
    """Whatever the umask: the folder is 0700, each file in it 0600."""
    for role in ALONE:
        command = ["sh", "-c", 'umask 000; exec "$0" "$@"', *PYTHON, "-m", f"telegrammer_{role}"]
        process = processes.start(role, command, instance.env | instance.token)
        process.wait_event("started")
    instance.add_key()

    assert instance.db.parent.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in instance.db.parent.iterdir()}
    assert len(modes) >= 6
    assert set(modes.values()) == {0o600}, modes


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("role", ROLES)
def test_a_service_user_needs_nothing_but_its_folder(
    instance: Instance, processes: Processes, role: str
) -> None:
    """As a user without a home, in a folder given to it: it starts, and all is its own."""
    folder = Path(tempfile.mkdtemp())
    try:
        os.chown(folder, NOBODY, NOBODY)
        env = {"TELEGRAMMER_DB": str(folder / "telegrammer.db"), "HOME": "/nonexistent"}
        command = [*PYTHON, "-c", AS_NOBODY, f"telegrammer_{role}"]
        env = instance.env | instance.token | env
        process = processes.start(role, command, env, cwd=Path("/"))
        process.wait_event(READY[role])
        assert process.terminate() == 0

        files = [file.stat() for file in folder.iterdir()]
        assert files
        assert {(file.st_uid, file.st_mode & 0o777) for file in files} == {(NOBODY, 0o600)}
    finally:
        shutil.rmtree(folder)
