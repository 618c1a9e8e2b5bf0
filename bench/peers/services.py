"""Redis and PostgreSQL for the peers: in temporary folders, on free ports, for a while.

Neither waits for the disk at each commit, as SQLite in WAL mode with
``synchronous=NORMAL`` does not: all survive the death of a process, none of them
promises the last moment before a power cut.
"""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.harness import Skipped, child, wait_until


@dataclass(frozen=True)
class Service:
    """A running server. ``process`` and its children are what it costs."""

    address: str
    process: psutil.Process


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def redis() -> Iterator[Service]:
    """Run Redis with its append-only file; ``address`` is the port."""
    if shutil.which("redis-server") is None:
        raise Skipped("no redis-server: install Debian's package redis-server")
    port = free_port()
    options = f"--port {port} --bind 127.0.0.1 --appendonly yes --appendfsync everysec --save"
    with tempfile.TemporaryDirectory(prefix="bench-redis-") as folder:
        command = ["redis-server", *options.split(), "", "--dir", folder, "--loglevel", "warning"]
        with child(command, stdout=subprocess.DEVNULL) as process:
            wait_until(lambda: _answers(port), 10, "Redis answers")
            yield Service(str(port), psutil.Process(process.pid))


@contextlib.contextmanager
def postgres() -> Iterator[Service]:
    """Run PostgreSQL with an empty database; ``address`` is its DSN."""
    binaries = _postgres_binaries()
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="bench-postgres-") as folder:
        data = Path(folder, "data")
        user = _own_user(folder)
        initdb = [*user, binaries / "initdb", "-D", data, "-U", "bench", "-A", "trust"]
        subprocess.run([str(part) for part in initdb], check=True, capture_output=True, cwd=folder)
        options = {
            "port": port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": folder,
            "synchronous_commit": "off",
            "shared_buffers": "256MB",
            "max_connections": 200,
            "max_wal_size": "4GB",
        }
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        command = [*user, binaries / "postgres", "-D", data, *settings]
        log = Path(folder, "log")
        with log.open("wb") as file, child(command, stderr=file, cwd=folder) as process:
            wait_until(lambda: _answers(port), 20, "PostgreSQL answers")
            wait_until(lambda: b"ready to accept" in log.read_bytes(), 20, "PostgreSQL is ready")
            dsn = f"host=127.0.0.1 port={port} user=bench dbname=postgres"
            yield Service(dsn, psutil.Process(process.pid))


def _postgres_binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        raise Skipped("no PostgreSQL: install Debian's package postgresql")
    return found[-1].parent


def _own_user(folder: str) -> list[str]:
    """Return what runs a command as PostgreSQL's user: it refuses to be root."""
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam("postgres")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
