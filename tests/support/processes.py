"""Our commands as real processes: started, watched, stopped, and nothing of them left.

::

    def test_it(processes):
        poller = processes.spawn("telegrammer_poller", "--db", db, env={...})
        poller.wait_event("started")
        assert poller.terminate() == 0

At the end of the test ``processes`` kills whatever still runs and fails the test when
a process left something behind, wrote a traceback or a warning, or wrote a secret.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import psutil

from support.secrets import Secrets

REPOSITORY: Final = Path(__file__).parents[2]
PATIENCE: Final = 10.0  # seconds that a loaded machine may take for anything

PYTHON: Final = (sys.executable, "-X", "dev", "-W", "error")
SOURCES: Final = {
    "PYTHONPATH": os.pathsep.join(str(REPOSITORY / root) for root in ("shared", "services"))
}
_DEFECTS: Final = re.compile(r"Traceback|traceback=|Exception ignored|Warning:")
_FIELD: Final = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|\S*)')

Event = dict[str, str]


class Process:
    """A running command and all that it has written so far.

    It is the leader of a session of its own, so that children are found again. Leaving
    the ``with`` block kills the session, without a word about what was left.
    """

    def __init__(self, name: str, popen: "subprocess.Popen[bytes]") -> None:
        self.name = name
        self.pid = popen.pid
        self._popen = popen
        self._changed = threading.Condition()
        self._text = {"stdout": "", "stderr": ""}
        self._open = set(self._text)
        self._readers = [
            threading.Thread(target=self._read, args=(stream, file), name=f"{name} {stream}")
            for stream, file in (("stdout", popen.stdout), ("stderr", popen.stderr))
            if file is not None
        ]
        for reader in self._readers:
            reader.start()

    @property
    def stdout(self) -> str:
        return self._text["stdout"]

    @property
    def stderr(self) -> str:
        return self._text["stderr"]

    @property
    def output(self) -> str:
        """All that was written: standard output, then standard error."""
        return self.stdout + self.stderr

    def forget_stdout(self) -> None:
        """Drop what standard output had, because a secret belongs there."""
        self._text["stdout"] = ""

    def events(self, name: str = "", **fields: object) -> list[Event]:
        """Return the log's events of that name (empty: of any) which have these fields."""
        wanted = {field: str(value) for field, value in fields.items()}
        if name:
            wanted["event"] = name
        found = [parse_event(line) for line in self.stderr.splitlines()]
        return [event for event in found if wanted.items() <= event.items()]

    def wait_event(
        self, name: str, timeout: float = PATIENCE, n: int = 1, **fields: object
    ) -> Event:
        """Wait until the log has ``n`` such events; return the last of them."""
        self._wait_until(lambda: len(self.events(name, **fields)) >= n, f"{name} {fields}", timeout)
        return self.events(name, **fields)[n - 1]

    def wait_output(self, text: str, timeout: float = PATIENCE) -> None:
        """Wait until ``text`` was written to either stream."""
        self._wait_until(lambda: text in self.output, repr(text), timeout)

    def _wait_until(self, holds: Callable[[], bool], what: str, timeout: float) -> None:
        with self._changed:
            in_time = self._changed.wait_for(lambda: holds() or not self._open, timeout)
            if not holds():
                reason = "it ended" if in_time else f"not within {timeout} s"
                raise AssertionError(f"{self.name}: no {what}: {reason}\n{self.output}")

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process alone."""
        self._popen.send_signal(number)

    def stop_signal(self) -> None:
        """Ask it to stop, and do not wait."""
        self.send(signal.SIGTERM)

    def stop_children(self) -> None:
        """Ask its children to stop: a wrapper such as strace ends with them."""
        for child in psutil.Process(self.pid).children():
            child.terminate()

    def terminate(self, timeout: float = PATIENCE) -> int:
        """Ask it to stop, wait for its end and return its exit status."""
        self.stop_signal()
        return self.wait(timeout)

    def kill(self) -> None:
        """End it as a crash would, at once: the process alone, not its children."""
        self._popen.kill()
        self._popen.wait(PATIENCE)

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for its end; return the exit status, all output then being read."""
        try:
            status = self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} still runs after {timeout} s\n{self.output}"
            ) from None
        self._join(PATIENCE)
        return status

    def left(self) -> list[psutil.Process]:
        """Return what still runs of its session: itself, children, orphans."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getsid(process.pid) == self.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def close(self) -> None:
        """Kill whatever is left and forget it."""
        left = self.left()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._popen.wait(PATIENCE)
        psutil.wait_procs(left, PATIENCE)
        self._join(PATIENCE)

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, stream: str, file: IO[bytes]) -> None:
        with file:
            for line in file:
                with self._changed:
                    self._text[stream] += line.decode("utf-8", "replace")
                    self._changed.notify_all()
        with self._changed:
            self._open.remove(stream)
            self._changed.notify_all()

    def _join(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))


class Processes:
    """Starts processes in a folder of their own and answers for all of them."""

    def __init__(self, folder: Path, secrets: Secrets) -> None:
        self._folder = folder
        self._secrets = secrets
        self._all: list[Process] = []

    def spawn(
        self,
        module: str,
        *arguments: object,
        env: Mapping[str, str] | None = None,
    ) -> Process:
        """Start ``python -m module`` from this checkout, as strict as the tests are.

        ``env`` is added to an environment that holds nothing of ours; a token in it
        becomes a secret of the suite.
        """
        command = [*PYTHON, "-m", module, *map(str, arguments)]
        return self.start(module, command, env or {})

    def run(
        self,
        module: str,
        *arguments: object,
        env: Mapping[str, str] | None = None,
        timeout: float = PATIENCE,
    ) -> tuple[int, Process]:
        """Start a command that ends by itself; return its exit status and the process."""
        process = self.spawn(module, *arguments, env=env)
        return process.wait(timeout), process

    def start(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: Path | None = None,
    ) -> Process:
        """Start any command, with ``env`` and little else as its environment.

        Ours are this checkout's, whatever is installed.
        """
        if token := env.get("TELEGRAMMER_BOT_TOKEN"):
            self._secrets.token(token)
        base = {"PATH": os.environ["PATH"], "HOME": str(self._folder), "LANG": "C.UTF-8"} | SOURCES
        popen = subprocess.Popen(
            command,
            env=base | dict(env),
            cwd=cwd or self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        process = Process(name, popen)
        self._all.append(process)
        self._secrets.wrote(name, lambda: process.output)
        return process

    def finish(self) -> None:
        """Stop what runs, as an operator would; raise when anything is not as it should be."""
        try:
            for process in self._all:
                if process.is_running:
                    status = process.terminate()
                    assert status == 0, f"{process.name}: exit {status}\n{process.output}"
            for process in self._all:
                _check(process)
        finally:
            for process in self._all:
                process.close()


def parse_event(line: str) -> Event:
    """Return the fields of a log line in either format; of any other line, none."""
    if line.startswith("{"):
        with contextlib.suppress(ValueError):
            return {name: str(value) for name, value in json.loads(line).items()}
    return {
        name: json.loads(value) if value.startswith('"') else value
        for name, value in _FIELD.findall(line)
    }


def _check(process: Process) -> None:
    deadline = time.monotonic() + PATIENCE
    while left := process.left():
        assert time.monotonic() < deadline, f"{process.name} left {left}"
        psutil.wait_procs(left, timeout=0.1)
    if defect := _DEFECTS.search(process.output):
        raise AssertionError(f"{process.name} wrote {defect[0]}\n{process.output}")
