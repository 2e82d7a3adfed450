"""The remote broker of a duplex bridge, as a client of this one, at either end of the connection.

```text
remote broker                                   this broker
ConnectionInfo, SessionInfo, ProducerInfo  -->  a client named <connector>_<remote>_outbound
ConsumerInfo of advisories                 -->  a consumer of the forwarding half, which sends plain messages
MessageAck                                 -->  space in that consumer's window
Message of an advisory                     -->  demand of the forwarding half
Message                                    -->  sent as <connector>_<remote>_inbound_duplex_<local>
Response, ExceptionResponse                -->  answers to what the forwarding half has sent
```

A message is answered once it is safe, as that of any client. One for a destination that the connector does not permit
is refused: ActiveMQ drops it without an answer, and the other broker waits for ever.

Source: ActiveMQ 5.17, `DemandForwardingBridgeSupport.serviceRemoteCommand`; network.md 8.
"""

import logging
from collections.abc import Callable, Iterable

from pybroker.broker.domain.errors import InvalidDestination, RequestError
from pybroker.broker.domain.network.rows import DemandRow
from pybroker.broker.domain.openwire.commands import (
    ActiveMQMessage,
    BaseCommand,
    BrokerSubscriptionInfo,
    ConnectionId,
    ConnectionInfo,
    ConsumerId,
    ConsumerInfo,
    ExceptionResponse,
    MessageDispatch,
    ProducerInfo,
    RemoveInfo,
    Response,
    SessionInfo,
)
from pybroker.broker.domain.ports import ConnectionPort
from pybroker.transports.network.advisory_listeners import INTERPRETED, VERBATIM
from pybroker.transports.network.forwarding_half import ForwardingHalf
from pybroker.transports.network.remote_text import one_line
from pybroker.transports.openwire.arrivals import Acknowledgement, Arrival
from pybroker.transports.openwire.client import OpenWireClient, OpenWireProducer
from pybroker.transports.openwire.incoming import BridgeTraffic
from pybroker.transports.openwire.peer import Peer, answered_command

_log = logging.getLogger(__name__)

_NEVER = float("inf")


