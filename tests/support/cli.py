"""How the operator's command ended."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ended:
    """Exit status and all that was written."""

    status: int
    out: str
    err: str


# A program for ``python -c``: the command as a user without any right. It becomes that
# user late, since the interpreter itself may lie where nobody else can read it.
AS_NOBODY = """
import os
from telegrammer_cli.__main__ import main
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
main()
"""

Run = Callable[..., Ended]


def assert_refused(ended: Ended, status: int, *words: str) -> None:
    """It wrote nothing but one line on standard error, with these words in it."""
    assert (ended.status, ended.out) == (status, ""), ended
    (line,) = ended.err.splitlines()
    assert line.startswith("Error: ")
    assert all(word in line for word in words), line
