"""How the operator's command ended."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ended:
    """Exit status and all that was written."""

    status: int
    out: str
    err: str


Run = Callable[..., Ended]


def assert_refused(ended: Ended, status: int, *words: str) -> None:
    """It wrote nothing but one line on standard error, with these words in it."""
    assert (ended.status, ended.out) == (status, ""), ended
    (line,) = ended.err.splitlines()
    assert line.startswith("Error: ")
    assert all(word in line for word in words), line
