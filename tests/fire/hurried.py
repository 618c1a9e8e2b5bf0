"""A pytest plugin that makes threads take turns a thousand times oftener than they would.

``pytest -p fire.hurried tests/integration/store`` runs the tests there in that way; the
processes that they start as well (``preload/sitecustomize.py``).
"""

import os
import sys
from pathlib import Path
from typing import Final

INTERVAL: Final = 1e-6  # seconds

_PRELOAD: Final = str(Path(__file__).parent / "preload")


def pytest_configure() -> None:
    sys.setswitchinterval(INTERVAL)
    os.environ["FIRE_SWITCH_INTERVAL"] = str(INTERVAL)
    os.environ["PYTHONPATH"] = os.pathsep.join([_PRELOAD, os.environ.get("PYTHONPATH", "")])
