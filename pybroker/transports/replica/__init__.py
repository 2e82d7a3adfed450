"""The replication stream over TCP: the master's server, and the thread of a follower.

- `handshake`: who may be at the other end, before the first frame
- `peer_certificates`: TLS with certificates on both sides
- `link`: a follower's connection to the master's server
- `positions`: how far the master's journals reach
- `session`: one follower, from its manifest to the live stream
- `server`: accepts followers, and sends operations to all of them
- `follower`: dials the master, and writes what it sends
"""
