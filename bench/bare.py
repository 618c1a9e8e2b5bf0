"""The bare limits: one half of the dispatcher's work without the other.

``python -m bench.bare client PORT SLOTS JOBS`` posts from memory, without a database;
``python -m bench.bare transactions DB SLOTS`` claims and settles, without HTTP, in
rounds that fill every slot.
"""

import json
import sys
import time
from collections import deque
from pathlib import Path

from bench.ours import BOT_ID, payload
from telegrammer.callbacks.outcome import Answer
from telegrammer.callbacks.sender import Post, Sender
from telegrammer.store.connection import Database
from telegrammer.store.queue import Queue
from telegrammer_dispatcher.delivery import Budget
from telegrammer_dispatcher.lanes import Lanes
from telegrammer_dispatcher.round import Ended, Round

SUBSCRIPTIONS = 100


def client(port: int, slots: int, jobs: int) -> None:
    """Post ``jobs`` messages, one at a time to each subscription."""
    origin = f"http://127.0.0.1:{port}"
    body = payload(1, 1).encode()
    lanes = deque(range(SUBSCRIPTIONS))
    sent = 0
    with Sender[int](slots, 3, 10) as sender:
        while sent < jobs or sender.running:
            while sender.free and sent < jobs:
                lane = lanes.popleft()
                sent += 1
                sender.start(lane, Post(origin, f"/s/{lane}", body, f"{BOT_ID}-{lane}-{sent}"))
            lanes.extend(lane for lane, _answer in sender.wait(1)[0])


def transactions(path: Path, slots: int) -> None:
    """Claim and settle all jobs, ``slots`` in each transaction; print rate and CPU."""
    with Database(path) as database:
        queue, lanes, ended, done = Queue(database), Lanes(), Ended(), 0
        with queue.look() as look:
            lanes.add(look.live())
        began, cpu = time.monotonic(), time.process_time()
        while lanes.has_due(now := time.time()) or ended:
            this = Round(lanes, Budget(8, 86400), now, now)
            with queue.turn() as turn:
                this.settle(turn, ended, float)
                this.claim(turn, BOT_ID, slots)
            done += len(ended)
            ended = [(flight, Answer(200)) for flight in this.claimed]
    seconds = time.monotonic() - began
    print(json.dumps({"rate": done / seconds, "cpu": (time.process_time() - cpu) / done * 1000}))


if __name__ == "__main__":
    if sys.argv[1] == "client":
        client(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        transactions(Path(sys.argv[2]), int(sys.argv[3]))
