"""The bare limit of latency: two processes, a SQLite file between them, and nothing else.

``python -m bench.relay store URL DB`` long-polls, stores each answer and touches a file;
``python -m bench.relay forward DB PORT`` is woken by that, or once a second, and posts what
it finds. Nothing is parsed, ordered, tried again or kept safe.
"""

import http.client
import os
import select
import sqlite3
import sys
from pathlib import Path
from urllib.parse import urlsplit

from inotify_simple import INotify, flags

from bench.ours import BOT_ID, TOKEN

_LOOK = 1000  # ms


def prepare(database: Path) -> None:
    """Make the file and its table."""
    connection = _open(database)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, body BLOB)")
    connection.close()
    _notice(database).touch()


def store(url: str, database: Path) -> None:
    """Store each answer of the Bot API at ``url``, until killed."""
    connection, door = _open(database), http.client.HTTPConnection(urlsplit(url).netloc)
    while True:
        door.request("POST", f"/bot{TOKEN}/getUpdates", b'{"timeout":30}')
        body = door.getresponse().read()
        connection.execute("INSERT INTO messages (body) VALUES (?)", (body,))
        os.utime(_notice(database))


def forward(database: Path, port: int) -> None:
    """Post what is stored to the sink on ``port``, until killed."""
    connection, door = _open(database), http.client.HTTPConnection("127.0.0.1", port)
    notified, poll = INotify(), select.poll()
    notified.add_watch(_notice(database), flags.ATTRIB)
    poll.register(notified.fileno(), select.POLLIN)
    while True:
        if poll.poll(_LOOK):
            notified.read(timeout=0)
        for number, body in connection.execute("SELECT id, body FROM messages").fetchall():
            headers = {"X-Telegrammer-Delivery-Id": f"{BOT_ID}-1-{number}"}
            door.request("POST", "/s/1", body, headers)
            door.getresponse().read()
            connection.execute("DELETE FROM messages WHERE id = ?", (number,))


def _notice(database: Path) -> Path:
    return database.with_name(database.name + ".notify")


def _open(database: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


if __name__ == "__main__":
    if sys.argv[1] == "store":
        store(sys.argv[2], Path(sys.argv[3]))
    else:
        forward(Path(sys.argv[2]), int(sys.argv[3]))
