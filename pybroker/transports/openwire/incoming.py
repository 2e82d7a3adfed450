"""The state of a bridge that another broker has opened to this one, as a row for operators."""

from collections.abc import Iterable
from typing import NamedTuple

from pybroker.broker.domain.network.names import connector_of_client
from pybroker.broker.domain.network.rows import DemandRow, IncomingBridgeRow
from pybroker.broker.domain.openwire.commands import BrokerInfo


class BridgeTraffic(NamedTuple):
    """The messages of one connection of a bridge.

    Attributes:
        received: those that the other broker has sent, again ones and refused ones too.
        sent: those that were sent to it; 0 unless messages go both ways.
        forwarded: those of them that it has confirmed, or that need no answer.
        demand: the demand subscriptions by which this broker consumes for it.
    """

    received: int
    sent: int = 0
    forwarded: int = 0
    demand: int = 0


class BridgeLogin(NamedTuple):
    """The login of a bridge at this broker.

    Attributes:
        connection_id: the id of its connection.
        client_id: its client id.
        user: the name of its user.
        address: the address that it comes from.
        since_ms: when it has logged in, in milliseconds since the epoch.
        problem: why it is served as a client without the rights of a bridge; empty: it is served as a bridge.
    """

    connection_id: str
    client_id: str
    user: str
    address: str
    since_ms: int
    problem: str


class IncomingBridge(NamedTuple):
    """A bridge, and what this broker consumes for the other one.

    Attributes:
        row: its state.
        demand: the demand subscriptions of this broker's half; none unless messages go both ways.
    """

    row: IncomingBridgeRow
    demand: Iterable[DemandRow]


def incoming_row(login: BridgeLogin, introduction: BrokerInfo | None, traffic: BridgeTraffic) -> IncomingBridgeRow:
    """Return the row of a bridge; without an introduction it is a client that was a bridge before it reconnected."""
    name, broker_id, is_duplex = "", "", False
    if introduction is not None:
        name, is_duplex = introduction.broker_name or "", introduction.duplex_connection
        broker_id = "" if introduction.broker_id is None else introduction.broker_id.value or ""
    return IncomingBridgeRow(
        connector=connector_of_client(login.client_id, name),
        remote_name=name,
        remote_id=broker_id,
        address=login.address,
        since_ms=login.since_ms,
        user=login.user,
        connection_id=login.connection_id,
        client_id=login.client_id,
        is_duplex=is_duplex,
        demand=traffic.demand,
        received=traffic.received,
        sent=traffic.sent,
        forwarded=traffic.forwarded,
        problem=login.problem,
    )
