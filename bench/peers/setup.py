"""Installs the peers beside the repository, once: ``.bench/venv`` and ``.bench/node``."""

import functools
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.harness import WORK, Skipped, say

HERE: Final = Path(__file__).parent
REQUIREMENTS: Final = HERE.parent / "requirements.txt"
VENV: Final = WORK / "venv"
NODE: Final = WORK / "node"


@functools.cache
def python() -> Path:
    """Return the Python of the peers' environment. Raises ``Skipped``."""
    mark = VENV / "installed.txt"
    if not mark.exists() or mark.read_text() != REQUIREMENTS.read_text():
        say("installing the Python peers into .bench/venv")
        _run([sys.executable, "-m", "venv", VENV])
        _run([VENV / "bin/pip", "install", "--quiet", "-r", REQUIREMENTS])
        mark.write_text(REQUIREMENTS.read_text())
    return VENV / "bin/python"


@functools.cache
def node_script(name: str) -> Path:
    """Return a script of this folder, where its packages are. Raises ``Skipped``."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise Skipped("no Node.js: install nodejs 20 or later, and npm")
    wanted = (HERE / "package.json").read_text()
    mark = NODE / "installed.txt"
    NODE.mkdir(parents=True, exist_ok=True)
    if not mark.exists() or mark.read_text() != wanted:
        say("installing BullMQ into .bench/node")
        shutil.copy(HERE / "package.json", NODE)
        _run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", NODE])
        mark.write_text(wanted)
    return Path(shutil.copy(HERE / name, NODE))


def _run(command: list[str | Path]) -> None:
    done = subprocess.run([str(p) for p in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skipped(f"{Path(command[0]).name} failed: {done.stderr.strip()[-300:]}")
