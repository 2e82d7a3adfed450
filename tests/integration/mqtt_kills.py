"""Clients of MQTT 3.1.1 for kill tests: sessions as the standard wants them, and the account of what must have come.

They keep their session over every connection, whichever member serves: a publisher sends again what was not answered,
with the DUP flag and the former packet identifier; a subscriber keeps the identifiers of messages with QoS 2 until
they are released, and takes no second message with one of them ("method B" of MQTT 3.1.1, 4.3.3). So a broker that
uses such an identifier for another message loses it. Clients also cut connections while the master lives: between
two kills nothing may come twice with QoS 2.
"""

import contextlib
import random
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests import mqtt_packets as packets
from tests.integration.cluster import BrokerProcess, Pair, free_port

SECONDS: Final = 60.0
TOPIC: Final = "kills/%s"

_LOOK_SECONDS: Final = 0.5
"""How often a client that gets nothing looks whether it is to stop."""

Key = tuple[str, int]
"""Publisher, and its number of the message."""


class MqttPair(Pair):
    """Two brokers on one store, each with a port for MQTT beside that for STOMP."""

    def __init__(self, store: Path, *extra: str) -> None:
        self._mqtt_ports = {"a": free_port(), "b": free_port()}
        super().__init__(store, *extra)

    @property
    def mqtt_ports(self) -> list[int]:
        return list(self._mqtt_ports.values())

    def _start(self, name: str) -> BrokerProcess:
        extra = ("--mqtt", str(self._mqtt_ports[name]), *self._extra)
        return BrokerProcess(self.store, name=name, port=self._ports[name], extra=extra)


@dataclass
class Reigns:
    """Numbers the masters, so that a client knows which one it is connected to."""

    begun: int = 0
    """Kills that have begun."""
    done: int = 0
    """Kills after which the killed master is gone."""


