"""The ownership of ids: each id that a client chooses begins with a connection id, which belongs to one client.

Stores identify messages by their ids, and a repeated id after a failover means a repeated message. So a client that
could use another's ids could make that one's messages pass for repetitions, or for part of its own transaction.

A bridge of another broker is the exception: the messages that it forwards keep the ids that they have there. It
announces itself with a BrokerInfo for a network connection, before its ConnectionInfo (ActiveMQ 5.17,
`DemandForwardingBridgeSupport`). A failover transport under a bridge does not repeat that; then its client id shows it.
"""

from typing import Final

from pybroker.broker.domain.errors import InvalidClientId
from pybroker.broker.domain.openwire.commands import ConnectionInfo
from pybroker.broker.domain.transaction import TransactionId
from pybroker.transports.openwire.faults import WrongState

OWNERS_MAX: Final = 16_384
"""Connection ids whose client is remembered, the latest ones; at most twice as many, some 5 MB."""


_BRIDGE_ENDING: Final = "outbound"
"""The last part of a bridge's client id on the remote broker: `<connector>_<local broker>_outbound`."""


class ForeignMessageId(WrongState):
    """A message whose id is one of another producer's.

    Attributes:
        transaction: the transaction of the message; None for none.
    """

    def __init__(self, message: str, transaction: TransactionId | None) -> None:
        super().__init__(message)
        self.transaction = transaction


def require_own(own: str, connection_id: str | None, named: object) -> None:
    """Check that an id belongs to the connection that uses it.

    Args:
        own: the connection.
        connection_id: the connection that the id names.
        named: the id, for the error.

    Raises:
        WrongState: it belongs to another connection.
    """
    if connection_id != own:
        raise WrongState(f"{named} belongs to another connection than {own}")


def is_returning_bridge(info: ConnectionInfo) -> bool:
    """Return True if a connection comes again whose client id is a bridge's (`static:(failover:(...))`)."""
    return info.failover_reconnect and (info.client_id or "").endswith(_BRIDGE_ENDING)


class ConnectionOwners:
    """The client of each connection id, for as long as the broker remembers it.

    A client keeps its connection id, its client id and its user when it reconnects. Another client that comes with the
    connection id, which it may have seen in the id of a message, has another client id, or another user: client ids are
    no secrets either. The hashes are kept, because the lengths are a peer's choice.
    """

    __slots__ = ("_older", "_recent")

    def __init__(self) -> None:
        self._recent: dict[int, int] = {}
        self._older: dict[int, int] = {}

    def claim(self, connection_id: str, client_id: str, user: str) -> None:
        """Record the client of a connection id.

        Raises:
            InvalidClientId: the connection id belongs to another client.
        """
        key, client = hash(connection_id), hash((client_id, user))
        owner = self._recent.get(key)
        if owner is None:
            owner = self._older.pop(key, client)
            if len(self._recent) >= OWNERS_MAX:
                self._older, self._recent = self._recent, {}
            self._recent[key] = owner
        if owner != client:
            raise InvalidClientId(f"Connection {connection_id} belongs to another client")
