"""The gateway as an operator starts it."""

from pathlib import Path

import pytest

from support.instance import Instance
from support.processes import Processes
from support.sandbox import Sandbox
from support.secrets import Secrets


@pytest.fixture
def instance(processes: Processes, sandbox: Sandbox, secrets: Secrets, tmp_path: Path) -> Instance:
    """One gateway beside a sandbox, nothing of it started yet."""
    return Instance(processes, sandbox, secrets, tmp_path)
