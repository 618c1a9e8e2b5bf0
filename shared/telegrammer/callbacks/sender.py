"""Many POSTs at once in one thread, each with a hard total time.

libcurl's multi interface drives them; one epoll waits for all their sockets and for
whatever else the caller wants to be woken by. libcurl resolves names in threads of its
own, ends every exchange at its total time whatever the receiver does, and sends the
request target byte for byte.
"""

import contextlib
import resource
import select
import threading
from typing import Final, Generic, NamedTuple, TypeVar

import pycurl

from telegrammer import USER_AGENT
from telegrammer.callbacks.outcome import Answer
from telegrammer.errors import ConfigurationError
from telegrammer.tls import ca_file

RESPONSE_LIMIT: Final = 64 * 1024  # bytes, decompressed

_IDLE_CONNECTIONS: Final = 256  # kept open, to as many receivers
_SLOT_FILES: Final = 2  # a connection, and a lookup or a second address on trial
_OTHER_FILES: Final = 32  # of the process: database, logs and the like
_CLOSE_PATIENCE: Final = 0.5  # seconds

_ERRORS: Final = {
    pycurl.E_OPERATION_TIMEDOUT: "timeout",
    pycurl.E_COULDNT_RESOLVE_HOST: "dns_failed",
    pycurl.E_COULDNT_CONNECT: "connect_failed",
    pycurl.E_SSL_CONNECT_ERROR: "tls_failed",
    pycurl.E_PEER_FAILED_VERIFICATION: "tls_failed",
    pycurl.E_SSL_CERTPROBLEM: "tls_failed",
    pycurl.E_SSL_CACERT_BADFILE: "tls_failed",
    pycurl.E_SEND_ERROR: "connection_closed",
    pycurl.E_RECV_ERROR: "connection_closed",
    pycurl.E_GOT_NOTHING: "connection_closed",
    pycurl.E_PARTIAL_FILE: "connection_closed",
    pycurl.E_WRITE_ERROR: "too_large",
    pycurl.E_FILESIZE_EXCEEDED: "too_large",
}

# A body that cannot be unpacked is none that anybody needs.
_ANSWERED: Final = (None, pycurl.E_BAD_CONTENT_ENCODING)

_EPOLL_OF: Final = {
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}

K = TypeVar("K")


class Post(NamedTuple):
    """One POST. ``origin`` is scheme, host and port; ``target`` goes out byte for byte."""

    origin: str
    target: str
    body: bytes
    delivery_id: str


