"""A STOMP subscription: the options of SUBSCRIBE, its deliveries, and its acknowledgements.

Source: STOMP 1.2, "SUBSCRIBE"; ActiveMQ 5.17 for `activemq.*` options, browsers and `ack`:

```text
ack:auto (also any unknown value)   acknowledged when the bytes have left the process
ack:client                          acknowledged by the client, with all earlier ones of the subscription
ack:client-individual               acknowledged by the client, one by one
```
"""

import enum
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination, parts_to_consume
from pybroker.broker.domain.errors import RequestError
from pybroker.broker.domain.stomp.frames import Version, shortened
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.broker.domain.transaction import TransactionId
from pybroker.transports.stomp.acknowledgements import KeptDeliveries, Taken, Unacknowledged
from pybroker.transports.stomp.counted_deliveries import CountedDeliveries, tracked_bytes, window_max
from pybroker.transports.stomp.mapping import MessageWriter, SlowBody
from pybroker.transports.stomp.outbox import MessageSlot, Outbox, Recipient

_log = logging.getLogger(__name__)

_BYTE = (-128, 127)
_INTEGER = (0, 2**31 - 1)

STRING_NUMBERS_PREFIX = "convert_string_expressions:"
"""The prefix of a selector that compares text with numbers, because all STOMP headers become text properties."""


class StompAckMode(enum.StrEnum):
    """The `ack` header of SUBSCRIBE."""

    AUTO = "auto"
    CLIENT = "client"
    CLIENT_INDIVIDUAL = "client-individual"


def ack_mode(headers: Mapping[str, str]) -> StompAckMode:
    """Return the acknowledgement mode; an unknown one means `auto`, as in ActiveMQ."""
    try:
        return StompAckMode(headers.get("ack", StompAckMode.AUTO))
    except ValueError:
        return StompAckMode.AUTO


