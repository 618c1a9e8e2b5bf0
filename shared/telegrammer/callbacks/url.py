"""A callback's URL: which are accepted, and the one spelling of each.

The canonical form has scheme and host in lower case, no default port, and ``/`` for
an empty path. Path and query stay as they were given, byte for byte.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

LENGTH_LIMIT: Final = 2048

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_PARTS: Final = re.compile(r"(https?)://([^/?]*)(.*)", re.IGNORECASE)
_AUTHORITY: Final = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?")
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"(?=.{{1,254}}\Z){_LABEL}(?:\.{_LABEL})*\.?")
_IPV4: Final = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)\.([0-9]+)")


@dataclass(frozen=True, slots=True)
class CallbackUrl:
    """An accepted URL in canonical form, apart as a client needs it.

    ``origin`` is scheme, host and port; ``target`` is what stands in the request line:
    libcurl would rewrite it if it were part of the URL. ``str()`` puts both together.
    """

    origin: str
    target: str

    def __str__(self) -> str:
        return self.origin + self.target

    @classmethod
    def parse(cls, text: str) -> "CallbackUrl":
        """Return the URL that ``text`` names; raise ``ValueError``, which says what to do."""
        _check_length(text)
        if not text.isascii() or any(c <= " " or c == "\x7f" for c in text):
            raise ValueError("must be ASCII without white space and control characters")
        if "#" in text:
            raise ValueError("must not have a fragment (#)")
        parts = _PARTS.fullmatch(text)
        if parts is None:
            raise ValueError("must be an absolute URL that begins with http:// or https://")
        scheme, authority, rest = parts[1].lower(), parts[2].lower(), parts[3]
        target = rest if rest.startswith("/") else "/" + rest
        url = cls(f"{scheme}://{_host_and_port(authority, _DEFAULT_PORTS[scheme])}", target)
        _check_length(str(url))
        return url


def _check_length(text: str) -> None:
    # The canonical form too: it may be one byte longer, and what a listing shows
    # can be registered again.
    if len(text) > LENGTH_LIMIT:
        raise ValueError(f"must have at most {LENGTH_LIMIT} bytes")


def _host_and_port(authority: str, default_port: int) -> str:
    if "@" in authority:
        raise ValueError("must not hold a user name or password")
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise ValueError("must have a valid host and a port from 1 to 65535, if any")
    host, port = match[1], int(match[2] or default_port)
    if not _is_host(host):
        raise ValueError("must have a host: a name, an IPv4 or an [IPv6] address")
    if not 1 <= port <= 65535:
        raise ValueError("must have a port from 1 to 65535")
    return host if port == default_port else f"{host}:{port}"


def _is_host(host: str) -> bool:
    if numbers := _IPV4.fullmatch(host):
        return all(int(number) <= 255 for number in numbers.groups())
    if not host.startswith("["):
        return _NAME.fullmatch(host) is not None
    try:
        address = ipaddress.IPv6Address(host[1:-1])
    except ValueError:
        return False
    return address.scope_id is None
