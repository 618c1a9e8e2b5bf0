"""An API to be shot at, and the watch over what a test leaves behind."""

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fire.effort import IS_LONG
from support.builders import Gateway
from support.processes import Processes
from support.running_api import RunningApi, free_port
from support.sandbox import TOKEN, Sandbox
from support.secrets import Secrets


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if IS_LONG:
        for item in items:
            item.add_marker(pytest.mark.timeout(0))


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, suite_secrets: Secrets) -> Iterator[RunningApi]:
    """The API with its defaults, but 1 s to read or write a request, and a caller's key."""
    folder: Path = tmp_path_factory.mktemp("fire")
    processes = Processes(folder, suite_secrets)
    gateway = Gateway(folder / "telegrammer.db")
    with Sandbox.start() as sandbox:
        port = free_port()
        settings = {
            "TELEGRAMMER_BOT_TOKEN": TOKEN,
            "TELEGRAMMER_BOT_API_URL": sandbox.url,
            "TELEGRAMMER_DB": str(gateway.path),
            "TELEGRAMMER_PORT": str(port),
            "TELEGRAMMER_REQUEST_TIMEOUT": "1s",
        }
        process = processes.spawn("telegrammer_api", env=settings)
        process.wait_event("worker_started", n=2)
        found = RunningApi(process, ("127.0.0.1", port), gateway, sandbox, suite_secrets)
        found.key = found.new_key("fire")
        yield found
        gateway.close()
        processes.finish()


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fail the test when it leaves a thread, a socket or another open file behind."""
    gc.collect()
    threads, files = set(threading.enumerate()), _open_files()
    yield
    gc.collect()
    left = set(threading.enumerate()) - threads
    assert not left, f"threads are left: {left}"
    assert _open_files() <= files, f"files are left: {_open_files()} of {files}"


def _open_files() -> int:
    return int(psutil.Process().num_fds())
