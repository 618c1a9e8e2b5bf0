"""The gateway as an operator starts it: the three processes over one database."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from support.processes import PATIENCE, Process, Processes
from support.running_api import free_port
from support.sandbox import Sandbox
from support.secrets import Secrets

ROLES: Final = ("api", "poller", "dispatcher")

# The event after which a process does its work.
READY: Final = {"api": "worker_started", "poller": "bound", "dispatcher": "started"}


class Instance:
    """Settings for one gateway beside a sandbox, and its processes."""

    def __init__(
        self, processes: Processes, sandbox: Sandbox, secrets: Secrets, folder: Path
    ) -> None:
        self._processes = processes
        self._secrets = secrets
        self.db = folder / "state" / "telegrammer.db"
        self.port = free_port()
        self.env = {
            "TELEGRAMMER_DB": str(self.db),
            "TELEGRAMMER_BOT_API_URL": sandbox.url,
            "TELEGRAMMER_PORT": str(self.port),
        }
        self.token = {"TELEGRAMMER_BOT_TOKEN": sandbox.token}

    def spawn(
        self,
        role: str,
        *options: str,
        env: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a process, and do not wait. Only who needs the token has it."""
        given = self.env | ({} if role == "dispatcher" else self.token) | dict(env or {})
        return self._processes.spawn(f"telegrammer_{role}", *options, env=given)

    def start(self, role: str, env: Mapping[str, str] | None = None) -> Process:
        """Start a process and wait until it works."""
        process = self.spawn(role, env=env)
        process.wait_event(READY[role])
        return process

    def call(self, key: str, path: str, body: object) -> int:
        """POST to the API; return the status. What a refusal says is watched for secrets."""
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                return int(response.status)
        except urllib.error.HTTPError as refusal:
            with refusal:
                self._secrets.wrote("the API's answer", refusal.read().decode())
                return refusal.code

    def subscribe(self, key: str, chat_id: int, url: str) -> None:
        assert self.call(key, "/subscribe", {"chat_id": chat_id, "callback_url": url}) == 200

    def run(self, *arguments: object, status: int = 0) -> Process:
        """Run ``telegrammer`` to its end."""
        ended, process = self._processes.run("telegrammer_cli", *arguments, env=self.env)
        assert ended == status, process.output
        return process

    def list(self, *arguments: str) -> None:
        """Run a command of ``telegrammer`` that may find something; its output is watched."""
        self._processes.run("telegrammer_cli", *arguments, env=self.env | self.token)

    def add_key(self, name: str = "caller") -> str:
        """Return a new key; it is a secret of the suite from now on."""
        process = self.run("add-key", name)
        key = process.stdout.strip()
        process.forget_stdout()  # the one place where a key stands in clear
        return self._secrets.key(key)
