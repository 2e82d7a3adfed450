"""The brokers of a network that clients of this broker may also use, and which of them the clients of a listener get.

A peer is a broker to which a bridge of this one leads: one that it has opened, or a duplex one that the peer has. The
peers are kept by broker id, so that a peer with two bridges, or one whose bridge comes again, counts once.

```text
         first bridge            last bridge lost           GRACE_SECONDS without a bridge
unknown --------------> PRESENT ------------------> ABSENT -------------------------------> DEPARTED
                           ^                           |                                        |
                           +---------------------------+----------------------------------------+  another bridge
```

ActiveMQ appends an address with each bridge, and removes one when a bridge is lost: a list there may have an address
twice, and brokers of former times. Source: ActiveMQ 5.17, `TransportConnector`; network.md 13.1.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pybroker.broker.domain.linear_expression import LinearExpression

GRACE_SECONDS: Final = 3.0
"""The time for which a peer without a bridge is still present. Bridges dial again after 1 s and then 2 s, and clients
that are moved for each short loss would be worse off than with an address that does not answer."""

PEERS_MAX: Final = 1000
"""The limit to the peers, present and departed. Of those that have departed the oldest are forgotten."""

ADDRESSES_MAX: Final = 32
"""The limit to the addresses of one peer."""

_URL_MAX: Final = 4096
_ADDRESS: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s,()/?#]+(?:[/?][^\s,()]*)?")
_COMPOSITE: Final = re.compile(r"(?:failover|fanout|masterslave|static):(?://)?\(([^()]*)\)(?:\?.*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The settings of one listener, with ActiveMQ's meanings and defaults.

    Attributes:
        update_clients: clients get the addresses of the peers, when they connect and when peers come.
        rebalance_clients: clients that get a new list connect to a broker of it at random.
        update_on_remove: clients get a new list also when a peer has departed.
        filter: comma list of regular expressions; a peer counts if one of them matches its whole name. Empty: all do.
    """

    update_clients: bool = False
    rebalance_clients: bool = False
    update_on_remove: bool = False
    filter: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPeer:
    """A broker to which a bridge leads, or led.

    Attributes:
        broker_id: its id.
        name: its name.
        addresses: its addresses for clients: one, or those of all members of a pair.
        has_departed: it has had no bridge for `GRACE_SECONDS`.
    """

    broker_id: str
    name: str
    addresses: tuple[str, ...]
    has_departed: bool = False


class ClusterFilter:
    """The names of brokers that a listener's clients may get, see `ClusterSettings.filter`."""

    def __init__(self, text: str) -> None:
        """Compile the expressions.

        Raises:
            ValueError: one is not valid.
        """
        self._expressions = [LinearExpression(each.strip()) for each in text.split(",") if each.strip()]

    def admits(self, name: str) -> bool:
        """Return True if the whole name matches one of the expressions, or there is none."""
        return not self._expressions or any(each.matches(name) for each in self._expressions)


def addresses_of(url: str) -> tuple[str, ...]:
    """Return the addresses of a broker's URL: one, a comma list, or those of `failover:(…)`, without their options.

    Raises:
        ValueError: it has none, too many, or text that is no address.
    """
    url = url.strip()
    if len(url) > _URL_MAX:
        raise ValueError(f"it has {len(url)} characters, at most {_URL_MAX} are allowed")
    composite = _COMPOSITE.fullmatch(url)
    given = [each.strip() for each in (url if composite is None else composite[1]).split(",")]
    if wrong := [each for each in given if not _ADDRESS.fullmatch(each)]:
        raise ValueError(f"{wrong[0]!r} is no address, such as tcp://host:61616")
    addresses = tuple(dict.fromkeys(each.partition("?")[0] for each in given))
    if len(addresses) > ADDRESSES_MAX:
        raise ValueError(f"it has {len(addresses)} addresses, at most {ADDRESSES_MAX} are allowed")
    return addresses


class ClusterPeers:
    """The peers of a broker. Bridges report here, and what sends the lists to clients watches it."""

    def __init__(self, after: Callable[[float, Callable[[], None]], Callable[[], None]]) -> None:
        """Begin without peers.

        Args:
            after: calls back after so many seconds; returns what cancels that.
        """
        self._after = after
        self._peers: dict[str, ClusterPeer] = {}
        self._bridge_counts: dict[str, int] = {}
        self._cancels: dict[str, Callable[[], None]] = {}
        """Functions that cancel the departures of absent peers."""
        self._watchers: list[Callable[[], None]] = []

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call back after each change of the peers, for as long as the broker serves."""
        self._watchers.append(on_change)

    def joined(self, broker_id: str, name: str, url: str) -> None:
        """Add a bridge to a peer.

        Args:
            broker_id: the peer's id.
            name: its name.
            url: its address for clients, or those of a pair, as its BrokerInfo has them.

        Raises:
            ValueError: the URL is not valid. The bridge counts, and a peer that is not known yet is not added.
        """
        self._bridge_counts[broker_id] = self._bridge_counts.get(broker_id, 0) + 1
        if (cancel := self._cancels.pop(broker_id, None)) is not None:
            cancel()
        peer = ClusterPeer(broker_id=broker_id, name=name, addresses=addresses_of(url))
        if self._peers.get(broker_id) == peer:
            return
        self._peers.pop(broker_id, None)
        self._peers[broker_id] = peer
        self._forget_departed()
        self._notify()

    def left(self, broker_id: str) -> None:
        """Remove a bridge to a peer, which departs if it gets no other one in `GRACE_SECONDS`."""
        count = self._bridge_counts.pop(broker_id, 0) - 1
        if count > 0:
            self._bridge_counts[broker_id] = count
        elif broker_id in self._peers and broker_id not in self._cancels:
            self._cancels[broker_id] = self._after(GRACE_SECONDS, partial(self._depart, broker_id))

    def known(self, names: ClusterFilter, *, with_departed: bool) -> list[ClusterPeer]:
        """Return the peers whose names a filter admits, in the order in which they came.

        Args:
            names: the filter.
            with_departed: also those that have departed.
        """
        return [
            each
            for each in self._peers.values()
            if (with_departed or not each.has_departed) and names.admits(each.name)
        ]

    def _depart(self, broker_id: str) -> None:
        self._cancels.pop(broker_id, None)
        peer = self._peers.get(broker_id)
        if peer is not None and not peer.has_departed:  # one that had departed before may be forgotten by now
            self._peers[broker_id] = replace(peer, has_departed=True)
            self._notify()

    def _forget_departed(self) -> None:
        """Forget departed peers while there are too many."""
        for broker_id in [each.broker_id for each in self._peers.values() if each.has_departed]:
            if len(self._peers) <= PEERS_MAX:
                return
            del self._peers[broker_id]

    def _notify(self) -> None:
        for each in self._watchers:
            each()
