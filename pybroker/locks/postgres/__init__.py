"""Locks in a PostgreSQL database, where there is no shared disk, or one that does not lock.

`row` and `lease` are ActiveMQ's two ways with its table `activemq_lock`; `advisory` needs no table. What they share:
`timing` (who gives up when), `session` (a connection with a deadline on everything), `table`, `keeper` (the thread that
keeps a lock) and `provider` (the port's methods).
"""
