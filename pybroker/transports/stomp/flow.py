"""Whether the core may deliver to a connection: only while nothing piles up on the way out.

Two places can fill up, each for its own reason, and deliveries go on when both have room again:

```text
core --deliver--> outbox --write--> link --> peer
                    |                 |
                 RECEIPT            LINK
```
"""

import enum

from pybroker.broker.domain.ports import ConnectionPort


class BackpressureReason(enum.Enum):
    """What stands in the way of deliveries."""

    LINK = "the peer does not read as fast as it is written to"
    RECEIPT = "much waits behind a receipt that is not due yet"


class Flow:
    """Pauses the core's connection at the first jam and resumes it when the last one is gone."""

    __slots__ = ("_connection", "_jams")

    def __init__(self) -> None:
        self._connection: ConnectionPort | None = None
        self._jams: set[BackpressureReason] = set()

    def attach(self, connection: ConnectionPort) -> None:
        """Govern a connection; it is paused at once if there is a jam already."""
        self._connection = connection
        if self._jams:
            connection.pause()

    def jam(self, jam: BackpressureReason) -> None:
        """Deliver nothing more until this jam, too, is cleared."""
        self._jams.add(jam)
        if self._connection is not None:
            self._connection.pause()

    def clear(self, jam: BackpressureReason) -> None:
        """Note that a jam is gone, if there was one. The core may deliver, and jam again, before this returns."""
        if jam not in self._jams:
            return
        self._jams.remove(jam)
        if not self._jams and self._connection is not None:
            self._connection.resume()