@dataclass
class Account:
    """What publishers have an answer for, and what has come."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    confirmed: set[Key] = field(default_factory=set[Key])
    published: dict[Key, set[int]] = field(default_factory=lambda: defaultdict[Key, set[int]](set))
    """The masters that each message was sent to."""
    received: Counter[Key] = field(default_factory=Counter[Key])
    of_reign: Counter[tuple[Key, int]] = field(default_factory=Counter[tuple[Key, int]])
    """How often a message came from a master."""
    newest_reign: int = -1
    """The newest master that has confirmed something."""

    def publish(self, key: Key, reign: int) -> None:
        with self.lock:
            self.published[key].add(reign)

    def confirm(self, key: Key, reign: int) -> None:
        with self.lock:
            self.confirmed.add(key)
            self.newest_reign = max(self.newest_reign, reign)

    def receive(self, key: Key, reign: int) -> None:
        with self.lock:
            self.received[key] += 1
            self.of_reign[key, reign] += 1

    def lost(self) -> list[Key]:
        with self.lock:
            return sorted(self.confirmed - self.received.keys())

    def doubled(self, names: Sequence[str]) -> int:
        """Return how many messages of these publishers came more than once."""
        with self.lock:
            return sum(1 for (name, _), count in self.received.items() if name in names and count > 1)

    def forbidden(self, names: Sequence[str]) -> list[tuple[Key, int]]:
        """Return messages with QoS 2 that one master gave twice, although they were sent to one master only."""
        with self.lock:
            return sorted(
                (key, reign)
                for (key, reign), count in self.of_reign.items()
                if key[0] in names and count > len(self.published[key])
            )


class MqttWorker(threading.Thread):
    """A client with a session, on a connection to whichever member serves, again and again until it is stopped."""

    def __init__(self, name: str, ports: Sequence[int], account: Account, reigns: Reigns, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.failure: BaseException | None = None
        self.stopping = threading.Event()
        self.random = random.Random(f"{seed}-{name}")
        self.reign = -1
        self.connections = 0
        self._ports = ports
        self._account = account
        self._reigns = reigns
        self._data = b""
        self._pause = threading.Event()

    def run(self) -> None:
        try:
            while not self.is_done():
                for port in self._ports:
                    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
                        self._connect(port, stack)
                self._pause.wait(0.005)
        except BaseException as error:  # reported by the test
            self.failure = error

    def _connect(self, port: int, stack: contextlib.ExitStack) -> None:
        """Work on one connection until it ends, is cut, or there is nothing more to do."""
        reigns, before = self._reigns, (self._reigns.begun, self._reigns.done)
        self.socket = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=_LOOK_SECONDS))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        self.socket.sendall(packets.connect(self.name, clean=False))
        answers = self._packets()
        head, body = next(answers)
        assert (head, body[1]) == (0x20, 0), f"{self.name} is refused: {body!r}"
        if before != (reigns.begun, reigns.begun) or reigns.done != before[1]:
            return  # a master was being killed: which one has answered is not known
        self.reign = before[1]
        self.connections += 1
        left = self.random.randrange(50, 1000)
        self.begin(session_present=body[0] == 1)
        for head, body in answers:
            self.handle(head, body)
            left -= 1
            if self.is_done() or left <= 0:
                return

    def _packets(self) -> Iterator[tuple[int, bytes]]:
        while True:
            while (found := self._next()) is not None:
                yield found
            try:
                chunk = self.socket.recv(1 << 16)
            except TimeoutError:
                if self.is_done():
                    return
                continue
            if not chunk:
                raise ConnectionResetError("the broker has closed")
            self._data += chunk

    def _next(self) -> tuple[int, bytes] | None:
        """Cut a whole packet off what has come; None if there is none."""
        data, length, at = self._data, 0, 1
        while at < len(data):
            length |= (data[at] & 0x7F) << 7 * (at - 1)
            at += 1
            if data[at - 1] < 0x80:
                if len(data) < at + length:
                    return None
                self._data = data[at + length :]
                return data[0], data[at : at + length]
        return None

    def begin(self, *, session_present: bool) -> None:
        """Go on with the session, on a new connection."""
        raise NotImplementedError

    def handle(self, head: int, body: bytes) -> None:
        """Handle a packet."""
        raise NotImplementedError

    def is_done(self) -> bool:
        """Return True if the client is to stop."""
        return self.stopping.is_set()


@dataclass
class _Unanswered:
    number: int
    is_received: bool = False
    """PUBREC has come: the broker has the message."""


class Publisher(MqttWorker):
    """Keeps a window of messages open, and gives each of them up only when it is answered completely."""

    WINDOW: Final = 20

    def __init__(self, name: str, qos: int, ports: Sequence[int], account: Account, reigns: Reigns, seed: int) -> None:
        super().__init__(name, ports, account, reigns, seed)
        self.qos = qos
        self._number = 0
        self._packet_id = 0
        self._open: dict[int, _Unanswered] = {}

    def begin(self, *, session_present: bool) -> None:
        del session_present  # a master that does not know the session has everything sent again all the same
        for packet_id, each in self._open.items():
            if each.is_received:
                self.socket.sendall(packets.packet(packets.PUBREL, packets.short(packet_id)))
            else:
                self._send(packet_id, each.number, dup=True)
        self._fill()

    def handle(self, head: int, body: bytes) -> None:
        packet_id = int.from_bytes(body, "big")
        found = self._open[packet_id]
        if head == packets.PUBREC:
            found.is_received = True
            self._account.confirm((self.name, found.number), self.reign)
            self.socket.sendall(packets.packet(packets.PUBREL, packets.short(packet_id)))
            return
        assert head == (packets.PUBACK if self.qos == 1 else packets.PUBCOMP)
        del self._open[packet_id]
        self._account.confirm((self.name, found.number), self.reign)
        self._fill()

    def is_done(self) -> bool:
        return self.stopping.is_set() and not self._open  # what was sent is answered first

    def _fill(self) -> None:
        while len(self._open) < self.WINDOW and not self.stopping.is_set():
            self._number += 1
            self._packet_id = self._packet_id % 0xFFFF + 1
            self._open[self._packet_id] = _Unanswered(self._number)
            self._send(self._packet_id, self._number)

    def _send(self, packet_id: int, number: int, *, dup: bool = False) -> None:
        self._account.publish((self.name, number), self.reign)
        payload = b"%s %d " % (self.name.encode(), number) + bytes(self.random.choice([0, 10, 1000, 20_000]))
        packet = packets.publish(TOPIC % self.name, payload, qos=self.qos, packet_id=packet_id, dup=dup)
        self.socket.sendall(packet)


class Subscriber(MqttWorker):
    """Has a session with one filter for QoS 1 and one for QoS 2."""

    def __init__(
        self, filters: Sequence[tuple[str, int]], ports: Sequence[int], account: Account, reigns: Reigns, seed: int
    ) -> None:
        super().__init__("subscriber", ports, account, reigns, seed)
        self.is_subscribed = threading.Event()
        self._filters = filters
        self._unreleased: set[int] = set()

    def begin(self, *, session_present: bool) -> None:
        if self.is_subscribed.is_set():
            assert session_present, "the session of the subscriber is lost"
        else:
            self.socket.sendall(packets.subscribe(1, *self._filters))

    def handle(self, head: int, body: bytes) -> None:
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
        name, number, _ = payload.split(b" ", 2)
        if qos == 1:
            self._account.receive((name.decode(), int(number)), self.reign)
            self.socket.sendall(packets.packet(packets.PUBACK, packet_id))
            return
        assert qos == 2
        identifier = int.from_bytes(packet_id, "big")
        if identifier not in self._unreleased:
            self._unreleased.add(identifier)
            self._account.receive((name.decode(), int(number)), self.reign)
        self.socket.sendall(packets.packet(packets.PUBREC, packet_id))


def wait(condition: Callable[[], bool], workers: Sequence[MqttWorker]) -> None:
    """Wait until a condition holds; a client that fails, or a minute without it, is a failure."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        for worker in workers:
            if worker.failure is not None:
                raise AssertionError(f"{worker.name} has failed") from worker.failure
        assert time.monotonic() < deadline, "nothing moves any more"
        threading.Event().wait(0.002)
