"""supervisord with the sandbox and the three processes, as an operator starts them."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from telegrammer.settings import PREFIX
from telegrammer_demo import place

# Not a secret: it opens nothing but this demo's sandbox.
TOKEN: Final = "123456:token-of-the-demo"  # noqa: S105

_SANDBOX: Final = """
[program:sandbox]
command = telegrammer sandbox --port {port} --token {token}
priority = 1
autorestart = unexpected
startsecs = 0
stdout_logfile = NONE
stderr_logfile = %(here)s/.run/sandbox.log
"""
_BIN: Final = Path(sys.executable).parent


class Trouble(click.ClickException):
    """The demo cannot go on; the text says what to do."""


@dataclass(frozen=True)
class Stage:
    """Where everything is. ``environment`` is that of the processes and of the command."""

    folder: Path
    environment: Mapping[str, str]
    api: str
    sandbox: str
    supervisord: "subprocess.Popen[bytes]"

    def command(self, *arguments: str) -> str:
        """Run ``telegrammer`` with these arguments; return what it printed."""
        done = subprocess.run(
            [_BIN / "telegrammer", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        if done.returncode:
            raise Trouble(f"telegrammer {arguments[0]}: {done.stderr.strip()}")
        return done.stdout.strip()

    def logs(self) -> str:
        """Return the last lines of every log."""
        parts = []
        for log in sorted(self.folder.glob(".run/*.log")):
            lines = log.read_text("utf-8", "replace").splitlines()[-6:]
            parts.append("\n".join([f"-- {log}", *lines]))
        return "\n".join(parts)


@contextlib.contextmanager
def running(folder: Path, conf: Path) -> Iterator[Stage]:
    """Yield the stage while supervisord runs; at the end everything has stopped.

    ``conf`` is copied, so that ``.run`` is a folder of this demo.
    """
    copy = folder / conf.name
    _stop_leftover(copy)
    place.empty(folder)
    (folder / ".run").mkdir(mode=0o700)
    api_port, sandbox_port = place.free_port(8080), place.free_port(8081)
    copy.write_text(conf.read_text() + _SANDBOX.format(port=sandbox_port, token=TOKEN))
    environment = _environment(folder, api_port, sandbox_port)
    with (folder / ".run" / "output.log").open("w") as output:
        # A session of its own: Ctrl-C reaches the demo alone, which then stops it in order.
        supervisord = subprocess.Popen(
            [_BIN / "supervisord", "-n", "-c", copy],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    api, sandbox = f"http://127.0.0.1:{api_port}", f"http://127.0.0.1:{sandbox_port}"
    try:
        yield Stage(folder, environment, api, sandbox, supervisord)
    finally:
        supervisord.terminate()
        supervisord.wait()  # it kills what does not stop, see stopwaitsecs


def _environment(folder: Path, api_port: int, sandbox_port: int) -> dict[str, str]:
    """Return the caller's environment, without its own gateway's settings, and the demo's."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return inherited | {
        "PATH": f"{_BIN}{os.pathsep}{inherited.get('PATH', os.defpath)}",
        "TELEGRAMMER_DB": str(folder.absolute() / "telegrammer.db"),
        "TELEGRAMMER_BOT_TOKEN": TOKEN,
        "TELEGRAMMER_BOT_API_URL": f"http://127.0.0.1:{sandbox_port}",
        "TELEGRAMMER_PORT": str(api_port),
    }


def _stop_leftover(conf: Path) -> None:
    """Stop what a demo has left that was killed and could not clean up."""
    control = conf.parent / ".run" / "supervisor.sock"
    if not _is_served(control):
        return
    click.echo("A demo that was killed has left its processes: stopping them first ...")
    subprocess.run(
        [_BIN / "supervisorctl", "-c", conf, "shutdown"],
        capture_output=True,
        timeout=10,
        check=False,
    )
    deadline = time.monotonic() + 70  # more than stopwaitsecs, when it kills what does not stop
    while _is_served(control):
        if time.monotonic() > deadline:
            raise Trouble(f"what runs in {conf.parent} does not stop; end it with kill -9")
        time.sleep(0.2)


def _is_served(control: Path) -> bool:
    """Say whether supervisord listens: until its last process has ended.

    Not asked by a command: while it stops, it answers every one with an error.
    """
    with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
        connection.connect(str(control))
        return True
    return False
