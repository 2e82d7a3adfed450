"""A link on which the client sends: its credit, transfers of several frames, and the messages that they make up.

```text
 attach --> credit 1000 --> transfers --> answered --> credit + unanswered <= 300: 700 more
```

What has no answer yet counts as used credit. So a client whose messages find no space, or whose store is behind, runs
out of credit, and other links of its connection do not wait. Source: AMQP 1.0, 2.6.7, 2.6.14, 2.7.5; ActiveMQ 5.17 for
the numbers.
"""

import logging
from functools import partial
from typing import Final, Protocol

from pybroker.broker.domain.amqp.errors import AmqpError
from pybroker.broker.domain.amqp.performatives import (
    AmqpAccepted,
    AmqpDeliveryState,
    AmqpFlow,
    AmqpRejected,
    AmqpTransactionalState,
    AmqpTransfer,
)
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import BrokerError, DestinationInUse, RequestError, UnknownTransaction
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.security import AccessDenied
from pybroker.broker.domain.space import DeferredSendsPort, SpaceAwaited
from pybroker.transports.amqp.answers import ReceivedDelivery, TransferAnswers
from pybroker.transports.amqp.inbound import TransferReader
from pybroker.transports.amqp.links import AmqpLink
from pybroker.transports.amqp.peer import AmqpPeer
from pybroker.transports.amqp.refusals import (
    INVALID_FIELD,
    MESSAGE_SIZE,
    RESOURCE_LIMIT,
    TRANSFER_LIMIT,
    LinkRefused,
    SessionRefused,
    condition_of,
    error_condition,
)
from pybroker.transports.amqp.transactions import OpenAmqpTransaction

_log = logging.getLogger(__name__)

_LOW_TENTHS: Final = 3
"""The client gets new credit once no more than so many tenths are left, counting what has no answer."""

_TXN_ID_BYTES_MAX: Final = 32
"""The bytes of a transaction's id that are kept; a longer one is none of the broker's."""

_ACCEPTED: Final = AmqpAccepted()


class _Arrival:
    """A complete delivery.

    Attributes:
        delivery_id: its number in the session.
        is_settled: the client waits for no answer.
        transaction: the transaction that it is part of.
        message: its message.
    """

    __slots__ = ("delivery_id", "is_settled", "message", "transaction")

    def __init__(
        self, delivery_id: int, is_settled: bool, transaction: OpenAmqpTransaction | None, message: Message
    ) -> None:
        self.delivery_id = delivery_id
        self.is_settled = is_settled
        self.transaction = transaction
        self.message = message


class TransferAssembly:
    """Assembles the transfers of a link to deliveries.

    Attributes:
        credit: the transfers that the client may still begin.
        delivery_count: those that it has begun.
    """

    __slots__ = ("_first", "_parts", "_peer", "_settled", "credit", "delivery_count")

    def __init__(self, peer: AmqpPeer, delivery_count: int) -> None:
        self._peer = peer
        self.credit = 0
        self.delivery_count = delivery_count
        self._first: AmqpTransfer | None = None
        """The first transfer of a delivery of which a part is missing."""
        self._parts = bytearray()
        """The payloads: a list of them could take twenty times their bytes, as a client chooses how many there are."""
        self._settled = False

    def add(self, transfer: AmqpTransfer, payload: bytes) -> tuple[AmqpTransfer, bool, bytes] | None:
        """Add a transfer.

        Returns:
            The first transfer of a delivery that is complete now, True if it is settled, and its payload; else None.

        Raises:
            LinkRefused: the client has no credit, or the message is too large.
            SessionRefused: the transfer has no delivery id.
        """
        first = self._first
        if first is None:
            if transfer.delivery_id is None:
                raise SessionRefused("The first transfer of a delivery has no delivery-id", INVALID_FIELD)
            if self.credit <= 0:
                raise LinkRefused("A transfer without credit", TRANSFER_LIMIT)
            self.credit -= 1
            self.delivery_count = (self.delivery_count + 1) & 0xFFFF_FFFF
            if not transfer.more and not transfer.aborted:
                self._check(len(payload))
                return transfer, bool(transfer.settled), payload
            self._first = first = _reduced(transfer)
            self._settled = False
        elif transfer.delivery_id is not None and transfer.delivery_id != first.delivery_id:
            raise SessionRefused("A delivery begins before the last one of its link is complete", INVALID_FIELD)
        self._settled |= bool(transfer.settled)
        transfer.settled, transfer.state = self._settled, first.state  # should the link end by this one
        if transfer.aborted:
            self.clear()
            return None
        self._check(len(self._parts) + len(payload))
        self._parts += payload
        self._peer.partial_bytes += len(payload)
        if transfer.more:
            if self._peer.partial_bytes > self._peer.limits.message_bytes_max:
                raise LinkRefused("The parts of messages that this connection has begun take too much", RESOURCE_LIMIT)
            return None
        whole = bytes(self._parts)
        is_settled = self._settled
        self.clear()
        return first, is_settled, whole

    def replenish(self, unanswered: int) -> bool:
        """Give new credit if little is left, counting what has no answer; return True if so."""
        credit = self._peer.limits.producer_credit
        if self.credit + unanswered > credit * _LOW_TENTHS // 10:
            return False
        self.credit = credit - unanswered
        return True

    def clear(self) -> None:
        """Drop the parts of a delivery."""
        self._peer.partial_bytes -= len(self._parts)
        self._first = None
        self._parts = bytearray()

    def _check(self, size: int) -> None:
        limit = self._peer.limits.message_bytes_max
        if size > limit:
            raise LinkRefused(f"A message of more than {limit} bytes", MESSAGE_SIZE)


