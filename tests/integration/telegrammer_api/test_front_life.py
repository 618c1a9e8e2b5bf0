"""The front as a process: start, stop, signals, and what the environment cannot do."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.front import Front, Hold, until
from support.raw_http import RawClient, request

# -- start ------------------------------------------------------------------------------


def test_an_occupied_port_ends_it_at_once_with_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        began = time.monotonic()
        with Front(port=taken.getsockname()[1]) as front:
            assert front.wait() == 1
            assert time.monotonic() - began < 2.0

            (line,) = front.log.splitlines()
            assert f"cannot listen on 127.0.0.1 port {taken.getsockname()[1]}" in line
            assert "--port" in line


def test_an_address_that_is_not_ours_ends_it_with_one_line() -> None:
    with Front(host="192.0.2.1") as front:
        assert front.wait() == 1
        assert "cannot listen on 192.0.2.1" in front.log


def test_it_listens_on_ipv6() -> None:
    with Front(host="::1") as front, front.ready().client() as client:
        assert client.exchange(request("/")).json()["REMOTE_ADDR"] == "::1"


@pytest.mark.parametrize("application", ["broken", "exits", "refused"])
def test_an_application_that_cannot_be_opened_ends_the_whole(application: str) -> None:
    """Exit status 1, and no worker is tried again and again."""
    began = time.monotonic()
    with Front(f"support.tiny_app:{application}", workers=3) as front:
        assert front.wait() == 1
        assert time.monotonic() - began < 5.0
        assert 1 <= front.log.count("event=worker_failed") <= 3
        assert ("traceback=" in front.log) == (application != "refused")
        assert "HaltServer" not in front.log


def test_the_application_is_opened_in_each_worker_and_closed_there() -> None:
    with Front(workers=2) as front:
        workers = {process.pid for process in front.ready(2).workers()}
        front.stop()
        opened = {int(pid) for pid in re.findall(r"tiny_app opened pid=(\d+)", front.log)}
        closed = {int(pid) for pid in re.findall(r"tiny_app closed pid=(\d+)", front.log)}

        assert opened == closed == workers
        assert front.process.pid not in workers


def test_what_the_caller_of_serve_holds_is_not_let_go_by_a_worker() -> None:
    with Front(workers=2) as front:
        front.ready(2).stop()

        assert re.findall(r"event=caller_ended pid=(\d+)", front.log) == [str(front.process.pid)]


def test_nothing_in_the_environment_has_an_effect() -> None:
    environment = {
        "PORT": "1",
        "WEB_CONCURRENCY": "many",
        "FORWARDED_ALLOW_IPS": "*",
        "SENDFILE": "yes",
        "SCRIPT_NAME": "/zzz",
        "GUNICORN_CMD_ARGS": "--bind=0.0.0.0:1 --workers=7",
        "GUNICORN_PID": "1",
        "GUNICORN_FD": "99",
        "LISTEN_FDS": "1",
        "LISTEN_PID": "1",
    }
    with Front(environment=environment) as front, front.ready().client() as client:
        seen = client.exchange(request("/zzz", "GET", "X-Forwarded-Proto: https")).json()

        assert (seen["SCRIPT_NAME"], seen["PATH_INFO"]) == ("", "/zzz")
        assert seen["wsgi.url_scheme"] == "http"
        assert len(front.workers()) == 1


def test_nothing_is_left_in_the_runtime_folder(tmp_path: Path) -> None:
    """gunicorn's control socket stays shut."""
    with Front(environment={"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}) as front:
        front.ready().send_signal(signal.SIGTTIN)
        assert front.logged("worker_started", 2)  # by now all that starts has started
        assert list(tmp_path.iterdir()) == []


@pytest.fixture
def notifications(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(10)
        yield receiver


def test_systemd_hears_ready_from_a_worker_and_stopping(notifications: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": notifications.getsockname()}
    with Front("support.tiny_app:slow", environment=environment) as front:
        assert notifications.recv(100) == b"READY=1"
        assert "tiny_app opened" in front.log
        front.stop()
        assert notifications.recv(100) == b"STOPPING=1"


def test_systemd_never_hears_ready_when_no_worker_starts(notifications: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": notifications.getsockname()}
    with Front("support.tiny_app:broken", environment=environment) as front:
        front.wait()
        assert notifications.recv(100) == b"STOPPING=1"


# -- stop -------------------------------------------------------------------------------

STOPS = [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT]


@pytest.mark.parametrize("number", STOPS)
def test_it_stops_within_a_second_when_no_request_runs(number: signal.Signals) -> None:
    with Front(workers=2, request_timeout=20.0) as front:
        with front.ready(2).client() as idle, front.client() as silent:
            idle.exchange(request("/"))

            assert front.stop(number) < 1.0
            assert idle.is_closed()
            assert silent.is_closed()
        assert "Traceback" not in front.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_running_and_waiting_requests_are_answered_before_the_end(number: signal.Signals) -> None:
    with Front(threads=1, queue=2) as front, front.ready().client() as running:
        running.send(request("/sleep/0.8"))
        with front.client() as waiting:
            waiting.send(request("/sleep/0.1"))
            time.sleep(0.3)  # both heads are in: nothing tells from outside
            stopped = threading.Thread(target=front.stop, args=(number,))
            stopped.start()
            try:
                assert running.read_response().body
                assert waiting.read_response().headers["connection"] == "close"
            finally:
                stopped.join()
        with pytest.raises(ConnectionRefusedError):
            front.client()
        assert "tiny_app closed" in front.log


def test_a_head_that_has_begun_to_arrive_is_waited_for_while_it_stops() -> None:
    with Front() as front, front.ready().client() as known, front.client() as slow:
        slow.send(b"GET / HTTP/1.1\r\nHost: ")
        assert known.exchange(request("/")).status == 200  # by now the worker has read the other
        front.send_signal(signal.SIGTERM)
        assert until(lambda: refuses(front))
        assert known.is_closed()  # the last call for those who have sent nothing is over
        slow.send(b"gateway\r\n\r\n")

        assert slow.read_response().headers["connection"] == "close"
        assert front.wait() == 0


def test_a_head_that_never_ends_holds_up_no_stop() -> None:
    with Front(request_timeout=20.0) as front, front.ready().client() as slow:
        slow.send(b"GET / HTTP/1.1\r\n")
        front.send_signal(signal.SIGTERM)

        assert slow.read_response().code == "REQUEST_TIMEOUT"
        assert slow.age < 5.0
        assert slow.is_closed()
        slow.close()
        assert front.wait(5.0) == 0


def test_who_has_knocked_before_a_stop_is_answered(tmp_path: Path) -> None:
    """Those that no worker has accepted yet; and who finds no place is told."""
    with (
        Front(threads=2, queue=4) as front,
        contextlib.ExitStack() as held,
        Hold(tmp_path) as hold,
    ):
        (worker,) = front.ready().workers()
        worker.suspend()
        clients = [held.enter_context(front.client()) for _ in range(8)]
        for client in clients:
            client.send(request(hold.target))
        front.send_signal(signal.SIGTERM)
        master = psutil.Process(front.process.pid)
        assert until(lambda: not master.net_connections())
        worker.resume()

        assert front.logged("event=request .*status=503", 2)
        hold.release()
        statuses = Counter(client.read_response().status for client in clients)
        assert statuses == {200: 6, 503: 2}
        assert front.wait() == 0


def test_a_second_wish_to_stop_changes_nothing() -> None:
    with Front() as front, front.ready().client() as client:
        client.send(request("/sleep/3"))  # gunicorn would give a second signal 2 s
        assert until(lambda: busy(front))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            front.send_signal(number)
            time.sleep(0.1)  # so that each is handled by itself

        assert client.read_response().status == 200
        assert front.wait() == 0


def test_a_signal_to_every_process_stops_it_as_gently() -> None:
    """A terminal and some supervisors signal the whole group."""
    with Front() as front, front.ready().client() as client:
        client.send(request("/sleep/0.8"))
        assert until(lambda: busy(front))
        os.killpg(front.process.pid, signal.SIGINT)

        assert client.read_response().status == 200
        assert front.wait() == 0


def test_a_request_that_does_not_end_is_cut_at_the_stop_timeout_and_named() -> None:
    with Front(stop_timeout=1.0) as front, front.ready().client() as client:
        client.send(request("/sleep/30?secret"))
        assert until(lambda: busy(front))

        assert 0.9 < front.stop() < 5.0
        assert client.is_closed()
        (line,) = [line for line in front.log.splitlines() if "event=request_cut" in line]
        assert "level=warning" in line
        assert "method=GET route=/sleep key_id=7" in line
        assert re.search(r"request_id=[0-9a-f]{16}", line)
        assert "secret" not in front.log


def test_an_answer_that_is_not_taken_by_the_stop_timeout_is_named() -> None:
    with (
        Front(stop_timeout=1.0, request_timeout=20.0) as front,
        front.ready().client(receive_buffer=4096) as client,
    ):
        client.send(request("/big/20000000"))
        assert front.logged("event=request .*status=200")
        front.stop()

        assert "event=response_cut" in front.log


def test_a_waiting_request_that_may_not_end_in_time_is_refused_instead_of_begun(
    tmp_path: Path,
) -> None:
    """Its caller knows that nothing was done. What runs goes on, and is answered."""
    with (
        Front(threads=1, queue=2, stop_timeout=20.0, longest_request=19.5) as front,
        Hold(tmp_path) as hold,
        front.ready().client() as running,
        front.client() as waiting,
    ):
        assert waiting.exchange(request("/")).status == 200
        running.send(request(hold.target))
        assert front.logged("tiny_app held")
        waiting.send(request("/", "POST", body=b"x" * 100_000))
        front.send_signal(signal.SIGTERM)
        refusal = waiting.read_response()
        hold.release()

        assert (refusal.status, refusal.code) == (503, "OVERLOADED")
        assert waiting.is_closed()
        assert running.read_response().status == 200
        assert front.wait() == 0


def test_nothing_is_begun_once_too_little_time_is_left(tmp_path: Path) -> None:
    """A thread is free, yet the stop may come before it is done."""
    with (
        Front(threads=2, stop_timeout=20.0, longest_request=30.0) as front,
        Hold(tmp_path) as hold,
        front.ready().client() as running,
        front.client() as late,
    ):
        running.send(request(hold.target))
        assert front.logged("tiny_app held")
        late.send(b"GET / HTTP/1.1\r\n")
        front.send_signal(signal.SIGTERM)
        assert until(lambda: refuses(front))
        late.send(b"Host: gateway\r\n\r\n")

        assert late.read_response().code == "OVERLOADED"
        hold.release()
        assert running.read_response().status == 200
        assert front.wait() == 0


def test_a_stop_right_after_the_start_is_not_lost() -> None:
    for _ in range(3):
        with Front(workers=3) as front:
            assert front.logged("event=listening")
            assert until(lambda: bool(psutil.Process(front.process.pid).children()))
            assert front.stop() < 3.0


@pytest.mark.parametrize("application", ["opened", "without_pidfd"])
def test_workers_leave_and_free_the_port_when_the_master_is_killed(application: str) -> None:
    app = f"support.tiny_app:{application}"
    with Front(app, workers=2) as front, front.ready(2).client() as client:
        workers = front.workers()
        client.send(request("/sleep/0.8"))
        assert until(lambda: busy(front))
        front.process.kill()
        front.process.wait()

        assert client.read_response().status == 200
        _, alive = psutil.wait_procs(workers, timeout=5)
        assert alive == []
        with socket.create_server(front.address):
            pass


def refuses(front: Front) -> bool:
    """Tell whether nobody listens any more."""
    try:
        front.client().close()
    except ConnectionRefusedError:
        return True
    return False


def busy(front: Front) -> bool:
    """Tell whether a worker has started a pool thread, so has a request."""
    return any(worker.num_threads() > 1 for worker in front.workers())


# -- workers, live --------------------------------------------------------------------------


def test_workers_are_added_and_taken_away_live() -> None:
    with Front(workers=1) as front:
        front.ready().send_signal(signal.SIGTTIN)
        assert front.logged("worker_started", 2)
        assert len(front.workers()) == 2
        front.send_signal(signal.SIGTTOU)
        assert front.logged("worker_stopped", 1)
        assert until(lambda: len(front.workers()) == 1)


def test_all_workers_are_replaced_live_without_a_failed_request() -> None:
    with Front(workers=2) as front:
        before = {process.pid for process in front.ready(2).workers()}
        with calling(front) as statuses:
            front.send_signal(signal.SIGHUP)
            assert front.logged("worker_stopped", 2)
            assert front.logged("worker_started", 4)
            count = len(statuses)
            assert until(lambda: len(statuses) > count + 10)

        assert set(statuses) == {200}
        assert until(lambda: before.isdisjoint(process.pid for process in front.workers()))


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR2])
def test_what_a_whole_group_is_sent_ends_no_request(number: signal.Signals) -> None:
    """A terminal that closes, or ``systemctl kill``: the workers get it as well."""
    with Front() as front, front.ready().client() as client:
        client.send(request("/sleep/1"))
        assert until(lambda: busy(front))
        for worker in front.workers():
            worker.send_signal(number)

        assert client.read_response().status == 200


def test_a_second_master_is_never_started() -> None:
    with Front() as front, front.ready().client() as client:
        front.send_signal(signal.SIGUSR2)
        front.send_signal(signal.SIGTTIN)  # handled after it
        assert front.logged("worker_started", 2)

        assert client.exchange(request("/")).status == 200
        assert {worker.ppid() for worker in front.workers()} == {front.process.pid}
        assert len(front.workers()) == 2


def test_a_worker_whose_main_thread_is_stuck_is_replaced() -> None:
    with Front(stuck_timeout=2) as front:
        (stuck,) = front.ready().workers()
        stuck.suspend()

        assert front.logged("worker_started", 2)
        assert not stuck.is_running()
        with front.client() as client:
            assert client.exchange(request("/")).status == 200


def test_a_freeze_of_all_processes_costs_no_worker() -> None:
    """A container that is paused, a debugger, a starved machine: none of them was stuck."""
    with Front(workers=2, stuck_timeout=2) as front:
        before = front.ready(2).workers()
        os.killpg(front.process.pid, signal.SIGSTOP)
        time.sleep(3.0)
        front.send_signal(signal.SIGCONT)
        front.send_signal(signal.SIGTTIN)
        assert until(lambda: len(front.workers()) == 3)  # the master looks at the others now
        os.killpg(front.process.pid, signal.SIGCONT)
        front.send_signal(signal.SIGTTIN)
        assert front.logged("worker_started", 4)

        assert "WORKER TIMEOUT" not in front.log
        assert all(worker.is_running() for worker in before)
        before[0].suspend()  # who is stuck now is found as ever
        assert front.logged("worker_started", 5)


def test_a_worker_that_is_killed_is_replaced() -> None:
    with Front() as front:
        (worker,) = front.ready().workers()
        worker.kill()

        assert front.logged("worker_started", 2)


@contextlib.contextmanager
def calling(front: Front) -> Iterator[list[int]]:
    """Keep sending one request after another; yield the statuses as they come."""
    statuses: list[int] = []
    over = threading.Event()

    def call() -> None:
        while not over.is_set():
            try:
                with RawClient(front.address) as client:
                    statuses.append(client.exchange(request("/")).status)
            except (OSError, EOFError):
                statuses.append(0)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield statuses
    finally:
        over.set()
        thread.join()
