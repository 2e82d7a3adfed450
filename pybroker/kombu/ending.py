"""A worker of Celery that ends does not wait for a broker only to tell others of its events.

An event that finds no broker waits for the next one, in the thread of the worker's event loop. That is well while the
worker lives, for it can do nothing without a broker; but it must not hold up a shutdown.
"""

import time
from typing import Final

from pybroker.client import Connection, ConnectionFailed

_LOOK_SECONDS: Final = 0.1

event_exchanges: Final[set[str]] = set()
"""The exchange of the events of this process, in a worker; elsewhere there is none."""

_is_ending = False


def begin() -> None:
    """Let no event wait for a broker from now on; a handler of a signal may call this."""
    global _is_ending
    _is_ending = True


def await_broker(connection: Connection) -> None:
    """Wait until there is a broker, or none can come any more.

    Raises:
        ConnectionFailed: there is none, and the worker ends.
    """
    while connection.broker is None and connection.error is None:
        if _is_ending:
            raise ConnectionFailed("there is no broker, and the worker that sends an event is shutting down")
        time.sleep(_LOOK_SECONDS)
