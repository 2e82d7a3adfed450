"""The request of a bridge that another broker has opened: it wants messages to go both ways over its connection.

The request comes in the BrokerInfo before the ConnectionInfo, with the attributes of the connector. ActiveMQ 5.17 acts
upon it before any login; here the half that forwards to the other broker begins once its ConnectionInfo is accepted.

Source: ActiveMQ 5.17, `TransportConnection.processBrokerInfo`; network.md 8.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pybroker.broker.domain.errors import BrokerError, InvalidDestination, ProtocolError
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.introduction import introduced, require_printable
from pybroker.broker.domain.network.properties import connector_of, decode
from pybroker.broker.domain.openwire.commands import BrokerInfo
from pybroker.broker.domain.ports import ConnectionPort
from pybroker.broker.domain.security import User
from pybroker.transports.openwire.client import OpenWireClient
from pybroker.transports.openwire.peer import Peer
from pybroker.transports.session import Link

_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplexRequest:
    """The request of a broker whose ConnectionInfo was accepted.

    Attributes:
        connector: its connector.
        remote_id: its id.
        remote_name: its name.
        remote_url: its address for clients; empty: it has none.
        connection: the connection by which it is known here.
        user: who it is.
        peer: writes commands to it.
        link: moves the bytes.
        on_deadline: called when the client's `next_deadline` has changed.
        on_error: called for an error after which the client cannot go on.
    """

    connector: NetworkConnector
    remote_id: str
    remote_name: str
    remote_url: str
    connection: ConnectionPort
    user: User
    peer: Peer
    link: Link
    on_deadline: Callable[[], None]
    on_error: Callable[[BrokerError], None]


OpenDuplex = Callable[[DuplexRequest], OpenWireClient]
"""Returns a client that serves the other broker, and forwards messages to it from `begin` on. May raise a
`RequestError`."""


def duplex_connector(introduction: BrokerInfo) -> NetworkConnector | None:
    """Return the connector of a bridge that wants messages to go both ways; None: they go one way.

    Raises:
        ProtocolError: its description does not tell its attributes, or one of its names is not printable.
    """
    if not introduction.duplex_connection:
        return None
    introduced(introduction)
    try:
        connector = connector_of(decode(introduction.network_properties or ""))
    except (ValueError, InvalidDestination) as error:
        raise ProtocolError(f"the network properties of a duplex bridge: {error}") from error
    require_printable("the name of the remote broker's connector", connector.name)
    require_printable("the token of the remote broker's client ids", connector.client_id_token)
    for what, value, least, most in (
        ("prefetch size", connector.prefetch_size, 1, _INT_MAX),
        ("prefetch size of advisories", connector.advisory_prefetch_size, 0, _INT_MAX),
        ("consumer priority base", connector.consumer_priority_base, -128, 127),
        ("percentage for acknowledgements", connector.advisory_ack_percentage, -_INT_MAX, _INT_MAX),
        ("replay delay", connector.replay_delay, 0, _LONG_MAX),  # of numbers without an end no float can be made
    ):
        if not least <= value <= most:
            raise ProtocolError(f"a duplex bridge with a {what} of {value}")
    return connector
