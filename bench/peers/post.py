"""The HTTP client of the Python peers that work in threads or processes: libcurl, as ours.

One handle for each thread keeps its connection. requests would cost them more than
their own queue does.
"""

import threading

import pycurl

_local = threading.local()


def post(port: int, subscription: int, update: int, body: str) -> None:
    """POST a message; raise unless the answer is 200."""
    curl = getattr(_local, "curl", None)
    if curl is None:
        curl = _local.curl = pycurl.Curl()
        curl.setopt(pycurl.WRITEFUNCTION, len)
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.TIMEOUT_MS, 30_000)
    curl.setopt(pycurl.URL, f"http://127.0.0.1:{port}/s/{subscription}")
    curl.setopt(pycurl.POSTFIELDS, body)
    curl.setopt(
        pycurl.HTTPHEADER,
        [
            "Content-Type: application/json",
            f"X-Telegrammer-Delivery-Id: 1-{subscription}-{update}",
            "Expect:",
        ],
    )
    curl.perform()
    if curl.getinfo(pycurl.RESPONSE_CODE) != 200:
        raise RuntimeError("not delivered")
