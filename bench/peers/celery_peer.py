"""Celery on Redis: a queue and a worker process for each slot.

``fill REDIS_URL QUEUES SUBSCRIPTIONS JOBS PORT``, ``work REDIS_URL QUEUES``. A
subscription is always in the same queue. A message is acknowledged after its POST; no
result is kept: that would be one more write.
"""

import os
import sys

from celery import Celery
from post import post

BODY = "x" * 700

app = Celery("deliver", broker=sys.argv[2])
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="deliver")
def deliver(port: int, subscription: int, update: int, body: str) -> None:
    post(port, subscription, update, body)


def fill(queues: int, subscriptions: int, jobs: int, port: int) -> None:
    with app.producer_pool.acquire(block=True) as producer:
        for update in range(jobs):
            subscription = update % subscriptions
            deliver.apply_async(
                (port, subscription, update, BODY),
                queue=f"q{subscription % queues}",
                producer=producer,
            )


def work(queues: int) -> None:
    """Run one worker process for each queue, forked, so that all share the imports."""
    for number in range(queues):
        if os.fork() == 0:
            options = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
            name = ["-n", f"w{number}@bench", "-Q", f"q{number}", "-l", "INFO"]
            app.worker_main(["worker", "-P", "solo", "-c", "1", *name, *options])
            os._exit(0)
    for _ in range(queues):
        os.wait()


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill(*map(int, sys.argv[3:7]))
    else:
        work(int(sys.argv[3]))
