"""Log lines about clients that connect and disconnect.

A separate logger writes them at INFO, and is silent unless the setting `log_connections` is on: a client that connects
for each message would fill the log. ActiveMQ writes none at INFO either.
"""

import logging

from pybroker.broker.domain.stomp.frames import shortened

LOGGER = "pybroker.connections"

_log = logging.getLogger(LOGGER)
_log.setLevel(logging.WARNING)  # until `log_connections` is read


class ClientLog:
    """Logs when a client connected, and once how its connection ended."""

    __slots__ = ("_who",)

    def __init__(self) -> None:
        self._who = ""

    def connected(self, connection_id: str, client_id: str, peer: str, protocol: str) -> None:
        """Log a client that the broker admitted.

        Args:
            connection_id: the id of its connection.
            client_id: the client's id.
            peer: its address.
            protocol: with its version, such as `STOMP 1.2`.
        """
        if _log.isEnabledFor(logging.INFO):
            name = "" if client_id == connection_id else f" (client id {shortened(client_id)})"
            self._who = f"{shortened(connection_id)}{name} from {peer}"
            _log.info("%s connected: %s", self._who, protocol)

    def ended(self, cause: str) -> None:
        """Log how the connection ended, unless that was logged before."""
        if self._who:
            _log.info("%s disconnected: %s", self._who, cause)
            self._who = ""
