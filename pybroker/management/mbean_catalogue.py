"""Finds MBeans by their names and patterns, and asks the node for the rows that these need and no others.

One queue that is asked for by its name is as it is now. Many are as the snapshots have them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pybroker.broker.domain.node_requests import DestinationRow
from pybroker.management.mbean_broker import BROKER, HEALTH, SCHEDULER, STORE
from pybroker.management.mbean_clients import (
    CONNECTION,
    CONNECTOR,
    DURABLE_SUBSCRIPTION,
    DYNAMIC_PRODUCER,
    INACTIVE_SUBSCRIPTION,
    PRODUCER,
    QUEUE_SUBSCRIPTION,
    TOPIC_SUBSCRIPTION,
)
from pybroker.management.mbean_destinations import QUEUE, TEMPORARY_QUEUE, TEMPORARY_TOPIC, TOPIC
from pybroker.management.mbean_networks import INCOMING_BRIDGE, NETWORK_BRIDGE, NETWORK_CONNECTOR
from pybroker.management.mbeans import PAIR, BrokerPicture, MBean, MBeanKind
from pybroker.management.object_names import DOMAIN, ObjectName, encoded
from pybroker.management.snapshots import Snapshots

KINDS: Final[Sequence[MBeanKind]] = (
    BROKER,
    HEALTH,
    STORE,
    SCHEDULER,
    QUEUE,
    TOPIC,
    TEMPORARY_QUEUE,
    TEMPORARY_TOPIC,
    QUEUE_SUBSCRIPTION,
    TOPIC_SUBSCRIPTION,
    DURABLE_SUBSCRIPTION,
    INACTIVE_SUBSCRIPTION,
    PRODUCER,
    DYNAMIC_PRODUCER,
    CONNECTION,
    CONNECTOR,
    NETWORK_CONNECTOR,
    NETWORK_BRIDGE,
    INCOMING_BRIDGE,
)

_DIRECT_MAX: Final = 10
"""Queues of one request that the node is asked about one by one; further ones are as the snapshot has them."""

_DIRECT: Final = {"Queue": "QUEUE", "Topic": "TOPIC"}


class Catalogue:
    """The MBeans of one request; it asks for the rows of each kind once."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._direct = 0

    async def picture(self, rows: Collection[str]) -> BrokerPicture:
        """Return the state of the broker with some of its rows, and with that of its pair.

        Raises:
            RequestFailed: the node does not answer.
        """
        there = self._snapshots
        overview = await there.overview.get()
        pair = await there.ha.get() if PAIR in rows else None
        if "totals" not in overview:
            return BrokerPicture(overview, pair=pair)
        return BrokerPicture(
            overview,
            destinations=await there.destinations.get() if "destinations" in rows else (),
            consumers=await there.consumers.get() if "consumers" in rows else (),
            subscriptions=await there.subscriptions.get() if "subscriptions" in rows else (),
            producers=await there.producers.get() if "producers" in rows else (),
            connections=await there.connections.get() if "connections" in rows else (),
            network_connectors=await there.network_connectors.get() if "network_connectors" in rows else (),
            bridges=await there.bridges.get() if "bridges" in rows else (),
            incoming_bridges=await there.incoming_bridges.get() if "incoming_bridges" in rows else (),
            pair=pair,
        )

    async def find(self, name: ObjectName) -> MBean | None:
        """Return the MBean of a name that is no pattern; None if there is none."""
        if set(name.keys) == {"type", "brokerName", *QUEUE.keys}:
            found = await self._find_destination(name)
            if found is not None:
                return found
        kinds = candidates(name)
        picture = await self.picture(_rows(kinds))
        matches = name.matcher()
        return next((each for each in mbeans(picture, kinds) if matches(DOMAIN, each.keys)), None)

    async def _find_destination(self, name: ObjectName) -> MBean | None:
        """Return the queue or topic whose name is that of the object name, as it is now."""
        asked, type_name = name.keys["destinationName"], name.keys["destinationType"]
        self._direct += 1
        if self._direct > _DIRECT_MAX or type_name not in _DIRECT or asked.startswith('"'):
            return None
        picture = await self.picture(())
        if not picture.is_master or not _is_of(name, picture):
            return None
        row = await self._snapshots.destination(_DIRECT[type_name], restored(asked))
        return None if row is None else _mbean_of_destination(picture, row)


def candidates(name: ObjectName) -> Sequence[MBeanKind]:
    """Return the kinds of MBeans that a name or pattern may name."""
    matches_type = "type" not in name.keys or name.keys["type"] in ("Broker", "*")
    return [kind for kind in KINDS if matches_type and _may_be(kind, name)]


def mbeans(picture: BrokerPicture, kinds: Iterable[MBeanKind]) -> Iterator[MBean]:
    """Yield the MBeans of some kinds; takes some 4 µs for each."""
    broker = {"type": "Broker", "brokerName": encoded(picture.overview["broker_name"])}
    for kind in kinds:
        rows = (None,) if kind.rows is None else rows_of(picture, kind.rows)
        for row in rows:
            if kind.selects(picture, row):
                for keys in kind.names(picture, row):
                    yield MBean(kind=kind, keys={**broker, **(keys or _fixed(kind))}, row=row)


def rows_of(picture: BrokerPicture, name: str) -> Sequence[Any]:
    """Return the rows of a kind."""
    if name == "listeners":
        listeners: Sequence[Any] = picture.overview.get("listeners", ())
        return listeners
    rows: Sequence[Any] = getattr(picture, name)
    return rows


def rows_needed(kinds: Iterable[MBeanKind], attributes: Sequence[str] | None) -> set[str]:
    """Return the rows that the MBeans of some kinds need for some attributes; None: for all."""
    found = _rows(kinds)
    for kind in kinds:
        for name, attribute in kind.attributes.items():
            if attributes is None or name in attributes:
                found.update(attribute.needs)
    return found


def restored(value: str) -> str:
    """Return the name of a destination from the value in an object name, as far as that tells."""
    return value.replace("&qe;", "?").replace("&amp;", "=").replace("&ast;", "*")


def _rows(kinds: Iterable[MBeanKind]) -> set[str]:
    return {kind.rows for kind in kinds if kind.rows is not None}


def _may_be(kind: MBeanKind, name: ObjectName) -> bool:
    own = {"type", "brokerName", *kind.keys}
    asked = set(name.keys)
    if not (asked <= own if name.is_open else asked == own):
        return False
    for key, value in kind.keys.items():
        text = name.keys.get(key)
        if value is not None and text is not None and text != value and "*" not in text and "?" not in text:
            return False
    return True


def _fixed(kind: MBeanKind) -> Mapping[str, str]:
    return {key: value for key, value in kind.keys.items() if value is not None}


def _is_of(name: ObjectName, picture: BrokerPicture) -> bool:
    is_broker = name.plain("brokerName") == encoded(picture.overview["broker_name"])
    return is_broker and name.domain == DOMAIN and name.plain("type") == "Broker"


def _mbean_of_destination(picture: BrokerPicture, row: DestinationRow) -> MBean | None:
    kind = QUEUE if row.kind == "queue" else TOPIC
    (keys,) = kind.names(picture, row)
    broker = {"type": "Broker", "brokerName": encoded(picture.overview["broker_name"])}
    return MBean(kind=kind, keys={**broker, **keys}, row=row)
