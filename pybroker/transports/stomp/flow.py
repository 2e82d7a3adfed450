"""Backpressure of a STOMP connection: pauses the core's deliveries while output piles up.

It may pile up in two places, and deliveries resume when both have space again, and no body is being rendered:

```text
core --deliver--> outbox --write--> link --> peer
                  |    |              |
            RECEIPT    RENDERING    LINK
```
"""

import enum

from pybroker.broker.domain.ports import ConnectionPort


class BackpressureReason(enum.Enum):
    """A reason to pause deliveries."""

    LINK = "the peer reads too slowly"
    RECEIPT = "many bytes wait behind a receipt that is not due yet"
    RENDERING = "a long body is rendered in a thread"


class Flow:
    """Pauses the core's connection at the first reason, and resumes it after the last one."""

    __slots__ = ("_connection", "_reasons")

    def __init__(self) -> None:
        self._connection: ConnectionPort | None = None
        self._reasons: set[BackpressureReason] = set()

    @property
    def is_link_free(self) -> bool:
        """True while the peer reads all that is written."""
        return BackpressureReason.LINK not in self._reasons

    def attach(self, connection: ConnectionPort) -> None:
        """Control a connection; it is paused at once if there is a reason already."""
        self._connection = connection
        if self._reasons:
            connection.pause()

    def pause(self, reason: BackpressureReason) -> None:
        """Pause deliveries until `resume` is called for this reason, too."""
        self._reasons.add(reason)
        if self._connection is not None:
            self._connection.pause()

    def resume(self, reason: BackpressureReason) -> None:
        """Remove a reason, if it is there. The core may deliver, and be paused again, before this returns."""
        if reason not in self._reasons:
            return
        self._reasons.remove(reason)
        if not self._reasons and self._connection is not None:
            self._connection.resume()
