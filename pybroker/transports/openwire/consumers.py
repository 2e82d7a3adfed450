"""A consumer of an OpenWire connection: its deliveries, its acknowledgements, its pulls.

A delivery is a MessageDispatch around the message's stored bytes:

```text
i32 size | u8 21 | i32 0 | u8 0 | consumer id | destination | u8 1 | stored message | i32 redelivery counter
```

So it is for peers that speak loose, uncached OpenWire of version 10 to 12; for others the message is encoded again.
A dispatch without a message ends a browse, or a pull that found nothing. Source: OpenWire, `MessageDispatch`,
`MessageAck`, `MessagePull`; ActiveMQ 5.17's client and broker for the meaning of acknowledgements.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from pybroker.broker.domain.big_endian import INT, LONG
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import RequestError, TransactionError
from pybroker.broker.domain.message import BodilessMessage, Message
from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.commands import AckType, ConsumerInfo, MessageDispatch
from pybroker.broker.domain.openwire.heads import read_head
from pybroker.broker.domain.openwire.layout import BODY_AT, HEAD
from pybroker.broker.domain.openwire.loose import Reader
from pybroker.broker.domain.openwire.marshal.transcode import from_store
from pybroker.broker.domain.ports import ConnectionPort, ConsumerPort
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.transports.openwire.arrivals import Acknowledgement
from pybroker.transports.openwire.faults import UnmatchedAck
from pybroker.transports.openwire.peer import Peer

_log = logging.getLogger(__name__)

_pack: Final = INT.pack

_COPY_BYTES_MAX: Final = 16 << 10
"""The limit up to which a message is copied into its frame; a longer one is shared by the frames of all consumers."""

_DISPATCH: Final = HEAD.pack(MessageDispatch.DATA_TYPE, 0, False)
"""A command head that requires no response."""

_NOT_REDELIVERED: Final = _pack(0)

_RANGES: Final = frozenset((AckType.STANDARD, AckType.UNMATCHED))
_MAKING_SPACE: Final = _RANGES | {AckType.INDIVIDUAL, AckType.POISON, AckType.EXPIRED}

_STEP_COUNT: Final = 16
"""The outstanding messages that are looked at in one step."""

_DECODING_COST: Final = 2
"""Reading the number of a message takes as long as so many usual operations."""

_HEADS_MAX: Final = 128
"""The limit to the destinations that a consumer of a pattern caches."""

_HEAD_BYTES_MAX: Final = 200
"""The limit to the bytes that are cached for one: names may have a thousand characters, and consumers be hundreds."""

OnUnencodable = Callable[["OpenWireConsumer", Delivery, Exception], None]
"""Called with a delivery that cannot be encoded for the peer, and the error."""


class OpenWireConsumer:
    """A consumer of an OpenWire connection.

    Attributes:
        consumer_id: its id.
        is_counted: see `ConsumerRequest`.
        pull_deadline: the time, by the link's clock, at which a pull times out; None without a pull.
    """

    __slots__ = (
        "_core",
        "_destination",
        "_head",
        "_heads",
        "_is_browser",
        "_is_durable",
        "_is_unmatched",
        "_length",
        "_on_unencodable",
        "_peer",
        "_pulling",
        "_unmatched",
        "_write",
        "consumer_id",
        "is_counted",
        "pull_deadline",
    )

    def __init__(
        self,
        info: ConsumerInfo,
        request: ConsumerRequest,
        connection: ConnectionPort,
        peer: Peer,
        on_unencodable: OnUnencodable,
    ) -> None:
        """Subscribe; deliveries begin at `start`.

        Args:
            info: the client's request.
            request: the same in the broker's terms.
            connection: the client's connection.
            peer: gets the messages.
            on_unencodable: called during a dispatch; must reject the delivery later, by `give_up`.

        Raises:
            RequestError: the broker refuses the consumer.
        """
        self.consumer_id = info.consumer_id  # the rest may have megabytes, of paths through brokers
        self._is_browser = info.browser
        self.pull_deadline: float | None = None
        self.is_counted = request.is_counted
        self._is_durable = request.subscription_name is not None
        self._on_unencodable = on_unencodable
        self._peer = peer
        self._write = peer.write
        self._pulling = False
        self._is_unmatched = False
        self._unmatched: Delivery | None = None
        self._heads: dict[Destination, bytes] = {}
        self._destination: Destination | None = None
        self._length = -1
        self._head = b""
        deliver = self._deliver if peer.is_verbatim else self._deliver_encoded
        self._core: ConsumerPort = connection.subscribe(request, deliver, self._end_of_browse)

    def start(self) -> None:
        """Begin delivery."""
        self._core.start()

    def set_prefetch(self, prefetch: int) -> None:
        """Change the prefetch limit."""
        self._core.set_prefetch(max(prefetch, 0))

    def closing(self, last_delivered: int) -> Iterator[int]:
        """Close the consumer, in steps that yield their costs: the last delivered message is looked for in many.

        Args:
            last_delivered: the broker sequence of the last message that the application received; -1 for none, -2 for
                unknown. On a queue, if no outstanding message has this number, none of them was received; of a durable
                subscription, all up to the number were received, and 0 means unknown too.
        """
        self.pull_deadline = None
        if last_delivered < -1 or (self._is_durable and last_delivered == 0):
            yield from self._core.closing()
            return
        seen: Delivery | None = None
        if last_delivered >= 0:
            self._core.set_prefetch(0)  # nothing is delivered between two steps
            deliveries = list(self._core.unsettled())
            find = _last_up_to if self._is_durable else _last_is
            for start in range(0, len(deliveries), _STEP_COUNT):
                seen = find(deliveries[start : start + _STEP_COUNT], last_delivered) or seen
                if seen is not None and not self._is_durable:
                    break
                yield _STEP_COUNT * _DECODING_COST
        yield from self._core.closing(seen, delivered_none=seen is None)

    def close_unmatched(self) -> None:
        """Close the consumer if an acknowledgement did not match: the client had received no more than it acknowledged.

        Otherwise all that it was sent ahead would count as delivered each time that it must reconnect.
        """
        if self._is_unmatched:
            self._core.close(self._unmatched, delivered_none=self._unmatched is None)

    def give_up(self, delivery: Delivery, cause: str) -> None:
        """Reject a delivery that could not be sent; a browser skips it."""
        if self._is_browser:
            self._core.acknowledge(delivery)
        else:
            self._core.reject(delivery, cause)

    # ------------------------------------------------------------ pulls

    def pull(self, timeout_ms: int, now: float) -> None:
        """Deliver one message, at once or when one arrives.

        Args:
            timeout_ms: the time-out; 0 for no limit, negative for none.
            now: the time by the link's clock.
        """
        self._pulling = True
        self.pull_deadline = None
        self._core.pull()
        if not self._pulling:
            return
        if timeout_ms < 0:
            self.end_pull()
        elif timeout_ms > 0:
            self.pull_deadline = now + timeout_ms / 1000

    def end_pull(self) -> None:
        """End a pull without a message."""
        self.pull_deadline = None
        self._pulling = False
        self._core.pull(0)
        self._dispatch_nothing()

    # ------------------------------------------------------------ acknowledgements

    def acknowledge(self, ack: Acknowledgement) -> None:
        """Carry out an acknowledgement.

        Raises:
            RequestError: it is not valid. A late one, as after a failover, is ignored.
        """
        if ack.type == AckType.POISON and ack.transaction is not None:
            raise TransactionError("Poison ack cannot be transacted: " + str(ack.last_id))
        if ack.type == AckType.RELEASED and ack.transaction is not None:
            raise TransactionError(f"A release cannot be transacted: {ack.last_id}")
        if ack.type == AckType.DELIVERED:
            self._core.grant(ack.message_count)
        elif self.is_counted:
            self._settle_counted(ack)
        elif ack.type in _RANGES:
            self._settle(ack)
        elif ack.type == AckType.INDIVIDUAL:
            self._settle(ack._replace(first_id=ack.last_id, message_count=1))
        elif ack.type == AckType.POISON:
            self._core.reject_all(self._range(ack), ack.cause or "The client rejected it without a cause")
        elif ack.type == AckType.EXPIRED:
            self._core.expire_all(self._range(ack))
        elif ack.type == AckType.RELEASED:
            released = self._range(ack._replace(first_id=ack.last_id, message_count=1))
            self._core.release(released, has_failed=ack.message_count > 0)
        elif ack.type != AckType.REDELIVERED:
            raise RequestError(f"Unknown acknowledgement type {ack.type}")

    def acknowledge_each(self, message_ids: Sequence[str]) -> None:
        """Acknowledge messages one by one, outside of a transaction."""
        for message_id in self._core.acknowledge_each(
            message_ids
        ):  # late: the message is back in its queue, as after a failover
            _log.debug("%s acknowledged %s, which it does not hold", self.consumer_id, message_id)

    def _settle_counted(self, ack: Acknowledgement) -> None:
        """Settle as many deliveries as the client says: of which messages they are makes no difference."""
        if ack.type == AckType.POISON and self._is_browser:
            raise RequestError("Cannot Nack a message on a Queue Browser Subscription.")
        if ack.type in _MAKING_SPACE:
            count = 1 if ack.type == AckType.INDIVIDUAL else max(1, ack.message_count)
            is_transacted = ack.type != AckType.EXPIRED
            self._core.acknowledge_oldest(count, ack.transaction if is_transacted else None)
        elif ack.type != AckType.REDELIVERED:
            raise RequestError(f"Unknown acknowledgement type {ack.type}")

    def _settle(self, ack: Acknowledgement) -> None:
        deliveries = self._range(ack)
        # After a failover a client may acknowledge messages that went to another consumer, which must fail; or a range
        # that now includes messages which it has not received yet.
        if deliveries and (ack.transaction is None or len(deliveries) == ack.message_count):
            self._core.acknowledge_all(deliveries, ack.transaction)
        elif ack.transaction is not None:
            held = () if ack.last_id is None else self._core.outstanding_through(None, ack.last_id)
            self._is_unmatched = True
            self._unmatched = held[-1] if held else self._unmatched
            raise UnmatchedAck(
                f"Unmatched acknowledge: consumer {self.consumer_id} acknowledges {ack.message_count} messages up "
                f"to {ack.last_id}, where {len(deliveries)} are outstanding"
            )
        else:
            _log.debug("%s acknowledged %s, which it does not hold", self.consumer_id, ack.last_id)

    def _range(self, ack: Acknowledgement) -> Sequence[Delivery]:
        return () if ack.last_id is None else self._core.outstanding_through(ack.first_id, ack.last_id)

    # ------------------------------------------------------------ deliveries

    def _deliver(self, delivery: Delivery) -> None:
        """Send a message in its stored bytes."""
        self._pulling = False
        self.pull_deadline = None
        message = delivery.message
        data = message.data
        if len(data) != self._length or message.destination is not self._destination:
            self._prepare(message.destination, len(data))
        count = delivery.redelivery_count
        counter = _pack(count) if count else _NOT_REDELIVERED
        if len(data) < _COPY_BYTES_MAX:
            self._write(b"".join((self._head, data, counter)))
        else:
            self._write(self._head)
            self._write(data)
            self._write(counter)

    def _prepare(self, destination: Destination, length: int) -> None:
        """Build the bytes before messages of a destination and length; the next messages are mostly alike."""
        head = self._heads.get(destination)
        if head is None:
            consumer_id, named = ids.consumer_id(self.consumer_id), ids.destination(destination)
            head = b"".join((_DISPATCH, consumer_id, named, b"\x01"))
            if len(head) <= _HEAD_BYTES_MAX:
                if len(self._heads) >= _HEADS_MAX:
                    self._heads.clear()
                self._heads[destination] = head
        self._destination, self._length = destination, length
        self._head = _pack(len(head) + length + len(_NOT_REDELIVERED)) + head

    def _deliver_encoded(self, delivery: Delivery) -> None:
        """Send a message to a peer that needs another encoding than the store's.

        An error concerns this message only, not the client whose command is being carried out.
        """
        try:
            dispatch = MessageDispatch(
                consumer_id=self.consumer_id,
                destination=delivery.message.destination,
                message=from_store(delivery.message.data),
                redelivery_counter=delivery.redelivery_count,
            )
            self._peer.send(dispatch)
        except Exception as error:  # of any kind, it concerns this message: the link only queues bytes
            self._on_unencodable(self, delivery, error)
        else:
            self._pulling = False
            self.pull_deadline = None

    def _end_of_browse(self) -> None:
        self._dispatch_nothing()

    def _dispatch_nothing(self) -> None:
        self._peer.send(MessageDispatch(consumer_id=self.consumer_id))


def _last_is(deliveries: Iterable[Delivery], number: int) -> Delivery | None:
    """Return the delivery with that broker sequence."""
    raw = LONG.pack(number)  # excludes most messages without decoding them
    return next(
        (each for each in deliveries if _may_have(each.message, raw) and _broker_sequence(each) == number), None
    )


def _last_up_to(deliveries: Iterable[Delivery], number: int) -> Delivery | None:
    """Return the last delivery with at most that broker sequence."""
    found = None
    for each in deliveries:
        if _broker_sequence(each) <= number:
            found = each
    return found


def _may_have(message: Message, raw: bytes) -> bool:
    return raw in message.data or isinstance(message, BodilessMessage)


def _broker_sequence(delivery: Delivery) -> int:
    """Return the broker sequence of a message; see `BrokerPort.next_sequence`."""
    message = delivery.message
    if isinstance(message, BodilessMessage):
        return message.broker_sequence
    message_id = read_head(Reader(message.data, BODY_AT)).message_id
    return -1 if message_id is None else message_id.broker_sequence_id
