"""The operator's command, `telegrammer`. It runs beside the daemons and takes no lock.

* ``commands``   how a command gets its settings, and how they are listed
* ``output``     everything that is printed
* ``opening``    a database that must be there
* ``keys``, ``deliveries``, ``database``, ``status``, ``config``, ``check``, ``sandbox``
* ``checks``     what ``check`` looks at, one room for each neighbour
"""
