"""The acceptor's end of a duplex bridge: the half that forwards messages to the broker that has opened it.

Source: ActiveMQ 5.17, `TransportConnection.processBrokerInfo`, `NetworkBridgeFactory`; network.md 8.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count

from pybroker.broker.domain.network.interests import Interests
from pybroker.broker.domain.network.names import inbound_duplex_client_id
from pybroker.broker.domain.observer import Observer
from pybroker.broker.domain.ports import BrokerPort
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.transports.network.duplex_client import DuplexClient
from pybroker.transports.network.forwarding_half import ForwardingHalf
from pybroker.transports.network.forwarding_settings import ForwardingSettings
from pybroker.transports.network.remote_text import one_bridge_of
from pybroker.transports.openwire.duplex import DuplexRequest

_log = logging.getLogger(__name__)


def new_connection_id(local_name: str, remote_name: str) -> str:
    """Return the first part of the ids of a bridge's connections, unique."""
    return f"ID:{local_name}->{remote_name}-{time.time_ns() // 10**6}-{secrets.randbits(32)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplexAcceptor:
    """Opens this broker's half of the duplex bridges of other brokers.

    Attributes:
        broker: this broker.
        interests: shared by all bridges of this broker.
        subscriptions: returns the durable subscriptions of a client id.
        announce: notifies the observers of this broker.
        call_soon: calls back in a later turn of the event loop.
        new_id: returns the first part of the ids of a bridge's connections, from the names of both brokers.
    """

    broker: BrokerPort
    interests: Interests
    subscriptions: Callable[[str], Iterable[DurableSubscription]]
    announce: Callable[[Callable[[Observer], None]], None]
    call_soon: Callable[[Callable[[], None]], object]
    new_id: Callable[[str, str], str] = new_connection_id

    def open(self, request: DuplexRequest) -> DuplexClient:
        """Return a client for a bridge; see `OpenDuplex`.

        Raises:
            RequestError: the broker refuses a connection.
        """
        with one_bridge_of(request.connector.name, request.remote_name):
            return self._open(request)

    def _open(self, request: DuplexRequest) -> DuplexClient:
        """Open the half.

        Its local connections are `:1`, whose consumers forward, and `:2`, which sends; `:3` is at the other broker.

        Raises:
            RequestError: the broker refuses a connection.
        """
        broker, connector, remote = self.broker, request.connector, request.remote_name
        connection_id = self.new_id(broker.name, remote)
        half = ForwardingHalf(
            broker=broker,
            link=request.link,
            peer=request.peer,
            settings=ForwardingSettings(
                connector=connector,
                remote_id=request.remote_id,
                remote_name=remote,
                local_connection_id=f"{connection_id}:1",
                remote_connection_id=f"{connection_id}:3",
                interests=self.interests,
                subscriptions=self.subscriptions,
                announce=self.announce,
                user=request.user,
                label=f"duplex bridge {connector.name} from {request.link.peer}",
                remote_url=request.remote_url,
                is_created_by_duplex=True,
            ),
            next_command_id=count(1).__next__,
            call_soon=self.call_soon,
            on_deadline=request.on_deadline,
            on_error=request.on_error,
        )
        try:
            client_id = inbound_duplex_client_id(connector, remote, broker.name)
            inbound = broker.connect(f"{connection_id}:2", client_id, request.link, request.user)
        except BaseException:
            half.close()
            raise
        client = DuplexClient(inbound, request.peer, half, next_sequence=broker.next_sequence)
        client.register(request.connection)
        _log.info("the %s is open: broker %s, id %s", half, remote, request.remote_id)
        return client