class DuplexClient(OpenWireClient):
    """The remote broker of a duplex bridge.

    Attributes:
        half: forwards messages to it.
    """

    def __init__(
        self, connection: ConnectionPort, peer: Peer, half: ForwardingHalf, *, next_sequence: Callable[[], int]
    ) -> None:
        """Serve the remote broker.

        Args:
            connection: sends what it forwards.
            peer: its end of the connection.
            half: forwards messages to it.
            next_sequence: numbers received messages.
        """
        super().__init__(connection, peer, next_sequence=next_sequence, reconnected=False, is_bridge=True)
        self.half = half
        self._registered: ConnectionPort | None = None
        self._handlers = {
            ConnectionInfo: self._ignore,
            SessionInfo: self._ignore,
            ProducerInfo: self._add_remote_producer,
            ConsumerInfo: self._add_listener,
            RemoveInfo: self._remove_remote,
            MessageDispatch: self._dispatched,
            Response: self._answered,
            ExceptionResponse: self._refused,
            BrokerSubscriptionInfo: self._compare_subscriptions,
        }

    def register(self, connection: ConnectionPort) -> None:
        """Own the connection by which the remote broker is known here; it closes with this client."""
        self._registered = connection

    @property
    def is_registered(self) -> bool:
        """True once `register` was called."""
        return self._registered is not None

    @property
    def traffic(self) -> BridgeTraffic:
        """Its messages, both ways."""
        half = self.half
        return BridgeTraffic(self.received_count, half.sent_count, half.forwarded_count, len(half.demand))

    def demand_rows(self) -> Iterable[DemandRow]:
        """Return the demand subscriptions of the half that forwards to the remote broker."""
        return self.half.demand_rows()

    def begin(self) -> None:
        """Introduce the half to the remote broker, and begin what needs no demand."""
        self.half.introduce()
        self.half.start()

    def close(self) -> None:
        """Remove the connections of both halves from this broker."""
        registered, self._registered = self._registered, None
        try:
            self.half.close()
        finally:
            try:
                super().close()
            finally:
                if registered is not None:
                    registered.close()

    def written(self) -> None:
        """React to all output having left the process."""
        super().written()
        self.half.written()

    def handed_over(self) -> None:
        """Count all output so far as possibly received by the remote broker."""
        super().handed_over()
        self.half.handed_over()

    def pause(self) -> None:
        """Forward nothing until `written`, as the remote broker reads too slowly."""
        super().pause()
        self.half.pause()

    @property
    def next_deadline(self) -> float:
        """The time at which `end_pulls` has something to do; infinite: there is none."""
        return min(self.half.deadlines, default=_NEVER)

    def end_pulls(self, now: float) -> None:
        """Resume and end demand subscriptions whose time has come; a broker does not pull."""
        self.half.on_timer(now)

    # ------------------------------------------------------------ messages

    def acknowledge(self, chunk: bytes, start: int, stop: int) -> int:
        """Return 0: acknowledgements are rare, so the codec reads them."""
        return 0

    def answer(self, chunk: bytes, start: int, stop: int) -> bool:
        """Carry out a frame if it is the answer to a message; return False for any other."""
        half = self.half
        command_id = answered_command(chunk, start, stop) if self._peer.is_loose and not half.awaits_acceptance else -1
        if command_id < 0:
            return False
        half.answered(command_id)
        return True

    def end_of_chunk(self) -> None:
        """Respond to the messages of a chunk together, and acknowledge together what it has answered."""
        super().end_of_chunk()
        self.half.end_of_chunk()

    def _acknowledge(self, ack: Acknowledgement, command_id: int | None) -> None:
        self.half.acknowledged(ack.consumer_id, ack.message_count)
        if command_id is not None:
            self._peer.respond((command_id,))

    def _send(self, arrival: Arrival, command_id: int, response_required: bool) -> None:
        message = arrival[0]
        if message.destination.name.startswith(INTERPRETED):
            advisory = VERBATIM.decode(message.data)
            if isinstance(advisory, ActiveMQMessage):
                self.half.advised(advisory)
            if response_required:
                self._peer.respond((command_id,))
        elif self.half.permissions.admits(message.destination):
            super()._send(arrival, command_id, response_required)
        elif response_required:
            raise InvalidDestination(f"the bridge is not permitted to serve {message.destination}")
        else:
            _log.warning(
                "%s: %s is dropped, as the bridge is not permitted to serve %s",
                self.half,
                message.message_id,
                message.destination,
            )

    # ------------------------------------------------------------ every other command

    def _ignore(self, command: BaseCommand) -> Response | None:
        return None

    def _add_remote_producer(self, info: ProducerInfo) -> Response | None:
        producer_id = info.producer_id
        if producer_id is None:
            raise RequestError("a producer without id")
        if producer_id not in self._producers:
            self._check_count(len(self._producers), "producers")
            self._connection.add_producer(producer_id, None)
            self._producers[producer_id] = OpenWireProducer(info, self._peer, -1, -1)
        return None

    def _add_listener(self, info: ConsumerInfo) -> Response | None:
        self.half.add_listener(info)
        return None

    def _remove_remote(self, info: RemoveInfo) -> Response | None:
        if isinstance(info.object_id, ConsumerId):
            self.half.remove_listener(info.object_id)
        elif isinstance(info.object_id, ConnectionId) and self._registered is not None:
            if info.object_id.value == self._registered.connection_id:
                self.close()
            else:  # a bridge has no other connection over this one, and goes on
                _log.debug("%s: a RemoveInfo of %s is ignored", self.half, one_line(str(info.object_id.value)))
        return None

    def _dispatched(self, dispatch: MessageDispatch) -> Response | None:
        if dispatch.message is not None:
            self.half.advised(dispatch.message, dispatch.destination)
        return None

    def _answered(self, response: Response) -> Response | None:
        self.half.answered(response.correlation_id)
        return None

    def _refused(self, response: ExceptionResponse) -> Response | None:
        self.half.refused(response)
        return None

    def _compare_subscriptions(self, info: BrokerSubscriptionInfo) -> Response | None:
        self.half.compare_subscriptions(info.subscription_infos)
        return None
