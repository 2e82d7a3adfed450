"""A SUBSCRIBE's life: its options, how its deliveries go out, and how they are acknowledged.

Source: STOMP 1.2, "SUBSCRIBE"; ActiveMQ 5.17 for `activemq.*` options, browsers and what `ack` means:

```text
ack:auto (also any unknown value)   settled when the bytes have left the process
ack:client                          the client acknowledges; all earlier ones of the subscription with it
ack:client-individual               the client acknowledges one by one
```
"""

import enum
import logging
from collections.abc import Callable, Mapping

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination, parts_to_consume
from pybroker.broker.domain.stomp.frames import Version, shortened
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.broker.domain.transaction import TransactionId
from pybroker.transports.stomp.acknowledgements import Taken, Unacknowledged
from pybroker.transports.stomp.mapping import MessageWriter
from pybroker.transports.stomp.outbox import Outbox, Recipient

_log = logging.getLogger(__name__)

_BYTE = (-128, 127)
_INTEGER = (0, 2**31 - 1)

STRING_NUMBERS_PREFIX = "convert_string_expressions:"
"""Tells a selector to compare text with numbers: STOMP headers become text properties, whatever they look like."""


class StompAckMode(enum.StrEnum):
    """Who acknowledges, and how much at a time."""

    AUTO = "auto"
    CLIENT = "client"
    CLIENT_INDIVIDUAL = "client-individual"


def ack_mode(headers: Mapping[str, str]) -> StompAckMode:
    """Return the mode that is asked for; anything unknown means `auto`, as in ActiveMQ."""
    try:
        return StompAckMode(headers.get("ack", StompAckMode.AUTO))
    except ValueError:
        return StompAckMode.AUTO


def consumer_request(headers: Mapping[str, str], destination: Destination) -> ConsumerRequest:
    """Return what a SUBSCRIBE asks for. An option that cannot be read is logged and left out, as ActiveMQ does."""
    first, *others = parts_to_consume(destination)
    return ConsumerRequest(
        destination=first,
        composite=tuple(others),
        prefetch=_number(headers, "activemq.prefetchSize", _INTEGER),
        selector=_selector(headers),
        subscription_name=headers.get("activemq.subscriptionName"),
        no_local=_flag(headers, "activemq.noLocal"),
        browser=headers.get("browser") == "true" or _flag(headers, "activemq.browser"),
        exclusive=_flag(headers, "activemq.exclusive"),
        priority=_number(headers, "activemq.priority", _BYTE) or 0,
        retroactive=_flag(headers, "activemq.retroactive"),
        pending_limit=_number(headers, "activemq.maximumPendingMessageLimit", _INTEGER),
    )


def _selector(headers: Mapping[str, str]) -> str | None:
    exact = headers.get("activemq.selector", "")
    lenient = headers.get("selector", "")
    if exact.strip():
        return exact
    return STRING_NUMBERS_PREFIX + lenient if lenient.strip() else None


def _flag(headers: Mapping[str, str], name: str) -> bool:
    return headers.get(name, "").strip().lower() == "true"


def _number(headers: Mapping[str, str], name: str, bounds: tuple[int, int]) -> int | None:
    text = headers.get(name)
    if text is None:
        return None
    digits = text.strip()
    if digits.isascii() and digits.removeprefix("-").isdigit() and len(digits) < 12:
        number = int(digits)
        if bounds[0] <= number <= bounds[1]:
            return number
    _log.warning("SUBSCRIBE header %s:%s left out: expected an integer from %d to %d", name, shortened(text), *bounds)
    return None


