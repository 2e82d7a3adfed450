"""The bystander of MQTT 5: publishes with QoS 2 to a subscription with QoS 2 of a session that survives connections.

A round is a publish with its PUBREC and PUBCOMP, and the receive of that message with its PUBREL.
"""

import os
from typing import Final

from benchmarks.hostile.bystander_record import QUEUE, NumberedBodies, Record, connected
from tests import mqtt_packets as packets

_SESSION_EXPIRY: Final = b"\x11\0\0\0\x3c"
"""A minute."""
_CONNACK: Final = 0x20
_SUBACK: Final = 0x90
_FAILURE: Final = 0x80


class MqttBystander:
    """One connection with a subscription."""

    def __init__(self, port: int, user: str | None, password: str | None, *, exclusive: bool) -> None:
        del exclusive  # a topic's messages are not shared
        self._topic = f"{QUEUE}/{os.getpid()}"
        self._bodies = NumberedBodies()
        self._number = 0
        self._socket = connected(port)
        self._stream = self._socket.makefile("rb")
        self._socket.sendall(
            packets.connect(
                f"bystander-mqtt-{os.getpid()}", level=5, user=user, password=password, pieces=[_SESSION_EXPIRY]
            )
            + packets.subscribe(1, (self._topic, 2), pieces=[])
        )  # fmt: skip
        self._expect(_CONNACK, 1)
        self._expect(_SUBACK, 3)

    def round(self, record: Record) -> None:
        """Do one round."""
        self._number = self._number % 65_535 + 1
        own = packets.short(self._number)
        with record.step("mqtt publish and receive"):
            body = self._bodies.next().encode()
            self._socket.sendall(packets.publish(self._topic, body, qos=2, packet_id=self._number, pieces=[]))
            self._exchange(own)

    def _exchange(self, own: bytes) -> None:
        """Answer packets until the publish is complete, and its message is received."""
        is_published = is_received = False
        while not (is_published and is_received):
            head, content = self._next()
            match head >> 4:
                case 3:
                    size = 2 + int.from_bytes(content[:2], "big")
                    body = content[size + 3 :].decode()  # behind the packet identifier, and properties of length 0
                    if content[size + 2] or head & 0x0F != 4 or not self._bodies.is_last(body):
                        raise RuntimeError(f"unexpected PUBLISH {head:#x} {content[:100]!r}")
                    self._socket.sendall(packets.packet(packets.PUBREC, content[size : size + 2]))
                case 5 if content[:2] == own and content[2:3] < b"\x80":
                    self._socket.sendall(packets.packet(packets.PUBREL, own))
                case 6:
                    self._socket.sendall(packets.packet(packets.PUBCOMP, content[:2]))
                    is_received = True
                case 7 if content[:2] == own and content[2:3] < b"\x80":
                    is_published = True
                case _:
                    raise RuntimeError(f"unexpected packet {head:#x} {content[:100]!r}")

    def _expect(self, head: int, reason_at: int) -> None:
        found, content = self._next()
        if found != head or content[reason_at] >= _FAILURE:
            raise RuntimeError(f"unexpected packet {found:#x} {content[:100]!r}")

    def _next(self) -> tuple[int, bytes]:
        head, length, shift = self._read(1)[0], 0, 0
        while (byte := self._read(1)[0]) >= 0x80:
            length, shift = length | (byte & 0x7F) << shift, shift + 7
        return head, self._read(length | byte << shift)

    def _read(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) < count:
            raise ConnectionError("the broker closed the connection")
        return data
