"""How hard the fire burns: a little in `make test`, as long as wanted in `make fire`."""

import os
from typing import Final

from hypothesis import HealthCheck, settings

IS_LONG: Final = "FIRE_MINUTES" in os.environ
TIMES: Final = 60 if IS_LONG else 1
"""By how much more is tried than in `make test`."""


def tries(number: int) -> settings:
    """Return hypothesis' settings for a fuzz of that many examples in `make test`.

    They are the same examples each time there, and new ones each time in `make fire`.
    """
    return settings(
        max_examples=number * TIMES,
        deadline=None,
        derandomize=not IS_LONG,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