class StompSubscription(Recipient):
    """One consumer of a connection, between the core that delivers and the client that acknowledges.

    Attributes:
        serial: its number in the connection, from 1.
        client_id: the client's own id for it; None if it gave none (1.0 only).
        destination_text: what SUBSCRIBE named, the other way to end it in 1.0.
        unacknowledged: what the client has still to acknowledge; always empty in mode auto.
    """

    __slots__ = (
        "_ack_prefix",
        "_cumulative",
        "_outbox",
        "_unwritable",
        "_writer",
        "client_id",
        "destination_text",
        "is_browser",
        "mode",
        "serial",
        "unacknowledged",
    )

    def __init__(
        self,
        *,
        serial: int,
        headers: Mapping[str, str],
        is_browser: bool,
        version: Version,
        connection_id: str,
        writer: MessageWriter,
        outbox: Outbox,
        unwritable: Callable[["StompSubscription", Delivery, Exception], None],
    ) -> None:
        """Prepare to deliver.

        Args:
            serial: see the attribute.
            headers: of SUBSCRIBE.
            is_browser: looks only.
            version: of the conversation.
            connection_id: begins the ids in 1.2's `ack` headers.
            writer: renders messages for this subscription.
            outbox: takes finished frames.
            unwritable: is told of a message that cannot be rendered.
        """
        super().__init__()
        self.serial = serial
        self.client_id = headers.get("id")
        self.destination_text = headers.get("destination", "")
        self.mode = ack_mode(headers)
        self.is_browser = is_browser
        self.unacknowledged = Unacknowledged(by_message_id=version is not Version.V1_2)
        self._cumulative = self.mode is StompAckMode.CLIENT
        self._ack_prefix = f"{connection_id}:{serial}:" if version is Version.V1_2 else None
        self._writer = writer
        self._outbox = outbox
        self._unwritable = unwritable

    @property
    def deliver(self) -> Callable[[Delivery], None]:
        """What the core calls for each message."""
        return self._deliver_auto if self.mode is StompAckMode.AUTO else self._deliver_tracked

    def _deliver_auto(self, delivery: Delivery, /) -> None:
        try:
            frame = self._writer.write(delivery)
        except Exception as error:  # whatever it is, it is of this message: nothing else is touched here
            self._unwritable(self, delivery, error)
            return
        self._outbox.message(frame, self, delivery)

    def _deliver_tracked(self, delivery: Delivery, /) -> None:
        serial = self.unacknowledged.add(delivery)
        ack = None if self._ack_prefix is None else f"{self._ack_prefix}{serial}"
        try:
            frame = self._writer.write(delivery, ack)
        except Exception as error:  # as above
            self.unacknowledged.take(serial)
            self._unwritable(self, delivery, error)
            return
        self._outbox.message(frame, self)

    def browsed(self) -> None:
        """Tell the client that a browsed queue's end is reached."""
        self._outbox.message(self._writer.end_of_browsing(self.destination_text.strip()), self)

    def acknowledge(self, serial: int, transaction: TransactionId | None) -> list[Taken]:
        """Acknowledge a delivery, in mode client with all earlier ones.

        Returns:
            What was taken out for it, to be put back if the transaction is aborted; empty when nothing of that
            number waits.
        """
        if not self._cumulative:
            taken = self.unacknowledged.take(serial)
            if taken is None:
                return []
            self.consumer.acknowledge(taken.delivery, transaction)
            return [taken]
        all_taken = self.unacknowledged.take_through(serial)
        if all_taken:
            self.consumer.acknowledge_through(all_taken[-1].delivery, transaction)
        return all_taken

    def reject(self, serial: int) -> bool:
        """Give one delivery up; False when nothing of that number waits."""
        taken = self.unacknowledged.take(serial)
        if taken is None:
            return False
        self.consumer.reject(taken.delivery, "NACK of a STOMP client")
        return True

    def give_up(self, delivery: Delivery, cause: str) -> None:
        """Let go of a delivery that could not be sent. A browser only looks: it leaves the message where it is."""
        if self.closed:
            return
        if self.is_browser:
            self.consumer.acknowledge(delivery)
        else:
            self.consumer.reject(delivery, cause)

    def start(self) -> None:
        """Begin to deliver, unless the client has ended it already."""
        if not self.closed:
            self.consumer.start()

    def close(self) -> None:
        """End it; what is unacknowledged goes back to the core."""
        self.closed = True
        self._outbox.sent.pop(self, None)
        self.consumer.close()
