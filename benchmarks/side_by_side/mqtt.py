"""MQTT 3.1.1 as a load, by raw sockets: persistent publishes (QoS 1), and a subscriber whose session lasts.

Packets are prebuilt and all have one length, so nothing is parsed: PUBACKs are counted in bytes, and of a PUBLISH only
the packet identifier is read, at its place.
"""

import os
import socket
import time
from collections import deque
from typing import Final

from benchmarks.driver import PASSWORD, PATIENCE_SECONDS, USER, Loop, Peer
from benchmarks.report import quantile
from benchmarks.side_by_side.rows import Row, Timing
from benchmarks.workload import body

_TOPIC: Final = b"BENCH/MQTT"
_PACKET_IDS: Final = 1_000
"""Packet identifiers of a publisher, which are used in turn: more than any window."""

_PUBLISH: Final = 0x32
"""The first byte with QoS 1, sent the first time, and not retained."""
_PUBACK: Final = b"\x40\x02"
_PUBACK_BYTES: Final = 4
_ANSWER_BYTES: Final = {0x20: 4, 0x90: 5, 0xB0: 4}
"""Lengths of CONNACK, SUBACK for one filter, and UNSUBACK."""


class MqttClient:
    """Publishes with a window; one subscriber receives and acknowledges all of it."""

    pid = os.getpid()
    """Of the process the client runs in: this one."""

    def prepare(self, row: Row, port: int) -> None:
        """Connect and warm up; on return only the measured part is left."""
        self._loop = Loop()
        packets = [_publish(packet_id, row.body_bytes) for packet_id in range(1, _PACKET_IDS + 1)]
        self._subscriber = _Subscriber(self._loop, port, packets[0])
        self._publishers = [
            _Publisher(self._loop, port, f"publisher{number}", packets, row.window) for number in range(row.producers)
        ]
        self._count = row.count
        if row.warm:
            self._publish(row.warm)

    def run(self) -> Timing:
        """Do the measured part, to the last PUBACK and the last message."""
        for publisher in self._publishers:
            publisher.latencies.clear()
        begun = time.perf_counter()
        self._publish(self._count)
        seconds = time.perf_counter() - begun
        latencies = [latency for publisher in self._publishers for latency in publisher.latencies]
        return Timing(seconds=seconds, p50_ms=quantile(latencies, 0.5) * 1000, p99_ms=quantile(latencies, 0.99) * 1000)

    def finish(self) -> None:
        """End the subscription, and disconnect."""
        self._subscriber.write(_packet(0xA2, b"\0\x02" + _text(_TOPIC)))
        self._loop.run_until(lambda: self._subscriber.is_answered)
        self._loop.close()

    def _publish(self, count: int) -> None:
        goal = self._subscriber.received_count + count
        for publisher in self._publishers:
            publisher.start(count // len(self._publishers))
        self._loop.run_until(
            lambda: (
                self._subscriber.received_count == goal and not any(publisher.left for publisher in self._publishers)
            )
        )


class _Publisher(Peer):
    """Publishes, with at most `window` PUBACKs outstanding.

    Attributes:
        left: messages without a PUBACK.
        latencies: seconds from each PUBLISH to its PUBACK.
    """

    def __init__(self, loop: Loop, port: int, client_id: str, packets: list[bytes], window: int) -> None:
        super().__init__(loop, port, lambda port: _connect(port, client_id, clean=True))
        self.left = 0
        self.latencies: list[float] = []
        self._packets = packets
        self._window = window
        self._unsent = 0
        self._next = 0
        self._sent_at: deque[float] = deque()
        self._rest = b""

    def start(self, count: int) -> None:
        """Publish so many messages."""
        self.left = self._unsent = count
        self._send(self._window)

    def received(self, chunk: bytes) -> None:
        """Count PUBACKs, and send as many packets again."""
        data = self._rest + chunk
        count = len(data) // _PUBACK_BYTES
        self._rest = data[count * _PUBACK_BYTES :]
        if not data.startswith(_PUBACK):
            raise RuntimeError(f"no PUBACK, but {data[:100]!r}")
        now = time.perf_counter()
        self.latencies += [now - self._sent_at.popleft() for _ in range(count)]
        self.left -= count
        self._send(count)

    def _send(self, wanted: int) -> None:
        count = min(wanted, self._unsent)
        if not count:
            return
        self._unsent -= count
        self._sent_at.extend([time.perf_counter()] * count)
        chosen = self._packets[self._next : self._next + count]
        chosen += self._packets[: count - len(chosen)]
        self._next = (self._next + count) % _PACKET_IDS
        self.write(b"".join(chosen))


class _Subscriber(Peer):
    """Acknowledges what comes, each message by its PUBACK.

    Attributes:
        received_count: messages so far.
        is_answered: the broker has answered SUBSCRIBE, or later UNSUBSCRIBE.
    """

    def __init__(self, loop: Loop, port: int, packet: bytes) -> None:
        """Subscribe. `packet` is as long as each message that will come."""
        super().__init__(loop, port, lambda port: _connect(port, "subscriber", clean=False))
        self.received_count = 0
        self.is_answered = False
        self._rest = b""
        self._packet_bytes = len(packet)
        self._id_at = packet.index(_TOPIC) + len(_TOPIC)
        self.write(_packet(0x82, b"\0\x01" + _text(_TOPIC) + b"\x01"))
        loop.run_until(lambda: self.is_answered)
        self.is_answered = False

    def received(self, chunk: bytes) -> None:
        """Answer the whole packets that have come."""
        data, at, acks = self._rest + chunk, 0, []
        while len(data) > at:
            if data[at] == _PUBLISH:
                end = at + self._packet_bytes
                if end > len(data):
                    break
                acks.append(data[at + self._id_at : at + self._id_at + 2])
            else:
                end = at + _ANSWER_BYTES[data[at]]
                if end > len(data):
                    break
                self.is_answered = True
            at = end
        self._rest = data[at:]
        self.received_count += len(acks)
        if acks:
            self.write(_PUBACK + _PUBACK.join(acks))


def _connect(port: int, client_id: str, *, clean: bool) -> socket.socket:
    """Return a connection that is accepted. Raises `OSError` when the broker is not there."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        flags = 0xC0 | clean << 1
        content = [_text(b"MQTT"), bytes([4, flags]), b"\0\0"]
        content += [_text(value.encode()) for value in (client_id, USER, PASSWORD)]
        connection.sendall(_packet(0x10, b"".join(content)))
        answer = connection.recv(_ANSWER_BYTES[0x20], socket.MSG_WAITALL)
        if answer[:2] + answer[3:] != b"\x20\x02\x00":
            raise RuntimeError(f"the broker refused: {answer!r}")
    except BaseException:
        connection.close()
        raise
    return connection


def _publish(packet_id: int, body_bytes: int) -> bytes:
    return _packet(_PUBLISH, _text(_TOPIC) + packet_id.to_bytes(2, "big") + body(body_bytes))


def _text(value: bytes) -> bytes:
    return len(value).to_bytes(2, "big") + value


def _packet(head: int, content: bytes) -> bytes:
    digits, left = [], len(content)
    while left > 0x7F:
        digits.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([head, *digits, left]) + content
