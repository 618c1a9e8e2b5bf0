"""The C programs beside this file, compiled when they are first needed, and run."""

import contextlib
import http.client
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from bench.harness import WORK, Json, Skipped, child, wait_until


def compiled(name: str) -> Path:
    """Return the program built from ``name``.c."""
    source = Path(__file__).with_name(f"{name}.c")
    program = WORK / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        if shutil.which("gcc") is None:
            raise Skipped("no C compiler: install gcc")
        WORK.mkdir(exist_ok=True)
        subprocess.run(["gcc", "-O2", "-Wall", "-o", program, source], check=True)
    return program


class Sink:
    """A running ``sink``: the receiver, its gate and its ledger."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    @classmethod
    @contextlib.contextmanager
    def start(cls, delay: float = 0.0, body: Path | None = None) -> Iterator["Sink"]:
        """Answer after ``delay`` seconds, with the file's bytes if one is given."""
        command = [compiled("sink"), str(int(delay * 1e6)), *([body] if body else [])]
        with child(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            sink = cls(int(process.stdout.readline()), process.pid)
            try:
                yield sink
            finally:
                sink._connection.close()
                process.stdout.close()

    def close_gate(self) -> None:
        """Hold every answer from now on."""
        self._control("close")

    def open_gate(self) -> None:
        """Let the held answers go; the rate counts from here."""
        self._control("open")

    def stats(self) -> Json:
        return cast("Json", self._control("stats"))

    def arrivals(self) -> list[int]:
        """Return when each request's first byte was read, in ns of the monotonic clock."""
        return cast("list[int]", self._control("arrivals"))

    def forget_arrivals(self) -> None:
        """Count and time only what comes from now on."""
        self._control("forget")

    def wait_held(self, count: int, seconds: float) -> None:
        """Wait until a contestant has brought ``count`` requests to the closed gate."""
        wait_until(lambda: self.stats()["held"] >= count, seconds, f"{count} requests at the gate")

    def _control(self, name: str) -> object:
        self._connection.request("GET", f"/control/{name}")
        return cast("object", json.loads(self._connection.getresponse().read()))
