"""The only room that knows what a callback is.

* ``url``     which URLs may be subscribed, and their one canonical form
* ``sender``  many POSTs at once, each with a hard total time
* ``outcome`` what a receiver's answer means for the delivery
"""
