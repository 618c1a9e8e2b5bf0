"""The machine: room on the disk, the API's port, the clock."""

import datetime
import errno
import os
import shutil
import socket
from pathlib import Path
from typing import Final

from telegrammer.health import STALE_AFTER, is_stale
from telegrammer.settings import Settings
from telegrammer.store.components import Component
from telegrammer_cli.checks.finding import Finding, error, ok, warning

_MIB: Final = 1024 * 1024
_LOW: Final = 1024 * _MIB
_TOO_LOW: Final = 64 * _MIB

# No release of ours is older; a clock that says less makes every certificate look invalid.
_EARLIEST: Final = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp()


def look_at_disk(database: Path) -> Finding:
    """Tell how much room there is where the database is or will be."""
    folder = nearest_folder(database)
    return judge_free_space(shutil.disk_usage(folder).free, folder)


def nearest_folder(database: Path) -> Path:
    """Return the folder in which the database is, or in which its folder will be made."""
    return next(parent for parent in database.parents if os.path.isdir(parent))


def judge_free_space(free: int, folder: Path) -> Finding:
    """``free`` is in bytes."""
    text = f"{free // _MIB} MiB free at {folder}"
    if free < _TOO_LOW:
        return error("disk", f"only {text}: make room, or messages can no longer be stored")
    if free < _LOW:
        return warning("disk", f"only {text}: a long outage of a receiver fills it")
    return ok("disk", text)


def look_at_port(settings: Settings, api: Component | None, now: float) -> Finding:
    """Tell whether the API can listen; ``api`` is the row of the one that may do so now."""
    place = f"{settings.host} port {settings.port}"
    try:
        _bind(settings.host, settings.port)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE and api is not None and not is_stale(api, now):
            return ok("port", f"{place} is held by our own API")
        return error("port", f"cannot listen on {place}, {_advice(problem)}")
    except UnicodeError:
        return error("port", f"cannot listen on {place}: no such name can be")
    return ok("port", f"{place} is free")


def look_at_clock(now: float, components: dict[str, Component]) -> Finding:
    """``now`` is the wall clock."""
    text = datetime.datetime.fromtimestamp(now, datetime.UTC).isoformat(timespec="seconds")
    if now < _EARLIEST:
        return error("clock", f"it is not {text}: set the clock, or no certificate is valid")
    if any(row.heartbeat > now + STALE_AFTER for row in components.values()):
        return warning("clock", f"a process has written a later time than {text}: it was set back")
    return ok("clock", f"it is {text}")


def _bind(host: str, port: int) -> None:
    """As the API does it, which may share a port where another way of asking may not."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    socket.create_server((str(address[0]), port), family=family).close()


def _advice(problem: OSError) -> str:
    if problem.errno == errno.EADDRINUSE:
        return "another program has it: stop that one, or choose another with --port"
    if problem.errno == errno.EACCES:
        return "ports below 1024 are not for this user: choose another with --port"
    return f"{problem.strerror}: choose an address of this machine with --host"
