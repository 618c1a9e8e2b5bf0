"""JSON texts cut into the texts of their parts, each exactly as it came.

What receivers get is Telegram's own text, so values are found in it and not written
anew. Cutting does not care how deep a part is nested: it counts brackets. Whether a part
is valid JSON, only ``load`` tells.
"""

import json
import re
from typing import Any, Final, NoReturn

# Every repetition is possessive: a text that is not JSON cannot make them try again.
_SPACE: Final = re.compile(r"[ \t\n\r]*+")
_STRING: Final = r'"(?:[^"\\]++|\\.)*+"'
_SCALAR: Final = re.compile(_STRING + r'|[^\s"\[\]{},:]++', re.DOTALL)
_TO_BRACKET: Final = re.compile(rf'(?:[^"\[\]{{}}]++|{_STRING})*+([\[\]{{}}])', re.DOTALL)

_INVALID: Final = "not valid JSON"

# No number of the Bot API that we look at is longer; int() refuses 4,301 digits.
_MOST_DIGITS: Final = 20


def load(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value of a JSON text; raise ``ValueError`` when it is none.

    Lone surrogates in escapes are legal; of duplicate keys the last counts. An integer
    of more than 20 digits is read as a float. The error's text is "not valid JSON" or
    "nested too deeply".
    """
    try:
        return json.loads(text, parse_constant=_refuse, parse_int=_integer)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError:
        raise ValueError(_INVALID) from None


def elements(text: str, most: int) -> list[str]:
    """Return the texts of an array's elements; raise ``ValueError`` when it is none.

    Or when it has more than ``most``, which are not looked at.
    """
    found: list[str] = []
    position, more = _enter(text, "[", "]")
    while more:
        if len(found) == most:
            raise ValueError("too many elements")
        end = _end_of_value(text, position)
        found.append(text[position:end])
        position, more = _step(text, end, "]")
    _at_end(text, position)
    return found


def members(text: str) -> dict[str, str]:
    """Return name and text of an object's members; raise ``ValueError`` when it is none."""
    found = {}
    position, more = _enter(text, "{", "}")
    while more:
        if not text.startswith('"', position):
            raise ValueError(_INVALID)
        end = _end_of_value(text, position)
        name = load(text[position:end])
        position = _skip(text, end, ":")
        end = _end_of_value(text, position)
        found[name] = text[position:end]
        position, more = _step(text, end, "}")
    _at_end(text, position)
    return found


def _refuse(_constant: str) -> NoReturn:
    raise ValueError(_INVALID)


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def _space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()


def _skip(text: str, position: int, sign: str) -> int:
    """Return where the next value begins, after ``sign`` and the space around it."""
    position = _space(text, position)
    if not text.startswith(sign, position):
        raise ValueError(_INVALID)
    return _space(text, position + 1)


def _enter(text: str, opening: str, closing: str) -> tuple[int, bool]:
    """Return where the first part begins, or the end and False when there is none."""
    if not text.startswith(opening, _space(text, 0)):
        raise ValueError("not an object" if opening == "{" else "not an array")
    position = _skip(text, 0, opening)
    if text.startswith(closing, position):
        return position + 1, False
    return position, True


def _step(text: str, end: int, closing: str) -> tuple[int, bool]:
    """Return where the next part begins, or the end and False when there is none."""
    end = _space(text, end)
    if text.startswith(closing, end):
        return end + 1, False
    return _skip(text, end, ","), True


def _at_end(text: str, position: int) -> None:
    if _space(text, position) != len(text):
        raise ValueError(_INVALID)


def _end_of_value(text: str, position: int) -> int:
    if not text.startswith(("[", "{"), position):
        match = _SCALAR.match(text, position)
        if match is None:
            raise ValueError(_INVALID)
        return match.end()
    depth = 0
    while match := _TO_BRACKET.match(text, position):
        depth += 1 if match[1] in "[{" else -1
        position = match.end()
        if depth == 0:
            return position
    raise ValueError(_INVALID)
