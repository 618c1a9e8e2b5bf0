"""One running API for each module, a key of its own and a Telegram without faults for
each test."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from support.builders import Gateway
from support.processes import Processes
from support.running_api import RunningApi, free_port
from support.sandbox import TOKEN, Sandbox
from support.secrets import Secrets

_NAMES = (f"test-{number}" for number in count(1))


@pytest.fixture(scope="module")
def running_api(
    tmp_path_factory: pytest.TempPathFactory, suite_secrets: Secrets
) -> Iterator[RunningApi]:
    """An API with short times: 1 s to read or write, 1 s in all for a send."""
    folder: Path = tmp_path_factory.mktemp("api")
    processes = Processes(folder, suite_secrets)
    gateway = Gateway(folder / "state" / "telegrammer.db")
    with Sandbox.start() as sandbox:
        port = free_port()
        options = {
            "--db": gateway.path,
            "--port": port,
            "--bot-api-url": sandbox.url,
            "--request-timeout": "1s",
            "--send-timeout": "1s",
            "--connect-timeout": "1s",
        }
        arguments = [part for pair in options.items() for part in pair]
        process = processes.spawn(
            "telegrammer_api", *arguments, env={"TELEGRAMMER_BOT_TOKEN": TOKEN}
        )
        process.wait_event("worker_started", n=2)
        yield RunningApi(process, ("127.0.0.1", port), gateway, sandbox, suite_secrets)
        gateway.close()
        processes.finish()


@pytest.fixture
def api(running_api: RunningApi) -> RunningApi:
    """The module's API, with a new key."""
    running_api.sandbox.reset()
    running_api.key = running_api.new_key(next(_NAMES))
    return running_api
