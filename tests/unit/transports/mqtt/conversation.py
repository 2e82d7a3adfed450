"""MQTT clients without sockets: a broker in memory, links whose time the test moves, and a disk that can wait."""

import itertools
from collections.abc import Callable
from typing import Final, NamedTuple

from pybroker.broker.app.mqtt_queues import LastingSubscriptions, VirtualTopicQueues
from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.core.policy import DestinationPolicy, PolicyMap
from pybroker.broker.domain.errors import BrokerError
from pybroker.broker.domain.mqtt.packets import MqttLimits
from pybroker.broker.domain.security import WITHOUT_LOGINS, Authenticator
from pybroker.store.memory import MemoryStore
from pybroker.transports.mqtt.session import MqttSession
from pybroker.transports.mqtt.session_states import SessionStates
from pybroker.transports.mqtt.shared_subscriptions import SharedSubscriptions
from pybroker.transports.mqtt.subscription_strategy import DURABLE_SUBSCRIPTIONS, VirtualTopicStrategy
from tests import mqtt_packets as packets
from tests.timers import ManualTimers
from tests.unit.transports.openwire.conversation import FakeLink

NOW_MS: Final = 1_700_000_000_000
_NAMES: Final = {
    2: "CONNACK", 3: "PUBLISH", 4: "PUBACK", 5: "PUBREC", 6: "PUBREL", 7: "PUBCOMP", 9: "SUBACK", 11: "UNSUBACK",
    13: "PINGRESP", 14: "DISCONNECT",
}  # fmt: skip


class Answer(NamedTuple):
    """A packet of the broker.

    Attributes:
        name: its type.
        flags: the lower four bits of its first byte.
        body: what follows its length.
    """

    name: str
    flags: int
    body: bytes


