"""Election of the master among members that share no storage.

A *register* holds one record: the master, its epoch, and the stores that have everything confirmed. Members change it
by compare-and-swap. `record` is the record, `register` the port, `etcd`, `kubernetes` and `postgres` are its engines,
`decisions` the pure decisions over it.

The setting `replicate` leads here; `pybroker.broker.app.replication` performs the decisions.
"""
