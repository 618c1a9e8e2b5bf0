"""What `telegrammer check` looks at.

* ``finding``   what a check says
* ``machine``   disk, port, clock
* ``files``     who else can reach the database's files
* ``storage``   the database itself
* ``telegram``  the token, its bot, a standing webhook
"""
