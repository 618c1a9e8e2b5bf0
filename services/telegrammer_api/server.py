"""gunicorn, embedded: one listener bound by us, one arbiter, our workers.

Nothing that gunicorn reads from the environment or the command line has an effect.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from dataclasses import dataclass
from typing import Final

# gunicorn reads some of these as soon as it is imported.
_VARIABLES: Final = (
    "FORWARDED_ALLOW_IPS",
    "GUNICORN_CMD_ARGS",
    "GUNICORN_FD",
    "GUNICORN_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "PORT",
    "SCRIPT_NAME",
    "SENDFILE",
    "WEB_CONCURRENCY",
)
for _name in _VARIABLES:
    os.environ.pop(_name, None)

from gunicorn import glogging, systemd  # noqa: E402
from gunicorn.app.base import BaseApplication  # noqa: E402
from gunicorn.arbiter import Arbiter  # noqa: E402
from gunicorn.config import Config  # noqa: E402
from gunicorn.errors import HaltServer  # noqa: E402

from telegrammer import logs  # noqa: E402
from telegrammer.errors import Failure  # noqa: E402
from telegrammer.logs import Log  # noqa: E402
from telegrammer_api.front import OpenApplication  # noqa: E402
from telegrammer_api.worker import BACKLOG, LONGEST_LINE, FrontWorker  # noqa: E402

log: Final = Log("api")

# gunicorn looks for life in the times of a file for each worker. In memory: a worker can
# be started while every disk is full, or cannot be written.
_HEARTBEATS: Final = "/dev/shm"  # noqa: S108  the name is random, the file unlinked at once


@dataclass(frozen=True)
class Limits:
    """How much a server takes on. Durations are in seconds."""

    workers: int
    threads: int
    """Requests at once in each worker."""
    queue: int
    """Requests that may wait; each worker takes its share, rounded up."""
    request_timeout: float
    """To read a head, to read a body, to write a response, each in full."""
    idle_timeout: float = 30.0
    """How long a connection may stay open between requests."""
    queue_wait: float = 30.0
    """How long a request may wait for a thread before it is refused."""
    stop_timeout: float = 45.0
    """How long running requests may go on while the server stops."""
    longest_request: float = 25.0
    """How long a request may take once a thread has it: one that waits is not begun when
    less is left of ``stop_timeout``."""
    stuck_timeout: int = 30
    """How long a worker's main thread may show no life before the worker is killed."""


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises ``Failure`` when the address cannot be had."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise Failure(f"cannot resolve the bind address {host}: {error.strerror}") from None
    except UnicodeError:
        raise Failure(f"cannot resolve the bind address {host}: no such name can be") from None
    family, _, _, _, address = found[0]
    try:
        return socket.create_server((str(address[0]), port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = f"{os.strerror(error.errno or 0)}; --host and --port choose another"
        raise Failure(f"cannot listen on {host} port {port}: {reason}") from None


def serve(open_application: OpenApplication, listener: socket.socket, limits: Limits) -> None:
    """Serve until SIGTERM, SIGINT or SIGQUIT; the listener is closed at the end.

    SIGTTIN and SIGTTOU add and take away a worker, SIGHUP replaces all. Raises
    ``Failure`` when a worker cannot start; the log has the reason. Start no thread
    before this: the workers are forked from here.
    """
    address = listener.getsockname()
    log.info("listening", host=address[0], port=address[1], workers=limits.workers)
    master = os.getpid()
    status: object = 0
    try:
        _Arbiter(_Server(open_application, limits), listener).run()
    except SystemExit as ended:
        status = ended.code
    if os.getpid() != master:
        # A worker's end: what the caller opened before the fork is the master's to close.
        logs.finish()
        os._exit(status if isinstance(status, int) else 0)
    if status:
        raise Failure("the API stopped: a worker could not start")


class _Server(BaseApplication):  # type: ignore[misc]
    """gunicorn's settings, all that matter, and what a worker needs beside them."""

    def __init__(self, open_application: OpenApplication, limits: Limits) -> None:
        self.open = open_application
        self.limits = limits
        super().__init__()

    def load_config(self) -> None:
        """Called again at SIGHUP, on a fresh configuration."""
        config: Config = self.cfg
        for name, value in self._settings().items():
            config.set(name, value)

    def _settings(self) -> dict[str, object]:
        return {
            "workers": self.limits.workers,
            "threads": self.limits.threads,
            "worker_class": FrontWorker,
            "timeout": self.limits.stuck_timeout,
            "worker_tmp_dir": _HEARTBEATS if os.access(_HEARTBEATS, os.W_OK) else None,
            "graceful_timeout": int(self.limits.stop_timeout) + 1,
            "logger_class": _Logger,
            "errorlog": None,
            "control_socket_disable": True,
            "reuse_port": False,
            "sendfile": False,
            # What is read from a peer, and what is believed: nothing.
            "http_parser": "python",
            "http_protocols": "h1",
            "http2_cleartext": "off",
            "proxy_protocol": False,
            "forwarded_allow_ips": "",
            "forwarder_headers": "",
            "secure_scheme_headers": {},
            "header_map": "drop",
            # Any token is a method; which ones are offered is the application's to say.
            "permit_unconventional_http_method": True,
            "limit_request_line": LONGEST_LINE,
            "limit_request_fields": 100,
            "limit_request_field_size": 8190,
        }


class _Logger(glogging.Logger):  # type: ignore[misc]
    """Sends gunicorn's warnings to our log and drops the rest; see ``telegrammer.logs``."""

    def setup(self, cfg: Config) -> None:
        self.cfg = cfg
        self.error_log.propagate = True
        self.error_log.setLevel(logging.WARNING)


class _Arbiter(Arbiter):  # type: ignore[misc]
    """gunicorn's master process, on a listener of ours."""

    def __init__(self, server: _Server, listener: socket.socket) -> None:
        super().__init__(server)
        self._looked = self._spare_until = time.monotonic()
        listener.setblocking(False)
        self.LISTENERS = [listener]

    def start(self) -> None:
        """Start, but leave it to the first worker to say that the service is ready."""
        notify_socket = os.environ.pop("NOTIFY_SOCKET", None)
        super().start()
        if notify_socket is not None:
            os.environ["NOTIFY_SOCKET"] = notify_socket

    def signal(self, sig: int, frame: object) -> None:
        """Make every wish to stop the same one, so that a second changes nothing."""
        if sig in (signal.SIGINT, signal.SIGQUIT):
            sig = signal.SIGTERM
        super().signal(sig, frame)

    def wait_for_signals(self, timeout: float = 1.0) -> list[int]:
        """Wait for longer than gunicorn would: what happens comes as a signal.

        Only a stuck worker does not, and that one is given ``stuck_timeout``.
        """
        found: list[int] = super().wait_for_signals(max(timeout, self.timeout / 6))
        return found

    def murder_workers(self) -> None:
        """Kill stuck workers, but none for a time in which this process did not run either.

        A worker shows life at least in every third of the timeout, so one that is late has
        stood still for the other two. After the freeze of a whole machine or container each
        gets that long again.
        """
        freeze, now = self.timeout * 2 / 3, time.monotonic()
        if now - self._looked > freeze:
            self._spare_until = now + freeze
        self._looked = now
        if now >= self._spare_until:
            super().murder_workers()

    def handle_usr2(self) -> None:
        """Do nothing: a second master could not bind the address."""

    def spawn_worker(self) -> int:
        """Hold signals back until the worker can hear them: one lost in between would
        leave a worker that does not stop."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, FrontWorker.SIGNALS)
        try:
            pid: int = super().spawn_worker()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid

    def stop(self, graceful: bool = True) -> None:
        systemd.sd_notify("STOPPING=1", self.log)
        while True:
            try:
                super().stop(graceful)
            except HaltServer:  # one more worker that could not start: go on stopping
                continue
            return
