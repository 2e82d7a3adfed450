"""MBeans as plain tables: what kinds there are, and how the attributes of each come from the rows of the node.

Nothing is found by reflection: an attribute or operation that is not in a table does not exist. `mbean_broker`,
`mbean_destinations`, `mbean_clients` and `mbean_operations` have the tables, `mbean_catalogue` finds MBeans.

Source: management.md, section 4; ActiveMQ 5.17, the interfaces of `org.apache.activemq.broker.jmx`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from pybroker.broker.domain.network.rows import BridgeRow, IncomingBridgeRow, NetworkConnectorRow
from pybroker.broker.domain.node_requests import (
    ConnectionRow,
    ConsumerRow,
    DestinationRow,
    ProducerRow,
    SubscriptionRow,
)
from pybroker.broker.domain.security import ANONYMOUS
from pybroker.management.object_names import DOMAIN, encoded

PACKAGE: Final = "org.apache.activemq.broker.jmx"

PAIR: Final = "ha"
"""The state of the pair, beside the rows that attributes may need; it is asked for by this method of the node."""

OBJECT_NAME: Final = "javax.management.ObjectName"
OBJECT_NAMES: Final = "[Ljavax.management.ObjectName;"


@dataclass(frozen=True)
class BrokerPicture:
    """The state of the broker, as far as a request needs it.

    Attributes:
        overview: the member and the totals of its broker; see `app.node_answers`.
        destinations: the queues and topics without advisory topics; empty if they are not needed, as the rest.
        consumers: the consumers.
        subscriptions: the durable subscriptions.
        producers: the producers.
        connections: the connections.
        network_connectors: the network connectors.
        bridges: their bridges.
        incoming_bridges: those that other brokers have opened.
        pair: the state of the pair, on a standby too; see `app.ha_state`.
    """

    overview: Mapping[str, Any]
    destinations: Sequence[DestinationRow] = ()
    consumers: Sequence[ConsumerRow] = ()
    subscriptions: Sequence[SubscriptionRow] = ()
    producers: Sequence[ProducerRow] = ()
    connections: Sequence[ConnectionRow] = ()
    network_connectors: Sequence[NetworkConnectorRow] = ()
    bridges: Sequence[BridgeRow] = ()
    incoming_bridges: Sequence[IncomingBridgeRow] = ()
    pair: Mapping[str, Any] | None = None

    @property
    def is_master(self) -> bool:
        """True if the broker serves."""
        return "totals" in self.overview

    @cached_property
    def prefix(self) -> str:
        """The name of the broker's MBean, with which all others begin."""
        return f"{DOMAIN}:type=Broker,brokerName={encoded(self.overview['broker_name'])}"

    @cached_property
    def consumers_of(self) -> Mapping[tuple[str, str], Sequence[ConsumerRow]]:
        """The consumers by kind and name of their destination."""
        found: dict[tuple[str, str], list[ConsumerRow]] = {}
        for each in self.consumers:
            found.setdefault((each.kind, each.destination), []).append(each)
        return found

    @cached_property
    def wide_consumers(self) -> Sequence[ConsumerRow]:
        """The consumers of several destinations: of a wildcard, or of a list of names."""
        return [each for each in self.consumers if any(sign in each.destination for sign in "*>,")]

    @cached_property
    def subscriptions_by_key(self) -> Mapping[str, SubscriptionRow]:
        """The durable subscriptions by their keys."""
        return {each.key: each for each in self.subscriptions}

    @cached_property
    def inactive_subscriptions(self) -> Sequence[SubscriptionRow]:
        """The durable subscriptions without a consumer."""
        return [each for each in self.subscriptions if not each.is_active]

    @cached_property
    def clients(self) -> Mapping[str, ConnectionRow]:
        """The connections by their ids."""
        return {each.connection_id: each for each in self.connections}

    def total(self, name: str) -> Any:
        """Return a total of the broker; 0 if it does not serve."""
        return self.overview["totals"][name] if self.is_master else 0

    def usage(self, name: str) -> Any:
        """Return an entry of the usage of store and spool; 0 if it does not serve."""
        return self.overview["usage"][name] if self.is_master else 0


Value = Callable[[BrokerPicture, Any], Any]
"""Returns the value of an attribute: of the broker, and of the row of the MBean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """An attribute of a kind of MBean.

    Attributes:
        type: its type in Java.
        value: returns its value.
        needs: the rows that this takes beside that of the MBean.
        is_writable: True if ActiveMQ lets it be set.
    """

    type: str
    value: Value
    needs: Sequence[str] = ()
    is_writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MBeanKind:
    """A kind of MBean.

    Attributes:
        class_name: the Java class, without its package.
        description: one sentence.
        keys: the keys of its names, with the values that all have; None: each has its own.
        rows: the rows of which each has an MBean; None: there is one MBean, of no row.
        selects: returns True if a row has one.
        names: returns the values of a row's keys; of several MBeans, if it has several names.
        attributes: the attributes by their names.
    """

    class_name: str
    description: str
    keys: Mapping[str, str | None]
    attributes: Mapping[str, Attribute]
    rows: str | None = None
    selects: Callable[[BrokerPicture, Any], bool] = lambda picture, row: True
    names: Callable[[BrokerPicture, Any], Sequence[Mapping[str, str]]] = lambda picture, row: ({},)


@dataclass(frozen=True, slots=True, kw_only=True)
class MBean:
    """An MBean.

    Attributes:
        kind: its kind.
        keys: the values of its name, type and broker name first.
        row: its row; None if there is none.
    """

    kind: MBeanKind
    keys: Mapping[str, str]
    row: Any = field(repr=False)

    @property
    def name(self) -> str:
        """Its name, in the order of keys that ActiveMQ has."""
        return f"{DOMAIN}:{','.join([f'{key}={value}' for key, value in self.keys.items()])}"

    @property
    def canonical(self) -> str:
        """Its name, with its keys in their order."""
        return f"{DOMAIN}:{','.join([f'{key}={value}' for key, value in sorted(self.keys.items())])}"

    def value(self, picture: BrokerPicture, attribute: str) -> Any:
        """Return the value of an attribute that its kind has."""
        return self.kind.attributes[attribute].value(picture, self.row)


class MBeanReference(str):
    """The name of another MBean, as the value of an attribute."""

    __slots__ = ()


def constant(java_type: str, value: Any, *, is_writable: bool = False) -> Attribute:
    """Return an attribute that is the same in every pybroker."""
    return Attribute(type=java_type, value=lambda picture, row: value, is_writable=is_writable)


def column(java_type: str, name: str) -> Attribute:
    """Return an attribute that a column of the row is."""
    return Attribute(type=java_type, value=lambda picture, row: getattr(row, name))


def computed(java_type: str, value: Callable[[Any], Any], *, is_writable: bool = False) -> Attribute:
    """Return an attribute that is computed from the row alone."""
    return Attribute(type=java_type, value=lambda picture, row: value(row), is_writable=is_writable)


def user_name(row: Any) -> str | None:
    """Return the name of a row's user as ActiveMQ has it: null without a login."""
    return None if row.user == ANONYMOUS.name else str(row.user)


def percent(used: int, limit: int) -> int:
    """Return the part of a limit that is used; 0 without a limit."""
    return 100 * used // limit if limit else 0