class _Slot(Generic[K]):
    """One libcurl handle, used for one POST after another."""

    def __init__(self, connect_timeout: float, timeout: float, ca: str) -> None:
        self.key: K | None = None
        self.handle = pycurl.Curl()
        self._headers: list[bytes] = []
        self._codings = 0
        self._room = 0
        options: dict[int, object] = {
            pycurl.POST: 1,
            pycurl.NOSIGNAL: 1,
            pycurl.CONNECTTIMEOUT_MS: max(1, int(connect_timeout * 1000)),
            pycurl.TIMEOUT_MS: max(1, int(timeout * 1000)),
            pycurl.PROTOCOLS: pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS,
            pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_1_1,
            pycurl.FOLLOWLOCATION: 0,
            pycurl.USERAGENT: USER_AGENT,
            pycurl.PROXY: "",  # the environment's proxies are not for callbacks
            pycurl.NETRC: pycurl.NETRC_IGNORED,
            pycurl.CAINFO: ca,
            # Nothing is asked for, and what comes unasked is still unpacked, so that
            # the limit counts what a receiver really makes us hold. What is on the wire has
            # the same limit: packed, a few bytes can unpack to none for ever.
            pycurl.ACCEPT_ENCODING: "",
            pycurl.MAXFILESIZE: RESPONSE_LIMIT,
            pycurl.HEADERFUNCTION: self._take_head,
            pycurl.WRITEFUNCTION: self._take,
        }
        for option, value in options.items():
            self.handle.setopt(option, value)

    def load(self, key: K, post: Post) -> None:
        self.key = key
        self._headers.clear()
        self._codings = 0
        self._room = RESPONSE_LIMIT
        self.handle.setopt(pycurl.URL, post.origin)
        self.handle.setopt(pycurl.REQUEST_TARGET, post.target)
        self.handle.setopt(pycurl.POSTFIELDS, post.body)
        self.handle.setopt(
            pycurl.HTTPHEADER,
            [
                "Content-Type: application/json",
                f"X-Telegrammer-Delivery-Id: {post.delivery_id}",
                "Accept:",
                "Accept-Encoding:",
                "Expect:",
            ],
        )

    def answer(self, error: str | None) -> Answer:
        """Return what came back; ``error`` says why it is not whole."""
        if error is not None:
            return Answer(error=error, retry_after=self._retry_after())  # the head may have come
        status = int(self.handle.getinfo(pycurl.RESPONSE_CODE))
        if 200 <= status <= 299:
            return Answer(status)
        return Answer(status, retry_after=self._retry_after())

    def _retry_after(self) -> str | None:
        """Return the final answer's: libcurl hands over interim heads and trailers as well."""
        found, is_head = None, False
        for line in self._headers:
            name, _, value = line.partition(b":")
            if line.startswith(b"HTTP/"):
                found, is_head = None, True
            elif not line.strip():
                is_head = False
            elif is_head and found is None and name.strip().lower() == b"retry-after":
                found = value.decode("latin-1").strip()
        return found

    def _take_head(self, line: bytes) -> int | None:
        self._headers.append(line)
        if line[:17].lower() == b"content-encoding:":
            # One within the other, a thousandfold each, a small answer would be unpacked
            # for hours, and every other callback would wait: libcurl looks at no clock then.
            self._codings += line.count(b",") + 1
            if self._codings > 1:
                return 0  # fewer than were given, as below
        return None

    def _take(self, data: bytes) -> int:
        self._room -= len(data)
        # Fewer than were given: libcurl ends the exchange with a write error.
        return len(data) if self._room >= 0 else 0


