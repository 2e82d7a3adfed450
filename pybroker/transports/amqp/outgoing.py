"""A link on which the client receives: its credit, and the outcomes of its deliveries.

The client's credit is a number of messages that the core's consumer may get: its prefetch is 0, and it pulls. What the
client takes back, the consumer does not get.

```text
                    queue, durable subscription            topic, browser
 unsettled link     the client's outcome settles           settled for the core once the bytes have left the process
 presettled link    settled once the bytes have left       the same
```

| outcome | in the core |
| --- | --- |
| accepted | acknowledged |
| rejected | rejected: a dead letter |
| released, modified | back in the backlog, for any consumer |
| modified with delivery-failed | the same, as redelivered, with a delivery strike |
| modified with undeliverable-here | the same, and not for this link again |
| settled without a state | the default outcome of the source; without one it is released |

Source: AMQP 1.0, 2.6.7, 2.6.12, 3.4, 3.5.3.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from pybroker.broker.domain.amqp.performatives import (
    AmqpAccepted,
    AmqpDeliveryState,
    AmqpFlow,
    AmqpModified,
    AmqpRejected,
    AmqpTransfer,
)
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import BrokerError, RequestError, unexpected
from pybroker.broker.domain.ports import ConsumerPort
from pybroker.transports.amqp.incoming import remove_temporary
from pybroker.transports.amqp.links import AmqpLink
from pybroker.transports.amqp.peer import AmqpPeer
from pybroker.transports.amqp.refusals import NOT_ALLOWED, LinkRefused
from pybroker.transports.amqp.serial_numbers import add, distance
from pybroker.transports.amqp.transactions import SentDelivery

_log = logging.getLogger(__name__)

_DRAIN_SECONDS: Final = 0.02
"""The time after which a drain looks again whether the core still searches."""

_CREDIT_MAX: Final = (1 << 31) - 1


class OutgoingSession(Protocol):
    """A session, as a link sees it on which the client receives.

    Attributes:
        draining: the links that are to use up their credit, and for which messages may still come.
        is_suspended: True while its links have no credit in the core.
    """

    draining: "dict[OutgoingLink, None]"
    is_suspended: bool

    def deliver(self, link: "OutgoingLink", delivery: Delivery) -> None:
        """Send a delivery of the core, or have it wait for the client's window."""
        ...

    def forget(self, link: "OutgoingLink") -> None:
        """Drop the deliveries of a link that has ended."""
        ...

    def send_flow(self, handle: int, delivery_count: int, link_credit: int, *, drain: bool = False) -> None:
        """Send the state of a link, and of the session."""
        ...


