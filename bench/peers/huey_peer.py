"""huey on SQLite: a queue for each worker, a subscription always in the same queue.

``fill FILE QUEUES SUBSCRIPTIONS JOBS PORT``, ``work FILE QUEUE...``. One consumer with
one worker for each queue keeps a subscription in order; huey's own lock would put a
message that finds it taken behind the others.
"""

import logging
import signal
import sys
import threading

from huey import SqliteHuey
from huey.api import TaskWrapper
from huey.consumer import Consumer
from post import post

BODY = "x" * 700


def queue(file: str, name: str) -> SqliteHuey:
    # WAL without fsync on commit, as ours; a result would be one more write.
    return SqliteHuey(
        f"q{name}", filename=file, results=False, strict_fifo=True, journal_mode="wal", timeout=30
    )


def deliver_task(huey: SqliteHuey) -> TaskWrapper:
    @huey.task(name="deliver", retries=7, retry_delay=1)
    def deliver(port: int, subscription: int, update: int, body: str) -> None:
        post(port, subscription, update, body)

    return deliver


def fill(file: str, queues: int, subscriptions: int, jobs: int, port: int) -> None:
    tasks = [deliver_task(queue(file, str(n))) for n in range(queues)]
    for update in range(jobs):
        subscription = update % subscriptions
        tasks[subscription % queues](port, subscription, update, BODY)


class ThreadConsumer(Consumer):
    """A consumer beside others in one process: the process takes the signals."""

    def _set_signal_handlers(self) -> None:
        pass


def work(file: str, names: list[str]) -> None:
    consumers = []
    for name in names:
        huey = queue(file, name)
        deliver_task(huey)
        consumers.append(ThreadConsumer(huey, workers=1, periodic=False, check_worker_health=False))
    for consumer in consumers:
        consumer.start()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    stop.wait()
    for consumer in consumers:
        consumer.stop()


if __name__ == "__main__":
    logging.getLogger("huey").setLevel(logging.INFO)
    logging.basicConfig(level=logging.INFO)
    if sys.argv[1] == "fill":
        fill(sys.argv[2], *map(int, sys.argv[3:7]))
    else:
        work(sys.argv[2], sys.argv[3:])
