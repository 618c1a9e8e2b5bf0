"""``python -m bench.bare_falcon PORT``: Falcon and nothing else under our worker."""

import contextlib
import functools
import sys
from collections.abc import Iterator

import falcon

from telegrammer_api import server
from telegrammer_api.front import Application

WORKERS, THREADS, QUEUE = 2, 4, 64  # the defaults of the gateway


class Send:
    """Takes a message nowhere."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        req.env["wsgi.input"].read()
        resp.data = b'{"ok":true}'


@contextlib.contextmanager
def application() -> Iterator[Application]:
    app = falcon.App()
    app.add_route("/send", Send())
    yield app


if __name__ == "__main__":
    server.serve(
        functools.partial(application),
        server.bind("127.0.0.1", int(sys.argv[1])),
        server.Limits(WORKERS, THREADS, QUEUE, request_timeout=5.0),
    )