class OutgoingLink(AmqpLink):
    """A link on which the client receives messages.

    Attributes:
        consumer: the core's consumer, set right after the subscription.
        credit: the deliveries that may still be sent.
        delivery_count: those that were sent.
        waiting: deliveries of the core that wait to be sent.
        is_presettled: deliveries are settled when they are sent.
        is_counted: see `ConsumerRequest`.
        is_closed: it gets no more messages.
        message_bytes_max: the largest message that the client accepts; None: any.
        unsettled: the deliveries that the client has not settled, by their numbers.
        durable_name: the name of its durable subscription; None without one.
    """

    __slots__ = (
        "_default_outcome",
        "_is_draining",
        "_is_started",
        "_peer",
        "_sent",
        "_sent_count",
        "_session",
        "_temporary",
        "_unsent",
        "consumer",
        "credit",
        "delivery_count",
        "durable_name",
        "is_closed",
        "is_counted",
        "is_presettled",
        "message_bytes_max",
        "unsettled",
        "waiting",
    )  # fmt: skip

    consumer: ConsumerPort

    def __init__(
        self,
        handle: int,
        name: str,
        session: OutgoingSession,
        peer: AmqpPeer,
        *,
        is_presettled: bool,
        is_counted: bool,
        default_outcome: AmqpDeliveryState | None,
        message_bytes_max: int | None,
        durable_name: str | None,
        temporary: Destination | None,
    ) -> None:
        """Create a link without credit.

        Args:
            handle: its number.
            name: its name.
            session: its session.
            peer: the client's end.
            is_presettled: see the attribute; so for the others.
            is_counted: see the attribute.
            default_outcome: the outcome of deliveries that are settled without one; None: released.
            message_bytes_max: see the attribute.
            durable_name: see the attribute.
            temporary: the temporary destination that was created for it.
        """
        super().__init__(handle, name)
        self._session = session
        self._peer = peer
        self.is_presettled = is_presettled
        self.is_counted = is_counted
        self._default_outcome = default_outcome
        self.message_bytes_max = message_bytes_max
        self.durable_name = durable_name
        self._temporary = temporary
        self.credit = 0
        self.delivery_count = 0
        self.waiting = 0
        self.is_closed = False
        self._is_draining = False
        self._is_started = False
        self.unsettled: dict[int, SentDelivery] = {}
        self._sent: list[Delivery] = []
        """The deliveries that are settled once their bytes have left the process."""
        self._sent_count = 0
        """Their number, if they are only counted."""
        self._unsent: list[tuple[Delivery, str]] = []
        """Deliveries that could not be sent, with the cause."""

    def start(self) -> None:
        """Begin delivery, unless the link has ended already."""
        if not self.is_closed:
            self._is_started = True
            self.consumer.start()
            self.finish_drain()

    # ------------------------------------------------------------ AmqpLink

    def transfer(self, transfer: AmqpTransfer, payload: bytes) -> None:
        """Refuse it: the client is the receiver."""
        raise LinkRefused("A transfer from the receiver of a link", NOT_ALLOWED)

    def flow(self, flow: AmqpFlow) -> None:
        """Have the credit that the client gives; with drain, use it up."""
        if flow.link_credit is not None:
            base = 0 if flow.delivery_count is None else flow.delivery_count
            credit = flow.link_credit - distance(base, self.delivery_count)
            self.credit = min(max(0, credit), _CREDIT_MAX)
            self._is_draining = flow.drain is True
            self.pull()
        if self._is_draining:
            self.finish_drain()
        elif flow.echo:
            self.send_flow()

    def end(self, *, is_closed: bool) -> None:
        """Close the consumer: what the client has not settled goes back. A link that is closed deletes its durable."""
        self.written()  # presettled messages are the client's, as the connection goes on
        self.is_closed = True
        self._session.forget(self)
        connection = self._peer.connection
        self.consumer.close(delivered_none=True)
        if is_closed and self.durable_name is not None:
            connection.when_carried_out(partial(self._delete, self.durable_name))
        if self._temporary is not None:
            remove_temporary(self._peer, self._temporary)

    def abandon(self) -> None:
        """Get no more messages: the core closes the consumer."""
        self.is_closed = True
        self.unsettled = {}
        self._sent = []
        self._unsent = []

    def _delete(self, name: str) -> None:
        connection = self._peer.connection
        try:
            connection.unsubscribe(connection.client_id, name)
        except RequestError as error:
            _log.warning("%s: its subscription %s remains: %s", connection.client_id, name, error)

    # ------------------------------------------------------------ to the client

    def deliver(self, delivery: Delivery, /) -> None:
        """Send a delivery of the core, or have it wait for the session's window."""
        self._session.deliver(self, delivery)

    def note_sent(self, delivery: Delivery) -> None:
        """Settle a delivery once its bytes have left the process."""
        if self.is_counted:
            self._sent_count += 1
        else:
            self._sent.append(delivery)

    def written(self) -> None:
        """Settle the deliveries whose bytes have left the process."""
        if self.is_closed:
            return
        if self._sent_count:
            count, self._sent_count = self._sent_count, 0
            self.consumer.acknowledge_oldest(count)
        if self._sent:
            sent, self._sent = self._sent, []
            self.consumer.acknowledge_all(sent)

    def give_up(self, delivery: Delivery, error: Exception) -> None:
        """Have a delivery that cannot be sent rejected outside of this call of the core."""
        message = delivery.message
        _log.log(
            logging.INFO if isinstance(error, BrokerError) else logging.ERROR,
            "message %s of %s cannot be sent to an AMQP client: %s",
            message.message_id, message.destination, error, exc_info=unexpected(error),
        )  # fmt: skip
        self._unsent.append((delivery, f"the message cannot be sent to an AMQP client: {error}"))
        self._peer.wake(0.0)

    def settle_unsent(self) -> None:
        """Reject the deliveries that could not be sent; their credit is still the client's."""
        if not self._unsent or self.is_closed:
            return
        unsent, self._unsent = self._unsent, []
        for delivery, cause in unsent:
            if self.is_counted:
                self.consumer.acknowledge_oldest(1)
            else:
                self.consumer.reject(delivery, cause)
        self.pull()

    def pull(self) -> None:
        """Have the core deliver as many messages as there is credit for, unless the session is suspended."""
        if not self._session.is_suspended:
            self.consumer.pull(max(0, self.credit - self.waiting))

    def send_flow(self) -> None:
        """Send the state of the link."""
        self._session.send_flow(self.handle, self.delivery_count, self.credit)

    def finish_drain(self) -> None:
        """Give back the credit for which there are no messages; later, if some may still come."""
        if not self._is_draining or not self._is_started:
            return
        if self.credit:
            # The end of these is an event, after which the session asks again.
            is_held = self._peer.is_held or self._session.is_suspended or self.waiting > 0 or bool(self._unsent)
            if is_held or self.consumer.is_searching:
                self._session.draining[self] = None
                if not is_held:
                    self._peer.wake(_DRAIN_SECONDS)
                return
        self._session.draining.pop(self, None)
        self._is_draining = False
        self.consumer.pull(0)
        self.delivery_count = add(self.delivery_count, self.credit)
        self.credit = 0
        self._session.send_flow(self.handle, self.delivery_count, 0, drain=True)

    # ------------------------------------------------------------ outcomes

    def acknowledge_in(self, sent: SentDelivery) -> None:
        """Acknowledge a delivery in its transaction. Raises `RequestError`."""
        if sent.transaction is not None:
            self.consumer.acknowledge(sent.delivery, sent.transaction.transaction_id)

    def settle(self, deliveries: Sequence[Delivery], outcome: AmqpDeliveryState | None) -> None:
        """Settle deliveries with an outcome; None: the default outcome of the source."""
        if self.is_closed:
            return
        consumer = self.consumer
        match outcome if outcome is not None else self._default_outcome:
            case AmqpAccepted():
                consumer.acknowledge_all(deliveries)
            case AmqpRejected() as rejected:
                consumer.reject_all(deliveries, _cause(rejected))
            case AmqpModified() as modified:
                has_failed, is_excluded = bool(modified.delivery_failed), bool(modified.undeliverable_here)
                consumer.release(deliveries, has_failed=has_failed, is_excluded=is_excluded)
            case _:
                consumer.release(deliveries)

    def return_failed(self, deliveries: Sequence[Delivery]) -> None:
        """Return deliveries to their backlogs, as redelivered."""
        self.consumer.release(deliveries, has_failed=True)


def _cause(rejected: AmqpRejected) -> str:
    error = rejected.error
    if error is None:
        return "the AMQP client rejects it"
    return f"the AMQP client rejects it: {error.condition} {error.description or ''}".rstrip()[:1000]
