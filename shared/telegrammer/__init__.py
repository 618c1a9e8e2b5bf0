"""What all of Telegrammer's processes agree on.

The rooms, and what each alone knows:

* ``model``      the nouns: update, message, state
* ``errors``     the tree of our errors, and whether trying again can help
* ``settings``   environment and options -> one frozen ``Settings``
* ``options``    a command's options, and how a process begins and ends
* ``clock``      time, handed in
* ``backoff``    attempt number -> delay
* ``logs``       one event a line, never a secret
* ``process``    signals -> stop, the one-instance lock, exit statuses
* ``notification`` the file that wakes the dispatcher
* ``heartbeat``  a process's own row in ``components``
* ``health``     rows and counts -> healthy, degraded, unavailable
* ``tls``        which certificate authorities we trust
* ``http``       requests, with a hard total deadline and a cut
* ``store``      the only room that knows SQL
* ``telegram``   the only room that speaks the Bot API
* ``callbacks``  the only room that knows what a callback is

``store``, ``telegram`` and ``callbacks`` do not import each other; only an entry
point wires them.
"""

__version__ = "1.0.0"

USER_AGENT = f"Telegrammer/{__version__}"
"""What every request of ours calls itself."""
