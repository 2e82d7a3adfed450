"""Decides which connections a broker takes, and which one makes way for a new one.

A connection is a newcomer until its client was admitted: it has sent no CONNECT or ConnectionInfo, or its login is not
verified yet. Newcomers cost a peer nothing, so they may neither fill the broker nor one address's part of it:

```text
            connections_max
+--------------------------------+----------+
| clients and newcomers          | reserved |      reserved: for clients alone
+--------------------------------+----------+
```

Where newcomers are at a limit, the oldest idle one makes way for a new one: it is the least likely to become a client.
So it is at a listener that has a limit of its own, besides that of all.
While none is idle, the server accepts no more, and the kernel queues them; so after a failover all clients get in, as
fast as their logins are verified.

Source: security.md, section 7.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic

from pybroker.broker.domain.addresses import host_of, is_loopback, network
from pybroker.transports.newcomers import Newcomer, Newcomers, NewcomerT


class ReachedLimit(enum.Enum):
    """The limit for which a connection is refused or makes way."""

    CONNECTIONS = "all connections"
    PER_ADDRESS = "connections of one address"
    UNCONNECTED = "newcomers of one address"
    NEWCOMERS = "newcomers"
    LISTENER = "connections of one listener"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionLimits:
    """Limits to connections.

    Attributes:
        connections: all of them.
        newcomers: those that are newcomers.
        handshakes: those in a TLS handshake, which leave some for clients of plain listeners.
        unconnected: newcomers of one address.
        per_address: connections of one address that is not a loopback one; 0: no limit.
    """

    connections: int
    newcomers: int
    handshakes: int
    unconnected: int
    per_address: int = 0

    @classmethod
    def of(
        cls, connections: int, *, reserved: int | None = None, unconnected: int = 0, per_address: int = 0
    ) -> "AdmissionLimits":
        """Return limits with the defaults: a tenth reserved, and half of the connections for one address."""
        half = max(1, connections // 2)
        return cls(
            connections=connections,
            newcomers=max(1, connections - (connections // 10 if reserved is None else reserved)),
            handshakes=half,
            unconnected=unconnected or half,
            per_address=per_address,
        )

    def of_refusal(self, refusal: ReachedLimit) -> int:
        """Return the limit that a refusal is for; not for that of a listener."""
        return {
            ReachedLimit.CONNECTIONS: self.connections,
            ReachedLimit.PER_ADDRESS: self.per_address,
            ReachedLimit.UNCONNECTED: self.unconnected,
            ReachedLimit.NEWCOMERS: self.newcomers,
        }[refusal]


class _Address(Generic[NewcomerT]):
    """The connections of one address."""

    __slots__ = ("count", "newcomers")

    def __init__(self) -> None:
        self.count = 0
        self.newcomers = Newcomers[NewcomerT](_is_connected)


class ListenerPlaces(Generic[NewcomerT]):
    """The connections of a listener that has a limit of its own.

    Attributes:
        connections: the limit.
        count: the connections that are open.
        newcomers: those that are newcomers.
    """

    __slots__ = ("connections", "count", "newcomers")

    def __init__(self, connections: int) -> None:
        """Begin without connections."""
        self.connections = connections
        self.count = 0
        self.newcomers = Newcomers[NewcomerT](_is_connected)


class Admission(Generic[NewcomerT]):
    """The connections of a server, as far as their limits need them."""

    def __init__(self, limits: AdmissionLimits) -> None:
        """Begin without connections."""
        self.limits = limits
        self._count = 0
        self._newcomers = Newcomers[NewcomerT](_is_connected)
        self._handshakes = Newcomers[NewcomerT](_is_handshake_over)
        self._addresses: dict[str, _Address[NewcomerT]] = {}
        self._places: dict[NewcomerT, ListenerPlaces[NewcomerT]] = {}

    def must_wait(self, now: float, arriving: int, *, has_handshake: bool) -> bool:
        """Return True while a further newcomer would have no place, and none would make way for it.

        Args:
            now: monotonic seconds.
            arriving: accepted connections, for each of which `add` may have been called or not.
            has_handshake: it would begin with a TLS handshake.
        """
        if self._count >= self.limits.connections:
            return False  # it is refused
        return any(
            not group.has_space(limit, now, arriving) and group.oldest_idle(now) is None
            for group, limit in self._groups(has_handshake=has_handshake)
        )

    def add(
        self, connection: NewcomerT, now: float, places: ListenerPlaces[NewcomerT] | None = None
    ) -> ReachedLimit | NewcomerT | None:
        """Add a connection, unless it is refused.

        Args:
            connection: the connection.
            now: monotonic seconds.
            places: the places of its listener; None if that has no limit of its own.

        Returns:
            The limit for which it is refused; or the newcomer that makes way for it, which is removed; or None.
        """
        limits, key = self.limits, _key(connection)
        address = self._addresses.get(key) or _Address[NewcomerT]()
        if 0 < limits.per_address <= address.count and not is_loopback(host_of(connection.peer)):
            return ReachedLimit.PER_ADDRESS
        leaving: NewcomerT | None = None
        has_space = address.newcomers.has_space(limits.unconnected, now)
        if places is not None and places.count >= places.connections:
            # One of its own has to leave. Where the address is at a limit too, two would have to.
            leaving, refusal = (places.newcomers.oldest_idle(now) if has_space else None), ReachedLimit.LISTENER
        elif not has_space:
            leaving, refusal = address.newcomers.oldest_idle(now), ReachedLimit.UNCONNECTED
        elif (full := self._full_group(connection, now)) is not None:
            leaving, refusal = full.oldest_idle(now), ReachedLimit.NEWCOMERS
            if self._count >= limits.connections:
                refusal = ReachedLimit.CONNECTIONS
        else:
            refusal = None
        if leaving is not None:
            self.remove(leaving)
        elif refusal is not None:
            return refusal
        address.count += 1
        self._addresses[key] = address
        self._count += 1
        address.newcomers.add(connection, now)
        for group, _ in self._groups(has_handshake=connection.is_in_handshake):
            group.add(connection, now)
        if places is not None:
            self._places[connection] = places
            places.count += 1
            places.newcomers.add(connection, now)
        return leaving

    def remove(self, connection: NewcomerT) -> None:
        """Remove a connection that was added and is gone."""
        key = _key(connection)
        address = self._addresses[key]
        self._count -= 1
        for group in (self._newcomers, self._handshakes, address.newcomers):
            group.remove(connection)
        if (places := self._places.pop(connection, None)) is not None:
            places.count -= 1
            places.newcomers.remove(connection)
        address.count -= 1
        if not address.count:
            del self._addresses[key]

    def _groups(self, *, has_handshake: bool) -> Iterator[tuple[Newcomers[NewcomerT], int]]:
        if has_handshake:
            yield self._handshakes, self.limits.handshakes
        yield self._newcomers, self.limits.newcomers

    def _full_group(self, connection: NewcomerT, now: float) -> Newcomers[NewcomerT] | None:
        """Return the newcomers of which one has to make way for another connection; None if there is space."""
        if self._count >= self.limits.connections:
            return self._newcomers
        groups = self._groups(has_handshake=connection.is_in_handshake)
        return next((group for group, limit in groups if not group.has_space(limit, now)), None)


def _key(connection: Newcomer) -> str:
    return network(host_of(connection.peer))


def _is_connected(connection: Newcomer) -> bool:
    return connection.is_connected


def _is_handshake_over(connection: Newcomer) -> bool:
    return not connection.is_in_handshake
