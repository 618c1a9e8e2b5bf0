"""HTTP out: requests, with a hard total deadline and a cut.

* ``line``     the time and the cut that every wait of an exchange obeys
* ``streams``  a socket that waits on the line, and TLS over any stream
* ``dial``     name, connection, proxy, TLS: an open stream to a server
* ``door``     requests over such a stream; what the rest of the library uses
"""

from telegrammer.http.door import Door, Response
from telegrammer.http.line import Limits

__all__ = ["Door", "Limits", "Response"]