def _reduced(transfer: AmqpTransfer) -> AmqpTransfer:
    """Return a transfer with what is needed once its delivery is complete: a peer may leave many unfinished."""
    state = transfer.state
    if isinstance(state, AmqpTransactionalState):
        state = AmqpTransactionalState(txn_id=state.txn_id[:_TXN_ID_BYTES_MAX])
    else:
        state = None
    return AmqpTransfer(
        handle=transfer.handle, delivery_id=transfer.delivery_id, message_format=transfer.message_format, state=state
    )


class IncomingSession(Protocol):
    """A session, as a link sees it on which the client sends.

    Attributes:
        answers: those to the client's transfers.
    """

    answers: TransferAnswers

    def transaction_of(self, state: AmqpDeliveryState) -> OpenAmqpTransaction | None:
        """Return the transaction of a transfer. Raises `UnknownTransaction`."""
        ...

    def dispose(self, delivery_id: int, state: AmqpDeliveryState) -> None:
        """Settle a delivery of the client."""
        ...

    def end_of_chunk(self) -> None:
        """Answer what was gathered from a chunk of input."""
        ...

    def refuse_link(self, link: AmqpLink, error: BrokerError) -> None:
        """End a link with an error; do nothing if it has ended."""
        ...

    def send_flow(self, handle: int, delivery_count: int, link_credit: int, *, drain: bool = False) -> None:
        """Send the state of a link, and of the session."""
        ...


