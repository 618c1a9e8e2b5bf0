"""`make demo`: the whole gateway at work on one machine, without Telegram.

* ``place``     a folder and ports of this demo's own, so that two can run at once
* ``stage``     supervisord with the sandbox and the three processes
* ``receiver``  the local program that a message is delivered to
* ``story``     what is done and shown, step by step

It touches the other services as an operator would: by their commands and over HTTP.
"""
