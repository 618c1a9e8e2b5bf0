"""Query and body of a request -> a method's parameters, as the official server reads them.

Every parameter is a text. The query comes before the body, and of two with one name the
first counts. A value in a JSON body that is no string counts as its own JSON text.
"""

import email
import email.policy
import json
from collections.abc import Iterator
from email.message import EmailMessage
from typing import Final, cast
from urllib.parse import parse_qsl

MOST_FIELDS: Final = 1000

_SPACE: Final = " \t\r\n"
_DECODER: Final = json.JSONDecoder()


class Unreadable(ValueError):  # noqa: N818
    """The body cannot be read as what it says to be."""


def read(query: str, content_type: str, body: bytes) -> dict[str, str]:
    """Return the parameters; raise ``Unreadable`` for a body that cannot be parsed."""
    try:
        pairs = [*_form(query), *_body(content_type, body)]
    except (ValueError, RecursionError) as error:
        raise Unreadable("the request cannot be parsed") from error
    found: dict[str, str] = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found


def integer(text: str, bits: int) -> int:
    """Read leading digits, ignore the rest, wrap on overflow: as C++ ``to_integer`` does."""
    negative = text.startswith("-")
    value = 0
    for character in text[negative:]:
        if not ("0" <= character <= "9"):
            break
        value = (value * 10 + int(character)) % (1 << bits)
    value = -value if negative else value
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half


def boolean(text: str) -> bool:
    return text.strip().lower() in ("true", "yes", "1")


def members(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and JSON text of each member of an object, duplicates too.

    Raises ``ValueError`` when the text is not one JSON object.
    """
    at = _skip(text, _expect(text, _skip(text, 0), "{"))
    while text[at : at + 1] != "}":
        _expect(text, at, '"')
        name, at = _DECODER.raw_decode(text, at)
        start = _skip(text, _expect(text, _skip(text, at), ":"))
        _, at = _DECODER.raw_decode(text, start)
        yield name, text[start:at]
        at = _skip(text, at)
        if text[at : at + 1] != "}":
            at = _skip(text, _expect(text, at, ","))
    if _skip(text, at + 1) != len(text):
        raise ValueError("something follows the object")


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _expect(text: str, at: int, character: str) -> int:
    if text[at : at + 1] != character:
        raise ValueError(f"{character} expected at {at}")
    return at + 1


def _body(content_type: str, body: bytes) -> Iterator[tuple[str, str]]:
    kind = content_type.split(";", 1)[0].strip().lower()
    if not body:
        return
    if kind == "application/json":
        for name, value in members(body.decode()):
            yield name, json.loads(value) if value.startswith('"') else value
    elif kind == "application/x-www-form-urlencoded":
        yield from _form(body.decode())
    elif kind == "multipart/form-data":
        yield from _parts(content_type, body)


def _form(text: str) -> list[tuple[str, str]]:
    return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)


def _parts(content_type: str, body: bytes) -> Iterator[tuple[str, str]]:
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1")
    message = email.message_from_bytes(head + body, policy=email.policy.HTTP)
    for part in cast("Iterator[EmailMessage]", message.iter_parts()):
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(content, bytes) and part.get_filename() is None:
            yield name, content.decode()