class IncomingLink(AmqpLink):
    """A link on which the client sends messages."""

    __slots__ = (
        "_assembly", "_deferred", "_destination", "_peer", "_persistency", "_producer_id", "_reader", "_session",
        "_temporary", "_unanswered", "is_closed",
    )  # fmt: skip

    def __init__(
        self,
        handle: int,
        name: str,
        session: IncomingSession,
        peer: AmqpPeer,
        *,
        destination: Destination | None,
        reader: TransferReader,
        producer_id: ProducerId,
        temporary: Destination | None,
        delivery_count: int,
    ) -> None:
        """Create a link that has no credit yet.

        Args:
            handle: its number.
            name: its name.
            session: its session.
            peer: the client's end.
            destination: where the messages go; None: each names it.
            reader: converts messages.
            producer_id: the id of its producer in the core.
            temporary: the temporary destination that was created for it.
            delivery_count: the client's number of deliveries so far.
        """
        super().__init__(handle, name)
        self._session = session
        self._peer = peer
        self._destination = destination
        self._reader = reader
        self._producer_id = producer_id
        self._temporary = temporary
        self._assembly = TransferAssembly(peer, delivery_count)
        self._unanswered = 0
        self._persistency = peer.connection.persistency
        self._deferred: DeferredSendsPort | None = None
        self.is_closed = False

    def start(self) -> None:
        """Give the client its first credit."""
        self._assembly.credit = self._peer.limits.producer_credit
        self._send_flow()

    # ------------------------------------------------------------ AmqpLink

    def flow(self, flow: AmqpFlow) -> None:
        """Answer if the client asks for it."""
        if flow.echo:
            self._send_flow()

    def transfer(self, transfer: AmqpTransfer, payload: bytes) -> None:
        """Take a part of a message, and send the message if it is complete."""
        found = self._assembly.add(transfer, payload)
        if found is None:
            self.answered(0)  # aborted deliveries have used credit, too
            return
        first, is_settled, whole = found
        self._unanswered += 1
        transaction: OpenAmqpTransaction | None = None
        delivery_id = first.delivery_id or 0
        try:
            if first.state is not None:
                transaction = self._session.transaction_of(first.state)
            core_id = None if transaction is None else transaction.transaction_id
            message = self._reader.read(whole, first.message_format or 0, self._destination, core_id)
            arrival = _Arrival(delivery_id, is_settled, transaction, message)
            if self._deferred is not None and transaction is None:
                self._defer(self._deferred, arrival, None)
                return
            try:
                self._send(arrival)
            except SpaceAwaited as error:
                self._deferred = self._peer.connection.deferred_sends(self._end_deferred)
                self._defer(self._deferred, arrival, error)
        except (RequestError, AmqpError) as error:
            self._refuse(delivery_id, transaction, error, is_settled=is_settled)

    def end(self, *, is_closed: bool) -> None:
        """Remove the producer."""
        self.is_closed = True
        self._assembly.clear()
        connection = self._peer.connection
        self.finish_deferred()
        connection.remove_producer(self._producer_id)
        if self._temporary is not None:
            remove_temporary(self._peer, self._temporary)

    def finish_deferred(self) -> None:
        """Send or refuse the messages that wait for space."""
        if self._deferred is not None:
            self._deferred.finish()

    def abandon(self) -> None:
        """Take no more messages: the core removes the producer."""
        self.is_closed = True
        self._assembly.clear()

    # ------------------------------------------------------------ messages

    def _send(self, arrival: _Arrival) -> None:
        transaction = arrival.transaction
        core_id = None if transaction is None else transaction.transaction_id
        # Credit is the answer to what wants none: so no client is slowed down by not reading its connection.
        self._peer.connection.send(arrival.message, core_id, answered=True)
        if transaction is not None:
            self._peer.connection.when_accepted(partial(self._answer_in, transaction, arrival))
            return
        is_persistent = arrival.message.persistent if self._persistency is None else self._persistency
        delivery = ReceivedDelivery(self, arrival.delivery_id, arrival.is_settled)
        self._session.answers.add(delivery, is_persistent=is_persistent)

    def _answer_in(self, transaction: OpenAmqpTransaction, arrival: _Arrival) -> None:
        """Answer a delivery that is part of a transaction."""
        if not arrival.is_settled:
            state = AmqpTransactionalState(txn_id=transaction.txn_id, outcome=_ACCEPTED)
            self._session.dispose(arrival.delivery_id, state)
        self.answered(1)

    def answered(self, count: int) -> None:
        """Give the client new credit if it has little."""
        self._unanswered -= count
        if not self.is_closed and self._assembly.replenish(self._unanswered):
            self._send_flow()

    def _send_flow(self) -> None:
        self._session.send_flow(self.handle, self._assembly.delivery_count, self._assembly.credit)

    def _refuse(
        self, delivery_id: int, transaction: OpenAmqpTransaction | None, error: BrokerError, *, is_settled: bool
    ) -> None:
        """Answer a delivery that is refused; the link of one that waits for no answer ends."""
        connection = self._peer.connection
        if not isinstance(error, AccessDenied):  # which has a line in the audit log
            _log.info("%s: a message is refused: %s", connection.connection_id, error)
        if transaction is not None and is_settled:  # the commit must not lack it silently
            try:
                connection.doom(transaction.transaction_id, str(error))
            except UnknownTransaction:
                _log.debug("%s is over already", transaction.transaction_id)
        if is_settled:
            self._session.refuse_link(self, LinkRefused(str(error), condition_of(error)))
            return
        self._session.dispose(delivery_id, AmqpRejected(error=error_condition(error)))
        self.answered(1)

    # ------------------------------------------------------------ messages that wait for space

    def _defer(self, deferred: DeferredSendsPort, arrival: _Arrival, error: SpaceAwaited | None) -> None:
        """Have a message wait for space, behind the others of this link."""
        refuse = partial(self._refuse_deferred, arrival)
        deferred.add(partial(self._send_deferred, arrival), refuse, arrival.message.size, error)

    def _send_deferred(self, arrival: _Arrival) -> None:
        self._send(arrival)
        self._session.answers.flush()

    def _refuse_deferred(self, arrival: _Arrival, error: RequestError) -> None:
        self._refuse(arrival.delivery_id, arrival.transaction, error, is_settled=arrival.is_settled)

    def _end_deferred(self) -> None:
        self._deferred = None


def remove_temporary(peer: AmqpPeer, temporary: Destination) -> None:
    """Delete the temporary destination of a link that has ended, once that is carried out."""
    peer.connection.when_carried_out(partial(_remove_temporary, peer, temporary))


def _remove_temporary(peer: AmqpPeer, temporary: Destination) -> None:
    try:
        peer.connection.remove_destination(temporary)
    except DestinationInUse as error:
        _log.info("%s lives as long as its connection: %s", temporary, error)
