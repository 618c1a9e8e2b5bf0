"""The only room that knows SQL.

* ``layout``        is this file ours? creates it when there is none
* ``migration``     an older layout -> this one, and backups
* ``connection``    a connection, its transactions, foreign errors translated
* ``keys``          API keys
* ``subscriptions`` who wants which chat where
* ``inbox``         the poller's side: cursor, usernames, one job per subscription
* ``queue``         the dispatcher's side: claim, outcome, dead letters, purge
* ``components``    what each process says about itself
* ``schema.sql``    the layout of today, whole

``Keys``, ``Subscriptions``, ``Inbox``, ``Queue`` and ``Components`` take a ``Database`` and have
one method for each verb, which is one short transaction. Where several verbs belong together a
method yields the transaction (``Queue.turn``, ``Queue.look``); a purge of many is several of
them, one for each call. Times are whole Unix seconds, handed in.
"""
