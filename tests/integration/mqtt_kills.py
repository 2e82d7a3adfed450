"""Clients of MQTT 3.1.1 for kill tests: sessions as the standard wants them, and the account of what must have come.

They keep their session over every connection, whichever member serves: a publisher sends again what was not answered,
with the DUP flag and the former packet identifier; a subscriber keeps the identifiers of messages with QoS 2 until
they are released, and takes no second message with one of them ("method B" of MQTT 3.1.1, 4.3.3). So a broker that
uses such an identifier for another message loses it. Clients also cut connections while the master lives: between
two kills nothing may come twice with QoS 2.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Final

from tests import mqtt_packets as packets
from tests.integration.kill_load import Account, LoadWorker, Producer, Reigns, body_of, key_in

TOPIC: Final = "kills/%s"

Packet = tuple[int, bytes]
"""The first byte and the content."""


class MqttWorker(LoadWorker):
    """A client with a session."""

    is_session_present: bool
    """The broker knows the session."""

    def inputs(self) -> Iterator[Packet]:
        data = b""
        for chunk in self.chunks():
            data += chunk
            while (found := _cut(data)) is not None:
                data = data[found[2] :]
                yield found[:2]

    def log_in(self, inputs: Iterator[Packet]) -> None:
        self.socket.sendall(packets.connect(self.name, clean=False))
        head, body = next(inputs)
        assert (head, body[1]) == (0x20, 0), f"{self.name} is refused: {body!r}"
        self.is_session_present = body[0] == 1


def _cut(data: bytes) -> tuple[int, bytes, int] | None:
    """Return the first packet, and where it ends; None if it is not complete."""
    length, at = 0, 1
    while at < len(data):
        length |= (data[at] & 0x7F) << 7 * (at - 1)
        at += 1
        if data[at - 1] < 0x80:
            end = at + length
            return None if len(data) < end else (data[0], data[at:end], end)
    return None


@dataclass
class _Unanswered:
    number: int
    is_received: bool = False
    """PUBREC has come: the broker has the message."""


class Publisher(MqttWorker):
    """Keeps a window of messages open, and gives each of them up only when it is answered completely."""

    WINDOW: Final = 20

    def __init__(
        self,
        name: str,
        qos: int,
        ports: Sequence[int],
        account: Account,
        reigns: Reigns,
        seed: int,
        topic: str | None = None,
    ) -> None:
        super().__init__(name, ports, account, reigns, seed)
        self.qos = qos
        self.topic = TOPIC % name if topic is None else topic
        self.backlog: Callable[[], int] = lambda: 0
        self._number = 0
        self._packet_id = 0
        self._open: dict[int, _Unanswered] = {}

    def begin(self) -> None:  # a master that does not know the session has everything sent again all the same
        for packet_id, each in self._open.items():
            if each.is_received:
                self.socket.sendall(packets.packet(packets.PUBREL, packets.short(packet_id)))
            else:
                self._send(packet_id, each.number, dup=True)
        self._fill()

    def handle(self, received: Packet) -> None:
        head, body = received
        packet_id = int.from_bytes(body, "big")
        found = self._open[packet_id]
        if head == packets.PUBREC:
            found.is_received = True
            self.account.confirm([(self.name, found.number)], self.reign)
            self.socket.sendall(packets.packet(packets.PUBREL, packets.short(packet_id)))
            return
        assert head == (packets.PUBACK if self.qos == 1 else packets.PUBCOMP)
        del self._open[packet_id]
        self.account.confirm([(self.name, found.number)], self.reign)
        self._fill()

    def on_idle(self) -> None:
        self._fill()

    def is_done(self) -> bool:
        return self.stopping.is_set() and not self._open  # what was sent is answered first

    def _fill(self) -> None:
        while len(self._open) < self.WINDOW and not self.stopping.is_set() and self.backlog() <= Producer.BACKLOG_MAX:
            self._number += 1
            self._packet_id = self._packet_id % 0xFFFF + 1
            self._open[self._packet_id] = _Unanswered(self._number)
            self._send(self._packet_id, self._number)

    def _send(self, packet_id: int, number: int, *, dup: bool = False) -> None:
        self.account.publish((self.name, number), self.reign)
        payload = body_of((self.name, number), self.random.choice([0, 10, 1000, 20_000])).encode()
        packet = packets.publish(self.topic, payload, qos=self.qos, packet_id=packet_id, dup=dup)
        self.socket.sendall(packet)


class Subscriber(MqttWorker):
    """Has a session with one filter for QoS 1 and one for QoS 2."""

    def __init__(
        self, filters: Sequence[tuple[str, int]], ports: Sequence[int], account: Account, reigns: Reigns, seed: int
    ) -> None:
        super().__init__("subscriber", ports, account, reigns, seed)
        self.is_subscribed = Event()
        self._filters = filters
        self._unreleased: set[int] = set()

    def begin(self) -> None:
        if self.is_subscribed.is_set():
            assert self.is_session_present, "the session of the subscriber is lost"
        else:
            self.socket.sendall(packets.subscribe(1, *self._filters))

    def handle(self, received: Packet) -> None:
        head, body = received
        if head == 0x90:
            assert tuple(body[2:]) == tuple(qos for _, qos in self._filters)
            self.is_subscribed.set()
        elif head == packets.PUBREL:
            self._unreleased.discard(int.from_bytes(body, "big"))
            self.socket.sendall(packets.packet(packets.PUBCOMP, body))
        else:
            self._message(head, body)

    def _message(self, head: int, body: bytes) -> None:
        assert head >> 4 == 3, (head, body)
        end = 2 + int.from_bytes(body[:2], "big")
        qos, packet_id, payload = head >> 1 & 3, body[end : end + 2], body[end + 2 :]
        key = key_in(payload)
        if qos == 1:
            self.account.receive(key, self.reign)
            self.socket.sendall(packets.packet(packets.PUBACK, packet_id))
            return
        assert qos == 2
        identifier = int.from_bytes(packet_id, "big")
        if identifier not in self._unreleased:
            self._unreleased.add(identifier)
            self.account.receive(key, self.reign)
        self.socket.sendall(packets.packet(packets.PUBREC, packet_id))
