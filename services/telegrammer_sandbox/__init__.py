"""A stand-in Bot API on loopback: "Telegram" for the demo, the fixture for the tests.

The rooms:

* ``updates``     the queue of updates and what an offset does to it (pure)
* ``polling``     what the server remembers between two polls (pure)
* ``world``       users, chats, messages (pure)
* ``texts``       what becomes of a message's text (pure)
* ``parameters``  query and body -> a method's parameters (pure)
* ``ledger``      what happened, for tests to read
* ``faults``      how an answer is to go wrong
* ``state``       all of the above behind one lock
* ``bot_api``     the methods of the Bot API over the state
* ``control``     ``/sandbox/...``: its docstring is the interface's reference
* ``server``      sockets: HTTP in, answers and faults out
* ``page.html``   the chat page at ``/``

The rules are those of the official server (tdlib/telegram-bot-api, ``Client.cpp``).
"""
