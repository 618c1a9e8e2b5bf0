"""The only room that knows SQL.

* ``layout``        is this file ours? creates it when there is none
* ``migration``     an older layout -> this one, and backups
* ``connection``    a connection, its transactions, foreign errors translated
* ``keys``          API keys
* ``subscriptions`` who wants which chat where
* ``inbox``         the poller's side: cursor, usernames, one job per subscription
* ``queue``         the dispatcher's side: claim, outcome, dead letters, purge
* ``components``    what each process says about itself

Every class takes a ``Database`` and has one method for each verb; a verb is one short
transaction. Times are whole Unix seconds, handed in.
"""