def consumer_request(headers: Mapping[str, str], destination: Destination, version: Version) -> ConsumerRequest:
    """Return the request of a SUBSCRIBE. An option that cannot be read is logged and left out, as in ActiveMQ."""
    first, *others = parts_to_consume(destination)
    request = ConsumerRequest(
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
    if not request.is_counted or ack_mode(headers) is StompAckMode.AUTO:
        return request
    by_message_id = version is not Version.V1_2
    return replace(
        request,
        tracked_bytes=tracked_bytes(by_message_id=by_message_id),
        window_max=window_max(by_message_id=by_message_id),
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
    """A subscription of a STOMP connection; forwards deliveries and acknowledgements.

    Attributes:
        serial: its number in the connection, from 1.
        client_id: the client's id for it; None without one (1.0 only).
        destination_text: the destination of SUBSCRIBE, by which UNSUBSCRIBE may name it in 1.0.
        unacknowledged: the unacknowledged deliveries; always empty in mode auto.
    """

    __slots__ = (
        "_ack_prefix",
        "_cumulative",
        "_in_thread",
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
        is_counted: bool,
        version: Version,
        connection_id: str,
        writer: MessageWriter,
        outbox: Outbox,
        unwritable: Callable[["StompSubscription", Delivery, Exception], None],
        in_thread: Callable[[Callable[[], None], Callable[[], None]], None],
    ) -> None:
        """Create a subscription; the core's consumer is set later.

        Args:
            serial: see the attribute.
            headers: the headers of SUBSCRIBE.
            is_browser: True for a queue browser.
            is_counted: see `ConsumerRequest`.
            version: the STOMP version.
            connection_id: the first part of 1.2's `ack` headers.
            writer: renders messages for this subscription.
            outbox: queues frames.
            unwritable: called with a message that cannot be rendered.
            in_thread: runs a function in a thread, then another one here.
        """
        super().__init__()
        self.serial = serial
        self.client_id = headers.get("id")
        self.destination_text = headers.get("destination", "")
        self.mode = ack_mode(headers)
        self.is_browser = is_browser
        kind = CountedDeliveries if is_counted else KeptDeliveries
        self.unacknowledged: Unacknowledged = kind(by_message_id=version is not Version.V1_2)
        self._cumulative = self.mode is StompAckMode.CLIENT
        self._ack_prefix = f"{connection_id}:{serial}:" if version is Version.V1_2 else None
        self._writer = writer
        self._outbox = outbox
        self._unwritable = unwritable
        self._in_thread = in_thread

    @property
    def deliver(self) -> Callable[[Delivery], None]:
        """The core's callback for each message."""
        return self._deliver_auto if self.mode is StompAckMode.AUTO else self._deliver_tracked

    def _deliver_auto(self, delivery: Delivery, /) -> None:
        try:
            frame = self._writer.write(delivery)
        except Exception as error:  # of any kind, it concerns this message: only that is used here
            self._unwritable(self, delivery, error)
            return
        if isinstance(frame, bytes):
            self._outbox.message(frame, self, delivery)
        else:
            self._outbox.reserve_message(self, delivery, partial(self._render, delivery, frame, None, 0))

    def _deliver_tracked(self, delivery: Delivery, /) -> None:
        serial = self.unacknowledged.add(delivery)
        ack = None if self._ack_prefix is None else f"{self._ack_prefix}{serial}"
        try:
            frame = self._writer.write(delivery, ack)
        except Exception as error:  # as above
            self.unacknowledged.take(serial)
            self._unwritable(self, delivery, error)
            return
        if isinstance(frame, bytes):
            self._outbox.message(frame, self)
        else:
            self._outbox.reserve_message(self, None, partial(self._render, delivery, frame, ack, serial))

    def _render(self, delivery: Delivery, body: SlowBody, ack: str | None, serial: int, slot: MessageSlot) -> None:
        """Render a body in a thread, and then write the message; `serial` is its number if it is tracked."""

        def done() -> None:
            pieces: tuple[bytes, ...] = ()
            if not self.closed:
                try:
                    pieces = self._writer.write_rendered(delivery, body, ack)
                except Exception as error:  # as above
                    if serial:
                        self.unacknowledged.take(serial)
                    self._unwritable(self, delivery, error)
            self._outbox.complete(slot, pieces)

        self._in_thread(body.render, done)

    def browsed(self) -> None:
        """Send the end of a browsed queue."""
        self._outbox.message(self._writer.end_of_browsing(self.destination_text.strip()), self)

    def acknowledge(self, serial: int, transaction: TransactionId | None) -> Taken | None:
        """Acknowledge a delivery, in mode client with all earlier ones.

        Returns:
            The removed deliveries, to be put back if the transaction is aborted; None if there is none of that number.
        """
        there = self.unacknowledged
        taken = there.take_through(serial) if self._cumulative else there.take(serial)
        if taken is not None:
            try:
                taken.acknowledge(self.consumer, transaction)
            except RequestError:  # refused: it may be acknowledged again
                for _ in self.putting_back(taken):
                    pass
                raise
        return taken

    def putting_back(self, taken: Taken) -> Iterator[int]:
        """Return the steps that have the client acknowledge deliveries again."""
        yield from self.unacknowledged.put_back(taken)
        if taken.forgotten:  # or these would take space in the window for ever
            self.consumer.acknowledge_oldest(taken.forgotten)

    def reject(self, serial: int) -> bool:
        """Reject one delivery; False if there is none of that number."""
        taken = self.unacknowledged.take(serial)
        if taken is None:
            return False
        taken.reject(self.consumer, "NACK of a STOMP client")
        return True

    def give_up(self, delivery: Delivery, cause: str) -> None:
        """Reject a delivery that could not be sent; a browser skips it."""
        if self.closed:
            return
        if self.is_browser:
            self.consumer.acknowledge(delivery)
        else:
            self.consumer.reject(delivery, cause)

    def start(self) -> None:
        """Begin delivery, unless the client has unsubscribed already."""
        if not self.closed:
            self.consumer.start()

    def close(self) -> None:
        """Close it; unacknowledged messages go back to the core."""
        self.closed = True
        self._outbox.sent.pop(self, None)
        self.consumer.close()
