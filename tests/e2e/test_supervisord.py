"""The three processes under supervisord, as `make run` and a container start them."""

import configparser
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil
import pytest

from support.instance import ROLES, Instance
from support.processes import PATIENCE, REPOSITORY, Process, Processes
from support.secrets import Secrets

BIN: Final = Path(sys.executable).parent


class Supervised:
    """A copy of `supervisord.conf` in a folder of its own, and what it runs."""

    def __init__(
        self, processes: Processes, secrets: Secrets, instance: Instance, folder: Path
    ) -> None:
        self._processes = processes
        self._env = instance.env | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        self._conf = shutil.copy(REPOSITORY / "supervisord.conf", folder)
        self.folder = folder / ".run"
        self.folder.mkdir()
        for role in ROLES:
            secrets.wrote(f"the {role}'s log", lambda role=role: self.log(role))  # type: ignore[misc]

    def start(self, **env: str) -> Process:
        script = 'umask 077; exec supervisord -n -c "$0"'
        command = ["sh", "-c", script, str(self._conf)]
        return self._processes.start("supervisord", command, self._env | env)

    def control(self, *arguments: str) -> str:
        command = [str(BIN / "supervisorctl"), "-c", str(self._conf), *arguments]
        process = self._processes.start("supervisorctl", command, self._env)
        process.wait()
        return process.output

    def states(self) -> dict[str, str]:
        """Return what supervisord says of each role, such as ``RUNNING``."""
        words = [line.split() for line in self.control("status").splitlines()]
        return {line[0].removeprefix("telegrammer:"): line[1] for line in words}

    def pid(self, role: str) -> int:
        return int(self.control("pid", f"telegrammer:{role}"))

    def log(self, role: str) -> str:
        file = self.folder / f"{role}.log"
        return file.read_text() if file.exists() else ""

    def wait_logged(self, role: str, event: str, n: int = 1) -> None:
        wait_until(lambda: self.log(role).count(f"event={event}") >= n, self.log(role))


def wait_until(holds: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


@pytest.mark.parametrize("role", ROLES)
def test_each_program_says_what_operators_rely_on(role: str) -> None:
    conf = configparser.ConfigParser(interpolation=None)
    conf.read(REPOSITORY / "supervisord.conf")
    program = conf[f"program:{role}"]

    assert conf["supervisord"]["nodaemon"] == "true"
    assert program["command"] == f"telegrammer-{role}"
    assert program["stopwaitsecs"] == "60"
    assert program["autorestart"] == "unexpected"
    assert program["exitcodes"] == "0,75,78"
    assert program["stderr_logfile"] == f"%(here)s/.run/{role}.log"


@pytest.fixture
def supervised(
    processes: Processes, secrets: Secrets, instance: Instance, tmp_path: Path
) -> Supervised:
    return Supervised(processes, secrets, instance, tmp_path)


def test_it_starts_three_processes_and_stops_them(
    supervised: Supervised, instance: Instance
) -> None:
    """All three run, healthy, each with a log of its own; TERM ends everything with 0."""
    supervisord = supervised.start(**instance.token)
    supervised.wait_logged("api", "worker_started")
    supervised.wait_logged("poller", "bound")
    supervised.wait_logged("dispatcher", "started")

    assert supervised.states() == dict.fromkeys(ROLES, "RUNNING")
    assert '"status": "healthy"' in instance.run("status", "--json").stdout
    began = time.monotonic()
    assert supervisord.terminate() == 0
    assert time.monotonic() - began < 5
    for role in ROLES:
        assert "event=stopped" in supervised.log(role)


def test_secrets_stay_with_those_who_need_them(supervised: Supervised, instance: Instance) -> None:
    """Logs, control socket and pid file are 0600; the dispatcher does not get the token."""
    supervised.start(**instance.token)
    supervised.wait_logged("poller", "bound")
    supervised.wait_logged("dispatcher", "started")
    token = instance.token["TELEGRAMMER_BOT_TOKEN"].encode()

    modes = {path.name: path.stat().st_mode & 0o777 for path in supervised.folder.iterdir()}

    assert {"api.log", "poller.log", "supervisor.sock", "supervisord.pid"} <= modes.keys()
    assert set(modes.values()) == {0o600}, modes
    assert token in environment_of(supervised.pid("poller"))
    assert token not in environment_of(supervised.pid("dispatcher"))


def test_one_process_is_restarted_alone(supervised: Supervised, instance: Instance) -> None:
    """`supervisorctl restart` of one leaves the others as they are."""
    supervised.start(**instance.token)
    supervised.wait_logged("poller", "bound")
    before = {role: supervised.pid(role) for role in ROLES}

    supervised.control("restart", "telegrammer:poller")
    supervised.wait_logged("poller", "bound", n=2)

    after = {role: supervised.pid(role) for role in ROLES}
    assert {role for role in ROLES if after[role] != before[role]} == {"poller"}


def test_a_process_that_dies_is_started_again(supervised: Supervised, instance: Instance) -> None:
    """Each process comes back by itself after SIGKILL, the API also with its port held."""
    supervised.start(**instance.token)
    supervised.wait_logged("api", "worker_started", n=2)
    supervised.wait_logged("poller", "bound")
    supervised.wait_logged("dispatcher", "started")

    for role in ROLES:
        os.kill(supervised.pid(role), signal.SIGKILL)

    supervised.wait_logged("api", "worker_started", n=4)
    supervised.wait_logged("poller", "bound", n=2)
    supervised.wait_logged("dispatcher", "started", n=2)


def test_a_wrong_configuration_is_not_tried_again(supervised: Supervised) -> None:
    """Without a token API and poller end with 78, once; the dispatcher is not affected."""
    supervised.start()
    supervised.wait_logged("dispatcher", "started")
    ended = {"api": "EXITED", "poller": "EXITED", "dispatcher": "RUNNING"}
    wait_until(lambda: supervised.states() == ended, "not all have ended")

    supervised.control("restart", "telegrammer:dispatcher")
    supervised.wait_logged("dispatcher", "started", n=2)

    for role in ("api", "poller"):
        assert supervised.log(role).count("event=ended") == 1
        assert "status=78" in supervised.log(role)


def test_a_killed_supervisord_leaves_them_running(
    supervised: Supervised, instance: Instance
) -> None:
    """After SIGKILL of supervisord the three go on; a new one does not start a second set."""
    first = supervised.start(**instance.token)
    supervised.wait_logged("poller", "bound")
    supervised.wait_logged("dispatcher", "started")
    running = {role: psutil.Process(supervised.pid(role)) for role in ROLES}
    first.kill()

    supervised.start(**instance.token)
    supervised.wait_logged("poller", "ended")
    supervised.wait_logged("dispatcher", "ended")
    wait_until(lambda: supervised.states()["poller"] == "EXITED", "the second poller runs")

    assert all(process.is_running() for process in running.values())
    assert "status=75" in supervised.log("poller")
    assert "status=75" in supervised.log("dispatcher")
    for process in running.values():
        process.terminate()
    psutil.wait_procs(running.values(), PATIENCE)
    supervised.control("start", "telegrammer:poller", "telegrammer:dispatcher")
    supervised.wait_logged("poller", "bound", n=2)
