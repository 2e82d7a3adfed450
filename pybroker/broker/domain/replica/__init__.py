"""Replication of a store without shared storage: the stream from the master to its followers, without any I/O.

- `operations`: what happens to the data files of a store, in order
- `frames`: the stream's frames, as bytes and back
- `manifest`: the data files that a store has, with lengths and checksums
- `plan`: what a follower does with its data files so that they become a beginning of the master's
- `ports`: what the master and a follower need of their stores, and what they report

Source: specification of replication, section 4.
"""
