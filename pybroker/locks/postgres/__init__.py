"""Locks in a PostgreSQL database, for members without a shared disk that supports locks.

`row` and `lease` are ActiveMQ's two kinds of lock on its table `activemq_lock`; `advisory` needs no table. All three
use `timing` (the time-outs), `session` (a connection with a deadline on each step), `table`, `keeper` (the thread that
renews a lock) and `provider` (the methods of the port).
"""
