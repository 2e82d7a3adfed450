"""The deliveries to one MQTT client: packet identifiers, the window, and the acknowledgements of the client.

Source: MQTT 5.0, 4.3 "Quality of Service levels", 4.4 "Message delivery retry", 4.9 "Flow Control".

```text
QoS 0   PUBLISH                                            acknowledged when the bytes have left the process
QoS 1   PUBLISH, PUBACK                                    acknowledged by PUBACK
QoS 2   PUBLISH, PUBREC, PUBREL, PUBCOMP                   acknowledged by PUBCOMP
```

At most `window` packets are unanswered. The core is paused then: it removes the bodies of messages that it has
delivered when memory is short, so none should wait here. The few that come all the same wait for space.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.errors import unexpected
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.mqtt.codec import encode_acknowledgement, encode_publish
from pybroker.broker.domain.mqtt.errors import PacketTooLarge
from pybroker.broker.domain.mqtt.packets import LEVEL_5, AcknowledgementPacket, PacketType
from pybroker.broker.domain.mqtt.reason_codes import ReasonCode
from pybroker.broker.domain.mqtt.topics import InvalidTopic
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.ports import ConsumerPort
from pybroker.transports.mqtt.mapping import PublishWriter, RenderedPublish
from pybroker.transports.mqtt.session_state import PACKET_ID_MAX, REMEMBERED_MAX, DeliveryKey, Remembered, SessionState
from pybroker.transports.mqtt.topic_aliases import Alias, TopicAliases

_log = logging.getLogger(__name__)

_FAILURE: Final = 0x80
_WINDOW_MAX: Final = PACKET_ID_MAX - REMEMBERED_MAX
"""So many packets may be unanswered that a packet identifier is left, whatever the session remembers."""

RELEASED_AT_ONCE: Final = 256
"""Packet identifiers of a former master that are released together: the windows of two durable subscriptions."""

_NO_TOPIC: Final = b"\0\0"


class MqttRecipient:
    """A subscription, as its deliveries see it.

    Attributes:
        filter: its topic filter.
        qos: the highest QoS of its deliveries.
        identifier: its subscription identifier of MQTT 5; None without one.
        retain_as_published: deliveries keep the retain flag of their PUBLISH.
        is_counted: see `ConsumerRequest`.
        is_remembered: unacknowledged deliveries come again with their packet identifiers if the client comes back.
        leaves_out_reserved: see `ConsumerRequest`; a durable subscription covers topics that begin with `$`, too.
        is_closed: True if it gets no more messages.
        consumer: the core's consumer, set right after the subscription.
        sent: the deliveries with QoS 0 that were written and are not acknowledged yet, or their number.
    """

    __slots__ = (
        "consumer", "filter", "identifier", "is_closed", "is_counted", "is_remembered", "leaves_out_reserved", "qos",
        "retain_as_published", "sent", "sent_count",
    )  # fmt: skip

    consumer: ConsumerPort

    def __init__(
        self,
        text: str,
        qos: int,
        *,
        identifier: int | None,
        retain_as_published: bool,
        is_counted: bool,
        leaves_out_reserved: bool,
    ) -> None:
        self.filter = text
        self.qos = qos
        self.identifier = identifier
        self.retain_as_published = retain_as_published
        self.is_counted = is_counted
        self.is_remembered = not is_counted
        self.leaves_out_reserved = leaves_out_reserved
        self.is_closed = False
        self.sent: list[Delivery] = []
        self.sent_count = 0

    def acknowledge(self, delivery: Delivery | None) -> None:
        """Acknowledge a delivery; None: one that is only counted."""
        if self.is_closed:
            return
        if delivery is None or self.is_counted:
            self.consumer.acknowledge_oldest(1)
        else:
            self.consumer.acknowledge(delivery)

    def reject(self, delivery: Delivery | None, cause: str) -> None:
        """Reject a delivery; one that is only counted is acknowledged."""
        if delivery is None or self.is_counted or self.is_closed:
            self.acknowledge(delivery)
        else:
            self.consumer.reject(delivery, cause)

    def acknowledge_sent(self) -> None:
        """Acknowledge the deliveries with QoS 0, whose bytes have left the process."""
        count, self.sent_count = self.sent_count, 0
        sent, self.sent = self.sent, []
        if self.is_closed:
            return
        if count:
            self.consumer.acknowledge_oldest(count)
        if sent:
            self.consumer.acknowledge_all(sent)


class _InFlight:
    """A PUBLISH that the client has not answered completely.

    Attributes:
        recipient: its subscription.
        delivery: the delivery; None if the core only counts it, and keeps no message for it.
        qos: 1 or 2.
        is_released: PUBREL was sent.
    """

    __slots__ = ("delivery", "is_released", "qos", "recipient")

    def __init__(self, recipient: MqttRecipient, delivery: Delivery, qos: int, *, is_released: bool = False) -> None:
        self.recipient = recipient
        self.delivery = None if recipient.is_counted else delivery
        self.qos = qos
        self.is_released = is_released


class OutgoingDeliveries:
    """The deliveries of one connection."""

    def __init__(
        self,
        *,
        level: int,
        state: SessionState,
        writer: PublishWriter,
        write: Callable[[bytes], None],
        window: int,
        packet_bytes_max: int | None,
        topic_aliases_max: int,
        hold: Callable[[bool], None],
        wake: Callable[[], None],
    ) -> None:
        """Continue with a session's state.

        Args:
            level: the protocol level.
            state: the session's state.
            writer: renders messages.
            write: sends packets.
            window: most packets that may be unanswered, 1 to 65535.
            packet_bytes_max: most bytes of a packet that the client accepts; None: no limit.
            topic_aliases_max: the topic aliases that it accepts.
            hold: pauses the core's deliveries (True), or has them continue.
            wake: has `settle_unsent` called soon, outside of a delivery.
        """
        self._level = level
        self._state = state
        self._writer = writer
        self._write = write
        self._window = min(window, _WINDOW_MAX)
        self._packet_bytes_max = packet_bytes_max
        self._aliases = TopicAliases(topic_aliases_max)
        self._hold = hold
        self._wake = wake
        self._in_flight: dict[int, _InFlight] = {}
        self._reserved = {each.packet_id: key for key, each in state.remembered.items()}
        """The packet identifiers of deliveries that may come again."""
        self._waiting: deque[tuple[MqttRecipient, Delivery]] = deque()
        """Deliveries beyond the window."""
        self._sent: dict[MqttRecipient, None] = {}
        """The subscriptions with deliveries of QoS 0 to acknowledge."""
        self._drains: dict[Callable[[], None], None] = {}
        """Called when there is space in the window again: they deliver what waits for this or another client."""
        self.is_paused = False
        """True while the client reads too slowly."""
        self._releasing: set[int] = set()
        """The packet identifiers of a former master whose PUBCOMP is awaited."""
        self._unsent: list[tuple[MqttRecipient, Delivery, str]] = []
        """Deliveries that are not sent: each with the cause to reject it for; empty: it is acknowledged."""

    # ------------------------------------------------------------ to the client

    def release_remembered(self) -> None:
        """Send PUBREL again for the messages that the client has, and has not confirmed."""
        for each in self._state.remembered.values():
            if each.is_released:
                self._write(encode_acknowledgement(self._level, PacketType.PUBREL, each.packet_id))
        self._release_packet_ids()

    def deliver(self, recipient: MqttRecipient, delivery: Delivery) -> None:
        """Send a delivery, or have it wait for space in the window."""
        if recipient.leaves_out_reserved and self._is_reserved(delivery.message):
            self._settle_later(recipient, delivery, "")
        elif self._waiting or self._is_full():
            self._waiting.append((recipient, delivery))
            self._hold(True)
        else:
            self._send(recipient, delivery)

    def _is_reserved(self, message: Message) -> bool:
        try:
            return self._writer.strategy.is_reserved(message)
        except MalformedOpenWire:
            return False  # it is not sent, and its sending says why

    def _send(self, recipient: MqttRecipient, delivery: Delivery) -> None:
        message = delivery.message
        try:
            made = self._writer.render(message)
            qos = min(recipient.qos, made.qos)
            if qos:
                self._send_tracked(recipient, delivery, made, qos)
            else:
                self._write(self._packet(recipient, message, made, 0, 0, dup=False))
                self._note_sent(recipient, delivery)
        except Exception as error:  # of any kind, it concerns this message: only that is used here
            is_expected = isinstance(error, PacketTooLarge | InvalidTopic)
            _log.log(
                logging.INFO if is_expected else logging.ERROR, "message %s of %s cannot be sent to an MQTT client: %s",
                message.message_id, message.destination, error, exc_info=unexpected(error),
            )  # fmt: skip
            self._settle_later(recipient, delivery, f"the message cannot be sent to an MQTT client: {error}")

    def _settle_later(self, recipient: MqttRecipient, delivery: Delivery, cause: str) -> None:
        """Have a delivery that is not sent settled outside of this call of the core."""
        self._unsent.append((recipient, delivery, cause))
        self._wake()

    def _note_sent(self, recipient: MqttRecipient, delivery: Delivery) -> None:
        self._sent[recipient] = None
        if recipient.is_counted:
            recipient.sent_count += 1
        else:
            recipient.sent.append(delivery)

    def _send_tracked(self, recipient: MqttRecipient, delivery: Delivery, made: RenderedPublish, qos: int) -> None:
        """Send a PUBLISH with QoS 1 or 2: with its former packet identifier, if the session remembers it."""
        remembered = None
        if self._state.remembered or self._state.completed:
            key = DeliveryKey(recipient.filter, delivery.message.message_id)
            if key in self._state.completed:  # until that is settled: the connection may end before
                self._settle_later(recipient, delivery, "")
                return
            remembered = self._state.remembered.pop(key, None)
        if remembered is not None and remembered.is_released:
            self._reserved.pop(remembered.packet_id, None)
            self._in_flight[remembered.packet_id] = _InFlight(recipient, delivery, 2, is_released=True)
            return
        packet_id = self._next_packet_id() if remembered is None else remembered.packet_id
        self._reserved.pop(packet_id, None)
        dup = remembered is not None or delivery.redelivery_count > 0
        packet = self._packet(recipient, delivery.message, made, qos, packet_id, dup=dup)
        self._in_flight[packet_id] = _InFlight(recipient, delivery, qos)
        self._write(packet)
        if self._is_full():
            self._hold(True)
            self._release_packet_ids()

    def _packet(
        self, recipient: MqttRecipient, message: Message, made: RenderedPublish, qos: int, packet_id: int, *, dup: bool
    ) -> bytes:
        """Return a PUBLISH, which must be sent, as it may define a topic alias."""
        alias = self._aliases.find(made.topic) if self._level >= LEVEL_5 else None
        packet = self._encoded(recipient, message, made, qos, packet_id, alias, dup=dup)
        limit = self._packet_bytes_max
        if limit is not None and len(packet) > limit and alias is not None:  # it takes three bytes more
            alias = None
            packet = self._encoded(recipient, message, made, qos, packet_id, None, dup=dup)
        if limit is not None and len(packet) > limit:
            raise PacketTooLarge(f"it takes {len(packet)} bytes, and the client accepts {limit}")
        if alias is not None:
            self._aliases.record(made.topic, alias)
        return packet

    def _encoded(
        self,
        recipient: MqttRecipient,
        message: Message,
        made: RenderedPublish,
        qos: int,
        packet_id: int,
        alias: Alias | None,
        *,
        dup: bool,
    ) -> bytes:
        properties = b""
        if self._level >= LEVEL_5:
            number = None if alias is None else alias.number
            properties = self._writer.encoded_properties(made, message, recipient.identifier, number)
        return encode_publish(
            self._level,
            _NO_TOPIC if alias is not None and alias.is_known else made.topic,
            made.payload,
            qos=qos,
            retain=made.retained or (recipient.retain_as_published and made.retain_flag),
            dup=dup,
            packet_id=packet_id,
            properties=properties,
        )

    def _next_packet_id(self) -> int:
        """Return a packet identifier that is not in use; there is one, as the window is smaller than their number."""
        state = self._state
        while True:
            state.last_packet_id = state.last_packet_id % state.packet_id_max + 1
            if state.last_packet_id not in self._in_flight and state.last_packet_id not in self._reserved:
                return state.last_packet_id

    def _is_full(self) -> bool:
        """Return True if no packet may be sent that needs an answer."""
        return len(self._in_flight) >= self._window or not self._has_packet_id()

    def _has_packet_id(self) -> bool:
        usable = self._state.packet_id_max
        return usable == PACKET_ID_MAX or len(self._in_flight) + len(self._reserved) < usable

    # ------------------------------------------------------------ packet identifiers of a former master

    def _release_packet_ids(self) -> None:
        """Have the client release some, if no other is left; no message is sent until it has."""
        if self._releasing or self._has_packet_id():
            return
        first = self._state.packet_id_max + 1
        self._releasing = set(range(first, min(first + RELEASED_AT_ONCE, PACKET_ID_MAX + 1)))
        self._write(
            b"".join([encode_acknowledgement(self._level, PacketType.PUBREL, each) for each in sorted(self._releasing)])
        )

    def end_release(self) -> None:
        """Use the packet identifiers that are being released, though not all PUBCOMPs have come.

        Some clients do not answer a PUBREL that they do not expect: not to wait for long, PINGREQ is an answer, too.
        """
        if self._releasing:
            self._releasing = set()
            self._state.packet_id_max = min(self._state.packet_id_max + RELEASED_AT_ONCE, PACKET_ID_MAX)
            self._send_waiting()

    def _released(self, packet_id: int) -> bool:
        """Note a PUBCOMP; return False if it is for no packet identifier of a former master."""
        if packet_id not in self._releasing:
            return False
        if len(self._releasing) == 1:
            self.end_release()
        else:
            self._releasing.remove(packet_id)
        return True

    # ------------------------------------------------------------ shared subscriptions

    @property
    def has_space(self) -> bool:
        """True if a delivery would be sent at once."""
        return not self.is_paused and not self._waiting and not self._is_full()

    def add_drain(self, drain: Callable[[], None]) -> None:
        """Have `drain` called when there is space again."""
        self._drains[drain] = None

    def remove_drain(self, drain: Callable[[], None]) -> None:
        """Undo `add_drain`; do nothing if that was undone already."""
        self._drains.pop(drain, None)

    def take_back(self, recipient: MqttRecipient) -> list[Delivery]:
        """Close a subscription; return its deliveries that the client has not acknowledged, oldest first.

        Those with QoS 0 are acknowledged if they were sent.
        """
        recipient.acknowledge_sent()
        recipient.is_closed = True
        taken = [
            each.delivery
            for each in self._in_flight.values()
            if each.recipient is recipient and each.delivery is not None
        ]
        taken += [delivery for each, delivery in self._waiting if each is recipient]
        taken += [delivery for each, delivery, _ in self._unsent if each is recipient]
        self._unsent = [each for each in self._unsent if each[0] is not recipient]
        self.forget(recipient)
        return taken

    def drain(self) -> None:
        """Have what waits for this or another client delivered, as far as there is space."""
        for drain in list(self._drains):
            if self.has_space:
                drain()

    # ------------------------------------------------------------ from the client

    def acknowledged(self, packet: AcknowledgementPacket) -> None:
        """Carry out PUBACK, PUBREC or PUBCOMP. One for an unknown packet identifier has no effect, or an answer."""
        match packet.type:
            case PacketType.PUBACK:
                self._finish(packet, 1)
            case PacketType.PUBREC:
                self._received(packet)
            case _:
                self._finish(packet, 2)

    def _received(self, packet: AcknowledgementPacket) -> None:
        """Answer PUBREC with PUBREL, unless the client refuses the message."""
        found = self._in_flight.get(packet.packet_id)
        if found is None or found.qos != 2:
            if packet.reason < _FAILURE:  # else that ends it (MQTT 5.0, 4.3.3)
                self._write(
                    encode_acknowledgement(
                        self._level, PacketType.PUBREL, packet.packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
                    )
                )
        elif packet.reason >= _FAILURE:
            self._finish(packet, 2)
        else:
            found.is_released = True
            self._write(encode_acknowledgement(self._level, PacketType.PUBREL, packet.packet_id))

    def _finish(self, packet: AcknowledgementPacket, qos: int) -> None:
        found = self._in_flight.get(packet.packet_id)
        if found is None:
            if not self._released(packet.packet_id):
                self._complete_remembered(packet.packet_id)
            return
        if found.qos != qos or (packet.type is PacketType.PUBCOMP and not found.is_released):
            return
        del self._in_flight[packet.packet_id]
        if packet.reason >= _FAILURE:
            found.recipient.reject(found.delivery, f"the MQTT client refuses it: {packet.reason.name}")
        else:
            found.recipient.acknowledge(found.delivery)
        self._send_waiting()

    def _complete_remembered(self, packet_id: int) -> None:
        """Note a PUBCOMP for a message that the core has not delivered again yet: it is not sent then."""
        key = self._reserved.get(packet_id)
        found = None if key is None else self._state.remembered.get(key)
        if key is not None and found is not None and found.is_released:
            self._state.complete(key)
            del self._reserved[packet_id]

    def _send_waiting(self) -> None:
        waiting = self._waiting
        while waiting and not self._is_full():
            recipient, delivery = waiting.popleft()
            if not recipient.is_closed:
                self._send(recipient, delivery)
        if not waiting and not self._is_full():
            self._hold(False)
            self.drain()

    def acknowledge_sent(self) -> None:
        """Acknowledge the deliveries with QoS 0: their bytes have left the process."""
        if self._sent:
            # A new dict, because acknowledging opens windows, and the core may deliver again before it returns.
            sent, self._sent = self._sent, {}
            for recipient in sent:
                recipient.acknowledge_sent()

    def settle_unsent(self) -> None:
        """Reject messages that could not be sent, and acknowledge those that need not be."""
        unsent, self._unsent = self._unsent, []
        for recipient, delivery, cause in unsent:
            if cause:
                recipient.reject(delivery, cause)
            else:
                recipient.acknowledge(delivery)
                if self._state.completed:
                    self._state.completed.pop(DeliveryKey(recipient.filter, delivery.message.message_id), None)

    # ------------------------------------------------------------ end

    def forget(self, recipient: MqttRecipient) -> None:
        """Drop what waits for a subscription that has ended. Its packets in flight may still be answered."""
        self._sent.pop(recipient, None)
        if self._waiting:
            self._waiting = deque(each for each in self._waiting if each[0] is not recipient)
            self._send_waiting()

    def remember(self) -> None:
        """Have the session's state remember what is unanswered, for the next connection."""
        for packet_id, each in self._in_flight.items():
            recipient = each.recipient
            if not recipient.is_closed and recipient.is_remembered and each.delivery is not None:
                key = DeliveryKey(recipient.filter, each.delivery.message.message_id)
                self._state.remember(key, Remembered(packet_id, each.is_released))

    def clear(self) -> None:
        """Drop everything, as the connection has ended."""
        self._in_flight = {}
        self._waiting.clear()
        self._sent = {}
        self._unsent = []
