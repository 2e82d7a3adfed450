"""A limit to the connections of one address that have not become clients: no CONNECT, no ConnectionInfo yet.

Such a connection has a place among `connections_max` for up to the time limits of its protocol. Without this limit one
machine could hold every place by connections that say nothing, and begin new ones as these end.
"""

from typing import Protocol

from pybroker.broker.domain.addresses import host_of


class Newcomer(Protocol):
    """A connection, as its admission sees it."""

    @property
    def peer(self) -> str:
        """The other end: its address, a colon and its port."""
        ...

    @property
    def is_connected(self) -> bool:
        """True once its client was admitted by the broker."""
        ...


class Newcomers:
    """The connections of each address, from their admission until it is found that they are clients.

    That is looked up only where an address seems to have reached the limit, so that a connection costs two entries of a
    dict.
    """

    __slots__ = ("_by_address", "limit")

    def __init__(self, limit: int) -> None:
        """Begin without connections.

        Args:
            limit: the connections of one address that are no clients.
        """
        self.limit = limit
        self._by_address: dict[str, dict[Newcomer, None]] = {}

    def add(self, connection: Newcomer) -> bool:
        """Add a connection; False if its address has reached the limit."""
        address = host_of(connection.peer)
        waiting = self._by_address.setdefault(address, {})
        if len(waiting) >= self.limit:
            for each in [each for each in waiting if each.is_connected]:
                del waiting[each]
            if len(waiting) >= self.limit:
                return False
        waiting[connection] = None
        return True

    def remove(self, connection: Newcomer) -> None:
        """Remove a connection that is gone."""
        address = host_of(connection.peer)
        waiting = self._by_address.get(address)
        if waiting is not None:
            waiting.pop(connection, None)
            if not waiting:
                del self._by_address[address]
