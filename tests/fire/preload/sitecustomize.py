"""Run by every Python process that the campaign starts, before anything else.

``FIRE_SWITCH_INTERVAL`` makes threads take turns more often than they would, in seconds.
Under libfaketime, which refuses the absolute times that ``time.sleep`` gives to the
kernel, sleeping is done by ``select``.
"""

import os
import select
import sys
import time
from typing import SupportsIndex

if interval := os.environ.get("FIRE_SWITCH_INTERVAL"):
    sys.setswitchinterval(float(interval))

if "FAKETIME_TIMESTAMP_FILE" in os.environ:

    def _sleep(seconds: float | SupportsIndex, /) -> None:
        select.select([], [], [], float(seconds))

    time.sleep = _sleep