class Sender(Generic[K]):
    """A fixed number of POSTs at once; ``K`` names a POST for the caller."""

    def __init__(self, slots: int, connect_timeout: float, timeout: float) -> None:
        """``connect_timeout`` and ``timeout`` (in total) are in seconds.

        Raises ``ConfigurationError`` when this process may not open enough files.
        """
        idle = _idle_connections(slots)
        self._epoll = select.epoll()
        self._extra: set[int] = set()
        self._parked: set[int] = set()  # idle connections, left in the epoll
        self._answered: list[tuple[K, Answer]] = []
        ca = ca_file()
        self._free: list[_Slot[K]] = [_Slot(connect_timeout, timeout, ca) for _ in range(slots)]
        self._slot_of: dict[pycurl.Curl, _Slot[K]] = {s.handle: s for s in self._free}
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, idle)
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch_socket)

    @property
    def free(self) -> int:
        """How many POSTs can be started now."""
        return len(self._free)

    @property
    def running(self) -> int:
        return len(self._slot_of) - len(self._free)

    @property
    def keys(self) -> list[K]:
        """Whatever was started and ``wait`` has not returned."""
        running = [slot.key for slot in self._slot_of.values() if slot.key is not None]
        return running + [key for key, _answer in self._answered]

    def watch(self, descriptor: int) -> None:
        """Let ``wait`` also end when this descriptor is readable."""
        self._extra.add(descriptor)
        self._epoll.register(descriptor, select.EPOLLIN)

    def unwatch(self, descriptor: int) -> None:
        """Undo ``watch``: a descriptor that stays readable would end every wait."""
        self._extra.discard(descriptor)
        self._epoll.unregister(descriptor)

    def start(self, key: K, post: Post) -> None:
        """Begin a POST in a free slot; ``wait`` returns its answer."""
        slot = self._free.pop()
        slot.load(key, post)
        self._multi.add_handle(slot.handle)

    def push(self) -> None:
        """Let the POSTs that were started go out now, not only with the next ``wait``."""
        if self._multi.timeout() == 0:  # what was added, and what timed out, is due at once
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
            self._gather()

    def wait(self, seconds: float) -> tuple[list[tuple[K, Answer]], set[int]]:
        """Wait for answers, a watched descriptor, or the time.

        Return the POSTs that ended, and the watched descriptors that are readable.
        """
        if self._answered:
            seconds = 0
        elif (due := self._multi.timeout()) >= 0:
            seconds = min(seconds, due / 1000)
        readable = set()
        for descriptor, events in self._epoll.poll(max(0.0, seconds)):
            if descriptor in self._extra:
                readable.add(descriptor)
            elif descriptor in self._parked:
                self._forget(descriptor)
            else:
                self._multi.socket_action(descriptor, _curl_events(events))
        if self.running:
            self._gather()
        self.push()
        answered, self._answered = self._answered, []
        return answered, readable

    def close(self) -> None:
        """End every POST and connection."""
        for slot in self._slot_of.values():
            if slot.key is not None:
                self._multi.remove_handle(slot.handle)
            slot.handle.close()
        # libcurl waits for the lookups of names, which nothing can interrupt: those that
        # hang are left behind, and end with the process.
        closing = threading.Thread(target=self._multi.close, name="dns", daemon=True)
        closing.start()
        closing.join(_CLOSE_PATIENCE)
        self._epoll.close()

    def _gather(self) -> None:
        left = 1
        while left:
            left, succeeded, failed = self._multi.info_read()
            self._answered += [self._release(handle, None) for handle in succeeded]
            self._answered += [self._release(handle, code) for handle, code, _text in failed]

    def _release(self, handle: pycurl.Curl, code: int | None) -> tuple[K, Answer]:
        slot = self._slot_of[handle]
        answer = slot.answer(None if code in _ANSWERED else _ERRORS.get(code, "bad_response"))
        self._multi.remove_handle(handle)
        key, slot.key = slot.key, None
        self._free.append(slot)
        assert key is not None  # noqa: S101  (set in ``load``; for the type checker)
        return key, answer

    def _watch_socket(self, what: int, descriptor: int, _multi: object, _known: object) -> None:
        """Do what libcurl asks for; it calls this at least twice for each POST.

        A connection that falls idle stays in the epoll, with what it was last watched for:
        to change that is half the work of taking it out and putting it in again. One that
        libcurl closes leaves by itself, and its number may come back with another.
        """
        if what == pycurl.POLL_REMOVE:
            self._parked.add(descriptor)
            return
        self._parked.discard(descriptor)
        try:
            self._epoll.modify(descriptor, _EPOLL_OF[what])
        except FileNotFoundError:
            self._epoll.register(descriptor, _EPOLL_OF[what])

    def _forget(self, descriptor: int) -> None:
        """Take out an idle connection that its receiver has closed.

        Or that libcurl has closed since the poll: for each event it also does whatever is
        due, and the number then is nobody's or that of another file.
        """
        self._parked.discard(descriptor)
        with contextlib.suppress(OSError):
            self._epoll.unregister(descriptor)

    def __enter__(self) -> "Sender[K]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _idle_connections(slots: int) -> int:
    """Return how many connections can be kept without taking a slot's descriptors from it.

    A receiver would pay for a missing one with its attempts.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = slots * _SLOT_FILES + _OTHER_FILES
    if files <= needed:
        raise ConfigurationError(
            f"TELEGRAMMER_CALLBACK_WORKERS: {slots} callbacks at once need more than {needed}"
            f" open files, and this process may have {files}: raise that limit (ulimit -n)"
        )
    return min(_IDLE_CONNECTIONS, files - needed)


def _curl_events(events: int) -> int:
    mask = 0
    if events & (select.EPOLLIN | select.EPOLLHUP):
        mask |= pycurl.CSELECT_IN
    if events & select.EPOLLOUT:
        mask |= pycurl.CSELECT_OUT
    if events & select.EPOLLERR:
        mask |= pycurl.CSELECT_ERR
    return mask