class Published(NamedTuple):
    """A PUBLISH of the broker."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    packet_id: int
    properties: bytes


class SlowStore(MemoryStore):
    """A store whose disk takes as long as the test wants.

    Attributes:
        is_slow: callbacks wait for `sync`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_slow = False
        self._waiting: list[Callable[[], None]] = []

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything is on disk."""
        if self.is_slow:
            self._waiting.append(callback)
        else:
            super().when_durable(callback)

    def when_confirmed(self, callback: Callable[[], None]) -> None:
        """Call back once every message is on disk."""
        self.when_durable(callback)

    def sync(self) -> None:
        """Have everything reach the disk."""
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()


class Link(FakeLink):
    """A link that closes its session on demand."""

    def give_up(self, error: Exception) -> None:
        """Close the session."""
        assert self.session is not None
        assert isinstance(error, BrokerError)
        self.session.give_up(error)


class World:
    """A broker and its clients.

    Attributes:
        now_ms: the broker's clock.
        timers: the broker's timers.
        wakes_at: the time when sessions without a connection are looked at; None: never.
    """

    def __init__(
        self,
        authenticator: Authenticator = WITHOUT_LOGINS,
        limits: MqttLimits | None = None,
        policy: DestinationPolicy | None = None,
        *,
        has_virtual_topics: bool = False,
    ) -> None:
        self.now_ms = NOW_MS
        self.store = SlowStore()
        self._policies = None if policy is None else PolicyMap(default=policy)
        self._has_virtual_topics = has_virtual_topics
        self.timers = ManualTimers()
        self.start()
        self._authenticator = authenticator
        self._limits = limits or MqttLimits()
        self._numbers = itertools.count(1)

    def start(self) -> None:
        """Begin with what the store has, as a new master does; the clients of a former one are not told."""
        self.broker = broker = BrokerCore(
            "b", store=self.store, clock=lambda: self.now_ms, policies=self._policies, run_id=f"ID:b-{self.now_ms}"
        )
        broker.usage.paging.after = self.timers.after
        broker.recover()
        self.wakes_at: int | None = None
        self.shared = SharedSubscriptions(broker, lambda: [durable.info for durable in broker.durables.values()])
        self.states = SessionStates(
            LastingSubscriptions(broker), self.shared, lambda: self.now_ms, self._wake_at, broker.sessions
        )
        self.states.recover()
        self._strategy = DURABLE_SUBSCRIPTIONS
        if self._has_virtual_topics:
            self._strategy = VirtualTopicStrategy(VirtualTopicQueues(broker))

    def _wake_at(self, when: int | None) -> None:
        self.wakes_at = when

    def advance(self, seconds: float) -> None:
        """Move the clock, and have everything happen that is due meanwhile."""
        end = self.now_ms + round(seconds * 1000)
        while self.wakes_at is not None and self.wakes_at <= end:
            self.now_ms, self.wakes_at = max(self.now_ms, self.wakes_at), None
            self.states.fire()
        self.now_ms = end

    def open(self, level: int = 4) -> "Peer":
        """Return a client that has not sent CONNECT."""
        link = Link()
        session = MqttSession(
            broker=self.broker,
            link=link,
            connection_id=f"ID:host-1-{next(self._numbers)}",
            limits=self._limits,
            clock=lambda: self.now_ms,
            states=self.states,
            authenticator=self._authenticator,
            strategy=self._strategy,
        )
        link.session = session
        return Peer(session, link, level)

    def connect(self, client_id: str = "dev1", level: int = 4, *, clean: bool = True, **options: object) -> "Peer":
        """Return a connected client."""
        peer = self.open(level)
        answers = peer.send(packets.connect(client_id, level=level, clean=clean, **options))  # type: ignore[arg-type]
        assert answers[0].name == "CONNACK", answers
        assert answers[0].body[1] == 0, answers
        peer.is_session_present = answers[0].body[0] == 1
        peer.greeting = answers[1:]
        return peer


class Peer:
    """One client.

    Attributes:
        is_session_present: the flag of CONNACK.
        greeting: what came behind CONNACK.
    """

    def __init__(self, session: MqttSession, link: Link, level: int) -> None:
        self.session = session
        self.link = link
        self.level = level
        self.is_session_present = False
        self.greeting: list[Answer] = []

    def send(self, *data: bytes) -> list[Answer]:
        """Send packets; return the answers."""
        self.session.receive(b"".join(data))
        return self.receive()

    def receive(self) -> list[Answer]:
        """Return what the broker has sent since the last call."""
        data = bytes(self.link.output)
        self.link.output.clear()
        found: list[Answer] = []
        at = 0
        while at < len(data):
            head, length, shift = data[at], 0, 0
            at += 1
            while True:
                byte = data[at]
                at += 1
                length |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            found.append(Answer(_NAMES[head >> 4], head & 15, data[at : at + length]))
            at += length
        assert at == len(data)
        if found:
            self.session.written()
        return found

    def names(self, *data: bytes) -> list[str]:
        """Send packets; return the types of the answers."""
        return [each.name for each in self.send(*data)]

    def published(self, answers: list[Answer] | None = None) -> list[Published]:
        """Return the PUBLISH packets among answers, or those that came since the last call."""
        return [
            self._published(each) for each in (self.receive() if answers is None else answers) if each.name == "PUBLISH"
        ]

    def payloads(self) -> list[bytes]:
        """Return the payloads of the messages that came since the last call."""
        return [each.payload for each in self.published()]

    def subscribe(self, *filters: tuple[str, int], packet_id: int = 1) -> list[Answer]:
        """Subscribe; return what came, the SUBACK first."""
        pieces = () if self.level == 5 else None
        answers = self.send(packets.subscribe(packet_id, *filters, pieces=pieces))
        assert answers[0].name == "SUBACK", answers
        return answers

    def publish(
        self, topic: str, payload: bytes, qos: int = 0, packet_id: int = 0, *, retain: bool = False, dup: bool = False
    ) -> list[str]:
        """Publish; return the types of the answers."""
        pieces = () if self.level == 5 else None
        packet_id = packet_id or (7 if qos else 0)
        data = packets.publish(topic, payload, qos=qos, packet_id=packet_id, retain=retain, dup=dup, pieces=pieces)
        return self.names(data)

    def acknowledge(self, head: int, packet_id: int) -> list[Answer]:
        """Send PUBACK, PUBREC, PUBREL or PUBCOMP."""
        return self.send(packets.packet(head, packets.short(packet_id)))

    def drop(self) -> None:
        """Lose the connection."""
        self.session.lost()

    def _published(self, answer: Answer) -> Published:
        body = answer.body
        end = 2 + int.from_bytes(body[:2], "big")
        topic, qos, packet_id = body[2:end].decode(), answer.flags >> 1 & 3, 0
        if qos:
            packet_id, end = int.from_bytes(body[end : end + 2], "big"), end + 2
        properties = b""
        if self.level == 5:
            size = body[end]
            assert size < 0x80, "tests have few properties"
            properties, end = body[end + 1 : end + 1 + size], end + 1 + size
        return Published(topic, body[end:], qos, bool(answer.flags & 1), bool(answer.flags & 8), packet_id, properties)
