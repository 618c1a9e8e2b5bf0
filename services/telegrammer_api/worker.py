"""The worker process: one thread that waits for every peer, a few that answer.

The main thread accepts, collects heads, keeps every deadline, refuses what is too
much, sends what a peer was too slow to take, and lingers. A pool thread gets a request
only when its head is complete, reads its body, runs the application and sends what
the peer takes at once. So a slow peer can hold a pool thread only with a body that the
application wants, for the request timeout at most.

A connection is always in one place: a room of the main thread (``rooms``), or a pool
thread; while in the pool the main thread only watches its time in the queue.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import secrets
import select
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http import HTTPMethod
from typing import Final
from wsgiref.types import StartResponse, WSGIEnvironment

from gunicorn import systemd
from gunicorn.arbiter import Arbiter
from gunicorn.http.errors import ParseException
from gunicorn.workers.base import Worker

from telegrammer.errors import ExitError
from telegrammer.logs import Log
from telegrammer_api import pages
from telegrammer_api.accepting import Acceptance
from telegrammer_api.exchange import (
    RECEIVE,
    Call,
    HeadIncomplete,
    Reply,
    Source,
    StrictRequest,
    run,
)
from telegrammer_api.front import KEY_ID, REQUEST_ID, ROUTE, Application
from telegrammer_api.rooms import Connection, Room, Then, leave

log: Final = Log("api")

LONGEST_HEAD: Final = 32 * 1024
"""Bytes of a request line with its headers; more is answered 431."""

LONGEST_LINE: Final = 4094
"""Bytes of a request line; more is answered 414."""

BACKLOG: Final = 1024
"""Connections that may wait at the listener."""

# Some clients send one after a body; alone, it would be taken for a head that is late.
_EMPTY_LINE: Final = b"\r\n"
_LINGER: Final = 2.0
_FRESH: Final = 0.1  # a head that takes longer is a slow one
_TURN: Final = 1.0  # at least this often the parent is looked for, where the kernel tells nothing
_LAST_CALL: Final = 0.2  # while stopping: for a request that is on its way
_LAST_HEAD: Final = 2.0  # while stopping: for one that has begun to arrive
_SPARE_CONNECTIONS: Final = 512  # beside those with a request
_SPARE_DESCRIPTORS: Final = 64  # for the application, logs and the like

_READ: Final = select.EPOLLIN | select.EPOLLONESHOT
_WRITE: Final = select.EPOLLOUT | select.EPOLLONESHOT


class FrontWorker(Worker):  # type: ignore[misc]
    """gunicorn's worker with our own front; see the module for its shape."""

    # -- its life ----------------------------------------------------------------

    def init_signals(self) -> None:
        """Begin to hear signals: until now they were held back (``server``).

        Those that mean something to the master alone, but come to the whole group from a
        terminal that closes or from ``systemctl kill``, would end the requests that run.
        """
        super().init_signals()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self.SIGNALS)

    def handle_quit(self, sig: int, frame: object) -> None:
        """Stop as gently for SIGINT and SIGQUIT as for SIGTERM."""
        self.handle_exit(sig, frame)

    def load_wsgi(self) -> None:
        """Open the application; failing ends the whole server (``WORKER_BOOT_ERROR``)."""
        self._opened = ExitStack()
        try:
            self._application: Application = self._opened.enter_context(self.app.open())
        except ExitError as error:
            log.error("worker_failed", error=str(error))
            raise SystemExit(Arbiter.WORKER_BOOT_ERROR) from None
        except (Exception, SystemExit):
            log.exception("worker_failed")
            raise SystemExit(Arbiter.WORKER_BOOT_ERROR) from None

    def run(self) -> None:
        """Serve until told to stop; then finish what was begun, and leave nothing open."""
        self._open()
        systemd.sd_notify("READY=1", self.log)
        log.info("worker_started", pid=self.pid)
        try:
            while self.alive and os.getppid() == self.ppid:
                self._turn(self._longest_turn)
            self._stop()
        finally:
            self._close()
        log.info("worker_stopped", pid=self.pid)

    def _open(self) -> None:
        limits = self.app.limits
        self._request_timeout: float = limits.request_timeout
        self._capacity: int = limits.threads + -(-limits.queue // limits.workers)
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most_connections = min(
            self._capacity + _SPARE_CONNECTIONS, descriptors - _SPARE_DESCRIPTORS
        )
        self._connections: dict[int, Connection] = {}
        self._busy = 0  # requests in the pool, running or waiting
        self._counting = threading.Lock()
        self._answered: deque[Connection] = deque()
        self._waste = bytearray(65536)
        self._build_rooms()
        self._pool = ThreadPoolExecutor(limits.threads, "request")
        self._listener: socket.socket = self.sockets[0]
        self._server = self._listener.getsockname()
        self._listening = True
        self._acceptance = Acceptance(limits.threads, self._capacity)
        self._epoll = select.epoll()
        self._epoll.register(self.PIPE[0], select.EPOLLIN)
        self._epoll.register(self._listener, _READ)
        self._watch_parent()

    def _watch_parent(self) -> None:
        """Let the master's end wake this worker, so that it need not look once a second."""
        self._longest_turn = _TURN
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            parent = os.pidfd_open(self.ppid)
            self._opened.callback(os.close, parent)
            self._epoll.register(parent, _READ)
            self._longest_turn = self.app.limits.stuck_timeout / 3

    def _build_rooms(self) -> None:
        limits, timeout = self.app.limits, self._request_timeout
        self._fresh = Room(min(_FRESH, timeout), self._receive, self._head_slow)
        self._arriving = Room(max(timeout - _FRESH, 0.0), self._receive, self._head_late)
        self._idle = Room(limits.idle_timeout, self._receive, self._end)
        self._queued = Room(limits.queue_wait, self._ignore, self._queue_late)
        self._writing = Room(timeout, self._send, self._write_late)
        self._lingering = Room(_LINGER, self._drain, self._end)
        self._without_request = (self._fresh, self._arriving, self._idle, self._lingering)
        self._rooms = (*self._without_request, self._queued, self._writing)

    def _stop(self) -> None:
        """Accept nothing more, drop who has no request here, finish the others."""
        self.alive = False
        self._listening = False
        limits, now = self.app.limits, time.monotonic()
        last_call, give_up = now + _LAST_CALL, now + limits.stop_timeout
        # Refused while it is certain that nothing was done, rather than begun and cut.
        self._queued.close(give_up - limits.longest_request)
        self._idle.close(last_call)
        for room in (self._fresh, self._arriving):
            room.close(now + _LAST_HEAD)
        self._epoll.unregister(self._listener)
        self._accept_waiting()
        self._listener.close()
        while self._connections and now < give_up:
            self._turn(_LAST_CALL)
            now = time.monotonic()
            if now >= last_call:
                self._drop_silent(self._fresh, self._arriving)

    def _close(self) -> None:
        for connection in list(self._connections.values()):
            if connection.work is not None and connection.work.running():
                _log_cut(connection)
            if connection.room is self._writing:
                self._write_late(connection)
            elif connection.room is not None:
                self._end(connection)
        self._epoll.close()
        # Requests that did not end in time still use the application: they are left
        # behind, and end with the process.
        self._pool.shutdown(wait=self._busy == 0, cancel_futures=True)
        if self._busy == 0:
            self._opened.close()

    # -- the main thread's turn -----------------------------------------------------

    def _turn(self, at_most: float) -> None:
        """Wait for something to do, at most so many seconds, and do it."""
        self.notify()
        for descriptor, _ in self._epoll.poll(min(self._patience(), at_most)):
            if descriptor == self.PIPE[0]:
                os.read(descriptor, 65536)
            elif self._listening and descriptor == self._listener.fileno():
                self._acceptance.knock(self._load(), self._busy, time.monotonic())
            elif connection := self._connections.get(descriptor):
                self._attend(connection, self._be_ready)
        while self._answered:
            self._settle(self._answered.popleft())
        if self._listening:
            self._accept_due()
        for room in self._rooms:
            self._expire(room)

    def _patience(self) -> float:
        """Return the seconds until the next deadline."""
        soonest = min(self._acceptance.next_due, *(room.next_late for room in self._rooms))
        return max(soonest - time.monotonic(), 0.0)

    def _attend(self, connection: Connection, step: Callable[[Connection], None]) -> None:
        try:
            step(connection)
        except Exception:  # one peer's bytes must never end the process of all
            log.exception("connection_failed")
            self._end(connection)

    def _be_ready(self, connection: Connection) -> None:
        if connection.room is not None:  # a late event may find it in the pool
            connection.room.ready(connection)

    def _expire(self, room: Room) -> None:
        now = time.monotonic()
        while room.next_late <= now and (connection := room.oldest):
            self._attend(connection, room.late)

    def _drop_silent(self, *rooms: Room) -> None:
        """End the connections that nothing has come from."""
        for connection in [found for room in rooms for found in room if not found.received]:
            self._end(connection)

    def _wait(self, connection: Connection, room: Room) -> None:
        """Move the connection into a room and wait for its socket there."""
        room.enter(connection, time.monotonic())
        self._watch(connection)

    def _watch(self, connection: Connection) -> None:
        wish = _WRITE if connection.room is self._writing else _READ
        self._epoll.modify(connection.sock, wish)

    def _ignore(self, connection: Connection) -> None:
        """A queued connection's socket is not looked at; a late event may still come."""

    def _end(self, connection: Connection) -> None:
        leave(connection)
        self._connections.pop(connection.sock.fileno(), None)
        connection.sock.close()

    # -- accepting --------------------------------------------------------------------

    def _accept_due(self) -> None:
        """Accept the connections that are due, if any, and listen again."""
        if batch := self._acceptance.due(self._load(), time.monotonic()):
            while batch and self._accept():
                batch -= 1
            self._epoll.modify(self._listener, _READ)

    def _accept_waiting(self) -> None:
        """Accept who knocked before the stop: once nobody listens, they would be reset.

        Other workers may have come and have a thread for them, or may stop as well.
        """
        for _ in range(BACKLOG):
            if not self._accept():
                return

    def _load(self) -> int:
        """Return how many requests are here or will be in a moment."""
        return self._busy + len(self._fresh)

    def _accept(self) -> bool:
        """Accept one connection, if one waits; make room for it first."""
        if len(self._connections) >= self._most_connections:
            self._make_room()
        try:
            sock, peer = self._listener.accept()
        except OSError as error:  # another worker had it, or its peer left
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._make_room()
            return False
        sock.setblocking(False)
        connection = Connection(sock, peer, time.monotonic())
        self._connections[sock.fileno()] = connection
        self._epoll.register(sock, select.EPOLLONESHOT)  # for nothing yet
        self._fresh.enter(connection, connection.began)
        self._attend(connection, self._receive)  # it is here already, more often than not
        return True

    def _make_room(self) -> None:
        """Close the oldest connection of the fullest room: a flood pays for itself.

        A request that runs or waits is never given up for a new connection.
        """
        if victim := max(*self._without_request, self._writing, key=len).oldest:
            self._end(victim)

    # -- heads ------------------------------------------------------------------------

    def _receive(self, connection: Connection) -> None:
        try:
            data = connection.sock.recv(RECEIVE)
        except BlockingIOError:
            return self._watch(connection)
        except OSError:
            data = b""
        if not data:
            return self._end(connection)
        if connection.room is self._idle:
            data = data.removeprefix(_EMPTY_LINE)
            if not data:
                return self._watch(connection)
            self._begin(connection)
        connection.received += data
        # An incomplete head can be judged at a line's end or when it is too long.
        if b"\n" in data or len(connection.received) > LONGEST_LINE:
            return self._parse(connection)
        return self._watch(connection)

    def _begin(self, connection: Connection) -> None:
        """Note that a request's first byte is here."""
        connection.began = time.monotonic()
        self._fresh.enter(connection, connection.began)

    def _parse(self, connection: Connection) -> None:
        source = Source(connection.sock, connection.received, self._request_timeout)
        try:
            request = StrictRequest(self.cfg, source, connection.peer)
        except HeadIncomplete:
            if len(connection.received) > LONGEST_HEAD:
                return self._refuse(connection, pages.HEADERS_TOO_LARGE)
            return self._watch(connection)
        except ParseException as error:
            return self._refuse(connection, pages.page_for(error))
        return self._admit(connection, request)

    def _head_slow(self, connection: Connection) -> None:
        self._arriving.enter(connection, time.monotonic())

    def _head_late(self, connection: Connection) -> None:
        if connection.received:
            self._refuse(connection, pages.REQUEST_TIMEOUT)
        else:
            self._end(connection)

    def _admit(self, connection: Connection, request: StrictRequest) -> None:
        if self._busy >= self._capacity or self._queued.is_closed(time.monotonic()):
            return self._refuse(connection, pages.OVERLOADED)
        self._count(1)
        connection.then = Then.CLOSE  # unless an answer says otherwise
        self._queued.enter(connection, time.monotonic())
        connection.work = self._pool.submit(self._answer, connection, request)
        return None

    def _queue_late(self, connection: Connection) -> None:
        if connection.work is not None and connection.work.cancel():
            self._count(-1)
            self._refuse(connection, pages.OVERLOADED)
        else:  # it runs by now, within the application's own limits
            leave(connection)

    def _refuse(self, connection: Connection, page: pages.Page) -> None:
        """Answer with a page of ours, at once and from here, and close."""
        request_id = secrets.token_hex(8)
        with_body = not connection.received.lstrip().startswith(b"HEAD ")
        connection.answer(page.render(request_id, with_body=with_body), Then.LINGER)
        _log_request(connection, page.status, request_id)
        self._follow(connection)

    # -- answers ----------------------------------------------------------------------

    def _answer(self, connection: Connection, request: StrictRequest) -> None:
        """Answer one request; the only thing here that runs in a pool thread."""
        request_id = secrets.token_hex(8)
        try:
            try:
                reply = self._ask(connection, request, request_id)
            finally:
                self._count(-1)  # before the peer can know, and ask again
            connection.received = request.unreader.take_buffered().removeprefix(_EMPTY_LINE)
            connection.answer(reply.data, reply.then)
            _log_request(connection, reply.status, request_id, request.method, reply.route)
        except Exception:  # nobody asks the future
            log.exception("connection_failed")
        finally:
            self._answered.append(connection)
            os.write(self.PIPE[1], b"\0")

    def _ask(self, connection: Connection, request: StrictRequest, request_id: str) -> Reply:
        def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            connection.environ = environ
            return self._application(environ, start_response)

        call = Call(connection.peer, self._server, request_id, last=not self.alive)
        try:
            return run(application, request, self.cfg, call)
        except (Exception, SystemExit) as error:  # the outermost edge of a request
            page = pages.page_for(error)
            if page is pages.INTERNAL_ERROR:
                log.exception("request_failed", request_id=request_id)
            data = page.render(request_id, with_body=request.method != "HEAD")
            return Reply(data, page.status, None, Then.LINGER)

    def _count(self, change: int) -> None:
        """Note that a request came to the pool or is done."""
        with self._counting:
            self._busy += change

    def _settle(self, connection: Connection) -> None:
        """Take the connection back from the pool."""
        connection.work = None
        connection.environ = {}
        self._attend(connection, self._follow)

    def _follow(self, connection: Connection) -> None:
        """Go on after an answer: send its rest, or do what was decided for then."""
        if not connection.sent:
            self._wait(connection, self._writing)
        elif connection.then is Then.CLOSE:
            self._end(connection)
        elif connection.then is Then.LINGER:
            self._linger(connection)
        elif connection.received:
            self._begin(connection)
            self._parse(connection)
        else:
            self._wait(connection, self._idle)

    def _send(self, connection: Connection) -> None:
        connection.send()
        if connection.sent:
            self._follow(connection)
        else:
            self._watch(connection)

    def _write_late(self, connection: Connection) -> None:
        log.info("response_cut", peer=connection.peer[0])
        self._end(connection)

    def _linger(self, connection: Connection) -> None:
        try:
            connection.sock.shutdown(socket.SHUT_WR)
        except OSError:
            return self._end(connection)
        return self._wait(connection, self._lingering)

    def _drain(self, connection: Connection) -> None:
        try:
            ended = connection.sock.recv_into(self._waste) == 0
        except BlockingIOError:
            ended = False
        except OSError:
            ended = True
        if ended:
            self._end(connection)
        else:
            self._watch(connection)


def _log_request(
    connection: Connection,
    status: int,
    request_id: str,
    method: str | None = None,
    route: str | None = None,
) -> None:
    """Write the line of the log; nothing in it is a caller's own text."""
    log.info(
        "request",
        method=_known(method),
        route=route,
        status=status,
        duration_ms=_age_ms(connection),
        request_id=request_id,
    )


def _log_cut(connection: Connection) -> None:
    """Name a request whose caller gets no answer, by what is known of it so far."""
    environ = connection.environ
    log.warning(
        "request_cut",
        method=_known(environ.get("REQUEST_METHOD")),
        route=environ.get(ROUTE),
        key_id=environ.get(KEY_ID),
        duration_ms=_age_ms(connection),
        request_id=environ.get(REQUEST_ID),
    )


def _known(method: str | None) -> str | None:
    return method if method is None or method in HTTPMethod.__members__ else "OTHER"


def _age_ms(connection: Connection) -> float:
    return round((time.monotonic() - connection.began) * 1000, 1)
