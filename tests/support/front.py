"""The HTTP front as a real process: gunicorn's arbiter, our workers, any application.

``Front("support.tiny_app:opened", threads=2)`` starts it on a free port; inside the
block ``address`` is where it listens, ``client()`` a bare connection, ``log`` what it
wrote to standard error so far. ``descriptors`` limits each of its processes. Leaving
the block stops it and checks that it left no process behind.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from support.raw_http import RawClient
from telegrammer import logs
from telegrammer.errors import ExitError
from telegrammer_api import server

_ROOT = Path(__file__).resolve().parents[2]
_PATH = os.pathsep.join(str(_ROOT / name) for name in ("shared", "services", "tests"))


def until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Poll until the condition holds; tell whether it did in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Hold:
    """Requests for ``target`` run until ``release``, or the end of the block."""

    def __init__(self, folder: Path) -> None:
        path = folder / "hold"
        self.target = f"/held{path}"
        self._file = path.open("wb")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def release(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)


class Front:
    """A running server. Limits not given are small, so that tests are quick."""

    def __init__(
        self,
        application: str = "support.tiny_app:opened",
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        log_format: str = "text",
        environment: Mapping[str, str] | None = None,
        descriptors: int | None = None,
        **limits: float,
    ) -> None:
        defaults = {"workers": 1, "threads": 4, "queue": 4, "request_timeout": 1.0}
        self._arguments = {
            "application": application,
            "host": host,
            "port": port,
            "log_format": log_format,
            "descriptors": descriptors,
            "limits": defaults | limits,
        }
        self._environment = {**os.environ, **(environment or {}), "PYTHONPATH": _PATH}
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  closed in __exit__
        self.address = (host, 0)

    def __enter__(self) -> Self:
        command = [sys.executable, "-P", "-X", "dev", "-W", "error", "-m", "support.front"]
        self.process = subprocess.Popen(
            [*command, json.dumps(self._arguments)],
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=self._environment,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.address = (self.address[0], int(line or 0))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self.process.poll() is None:
                self.stop()
        finally:
            left = self._left()
            for process in left:
                process.kill()
            if kind is not None:
                sys.stderr.write(self.log)  # pytest shows it beside the failure
            if self.process.stdout:
                self.process.stdout.close()
            self._stderr.close()
        assert not left or kind is not None, f"left behind: {left}"

    def client(self, *, patience: float = 10.0, receive_buffer: int = 0) -> RawClient:
        return RawClient(self.address, patience=patience, receive_buffer=receive_buffer)

    @property
    def log(self) -> str:
        """Everything written to standard error so far."""
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), size, 0).decode()

    def logged(self, pattern: str, times: int = 1) -> bool:
        """Wait until the pattern is in the log that often; tell whether it came."""
        return until(lambda: len(re.findall(pattern, self.log)) >= times)

    def ready(self, workers: int = 1) -> Self:
        """Wait until that many workers have started."""
        assert self.logged("worker_started", workers), self.log
        return self

    def workers(self) -> list[psutil.Process]:
        """The worker processes of this moment."""
        return psutil.Process(self.process.pid).children()

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 20.0) -> float:
        """Signal, wait for the end with status 0, and return how long it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        assert self.wait(seconds) == 0, self.log
        return time.monotonic() - began

    def wait(self, seconds: float = 20.0) -> int:
        """Wait for the end and return the exit status."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def _left(self) -> list[psutil.Process]:
        """Return the processes of ours that live, the master's orphans too."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            is_dead = process.status() == psutil.STATUS_ZOMBIE
            return not is_dead and os.getpgid(process.pid) == self.process.pid
        except (psutil.NoSuchProcess, ProcessLookupError):
            return False


def main() -> None:
    """Be the server: the argument says of what, and with which limits."""
    arguments = json.loads(sys.argv[1])
    logs.set_up("api", arguments["log_format"], "info", [])
    if most := arguments["descriptors"]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    module, _, name = arguments["application"].partition(":")
    open_application = getattr(importlib.import_module(module), name)
    try:
        listener = server.bind(arguments["host"], arguments["port"])
        os.write(1, f"{listener.getsockname()[1]}\n".encode())
        try:
            server.serve(open_application, listener, server.Limits(**arguments["limits"]))
        finally:
            logs.Log("api").info("caller_ended", pid=os.getpid())
    except ExitError as error:
        logs.Log("api").error("ended", error=str(error))
        sys.exit(error.status)


if __name__ == "__main__":
    main()
