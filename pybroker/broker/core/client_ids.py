"""The ids of the connections of one broker: no two clients have one client id, no two connections one connection id."""

from collections.abc import Mapping

from pybroker.broker.core.connection import BrokerConnection
from pybroker.broker.domain.destination import NAME_MAX
from pybroker.broker.domain.errors import InvalidClientId
from pybroker.broker.domain.security import User


class ClientIds:
    """The open connections by their ids.

    Attributes:
        connections: by client id, a live view.
    """

    def __init__(self, broker_name: str) -> None:
        self.connections: Mapping[str, BrokerConnection]
        self.connections = self._clients = dict[str, BrokerConnection]()
        self._broker_name = broker_name
        self._connection_ids = set[str]()

    def check(self, connection_id: str, client_id: str) -> None:
        """Check that a new connection may have these ids.

        Raises:
            InvalidClientId: one is too long, or that of another connection.
        """
        longest = max(len(client_id), len(connection_id))
        if longest > NAME_MAX:
            raise InvalidClientId(f"A client or connection id of {longest} characters, where {NAME_MAX} are allowed")
        if client_id in self._clients:
            raise InvalidClientId(f"Broker: {self._broker_name} - Client: {client_id} already connected")
        if connection_id in self._connection_ids:
            raise InvalidClientId(f"Broker: {self._broker_name} - Connection: {connection_id} already connected")

    def take_over(self, client_id: str, user: User) -> None:
        """Close the connection that has a client id, if there is one, for another connection of the same user.

        Raises:
            InvalidClientId: it is another user's.
        """
        former = self._clients.get(client_id)
        if former is None:
            return
        if former.user.is_verified and former.user.name != user.name:
            raise InvalidClientId(f"The client id {client_id} is in use by another user")
        former.give_way()

    def add(self, connection: BrokerConnection) -> None:
        """Add a connection whose ids were checked."""
        self._clients[connection.client_id] = connection
        self._connection_ids.add(connection.connection_id)

    def remove(self, client_id: str, connection_id: str) -> bool:
        """Remove a connection that has closed; return True if it was there."""
        self._connection_ids.discard(connection_id)
        return self._clients.pop(client_id, None) is not None
