"""A door for each test, and nothing left behind by it."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from support.doors import SlowNames
from telegrammer.http import Door


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test after which a thread or a descriptor more is open."""
    threads, descriptors = set(threading.enumerate()), os.listdir("/proc/self/fd")
    yield
    for thread in threading.enumerate():
        if thread.name == "dns":  # its answer is out just before it ends
            thread.join(5)
    assert set(threading.enumerate()) <= threads
    assert len(os.listdir("/proc/self/fd")) <= len(descriptors)


@pytest.fixture
def door() -> Iterator[Door]:
    with contextlib.closing(Door()) as opened:
        yield opened


@pytest.fixture
def slow_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowNames]:
    names = SlowNames()
    monkeypatch.setattr(socket, "getaddrinfo", names)
    yield names
    names.let_go()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(authority: trustme.CA, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> trustme.CA:
    """Make the authority the only trusted one, for doors that open after this."""
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    return authority
