"""MQTT clients that come and go at random: QoS 2 is exactly once, and a group gets each message once.

One seed gives one conversation; a failure shows it.
"""

import random
from collections import Counter

import pytest

from tests import mqtt_packets as packets
from tests.unit.transports.mqtt.conversation import Answer, Peer, World

EXPIRY = b"\x11\0\0\0\x3c"
STEPS = 300
SEEDS = range(50)
GROUP = "$share/g/t/+"


class Client:
    """A client that loses its connection now and then."""

    def __init__(self, world: World, chance: random.Random, client_id: str) -> None:
        self.world = world
        self.chance = chance
        self.client_id = client_id
        self.peer = self.open()

    def open(self) -> Peer:
        window = self.chance.choice((1, 3, 10))
        pieces = (EXPIRY, b"\x21" + packets.short(window), b"\x22\0\2")
        return self.world.connect(self.client_id, 5, clean=False, pieces=pieces)

    def reopen(self) -> None:
        """Lose the connection, or have it taken over."""
        if self.chance.random() < 0.5:
            self.peer.drop()
        self.peer = self.open()

    def acknowledge(self, head: int, packet_id: int) -> None:
        self.peer.session.receive(packets.packet(head, packets.short(packet_id)))


class Receiver(Client):
    """Receives with QoS 2, and answers late."""

    def __init__(self, world: World, chance: random.Random) -> None:
        super().__init__(world, chance, "receiver")
        self.got: Counter[bytes] = Counter()
        self.unreleased: dict[int, bytes] = {}
        self.answers: list[tuple[int, int]] = []
        self.peer.subscribe(("t/+", 2))

    def reopen(self) -> None:
        super().reopen()
        self.answers = []
        self.take(self.peer.greeting)

    def take(self, answers: list[Answer]) -> None:
        for answer in answers:
            if answer.name == "PUBREL":
                packet_id = int.from_bytes(answer.body[:2], "big")
                self.unreleased.pop(packet_id, None)
                self.answers.append((packets.PUBCOMP, packet_id))
                continue
            [found] = self.peer.published([answer])
            if found.packet_id in self.unreleased:
                assert found.dup
                assert self.unreleased[found.packet_id] == found.payload
            else:
                self.got[found.payload] += 1
                self.unreleased[found.packet_id] = found.payload
            self.answers.append((packets.PUBREC, found.packet_id))

    def step(self) -> None:
        self.take(self.peer.receive())
        count = self.chance.randrange(len(self.answers) + 1)
        now, self.answers = self.answers[:count], self.answers[count:]
        for head, packet_id in now:
            self.acknowledge(head, packet_id)
        if self.chance.random() < 0.5:
            self.peer.session.on_timer()


class Sender(Client):
    """Sends with QoS 2, and repeats what was not completed."""

    def __init__(self, world: World, chance: random.Random) -> None:
        super().__init__(world, chance, "sender")
        self.sent: list[bytes] = []
        self.uncompleted: dict[int, bytes | None] = {}
        """By packet identifier: the payload; None: PUBREC came."""

    def reopen(self) -> None:
        super().reopen()
        for packet_id, payload in self.uncompleted.items():
            if payload is None:
                self.acknowledge(packets.PUBREL, packet_id)
            else:
                self.publish(packet_id, payload, dup=True)

    def publish(self, packet_id: int, payload: bytes, *, dup: bool = False) -> None:
        topic = f"t/{packet_id % 3}"
        self.peer.session.receive(packets.publish(topic, payload, qos=2, packet_id=packet_id, dup=dup, pieces=()))

    def step(self, *, is_sending: bool) -> None:
        for answer in self.peer.receive():
            packet_id = int.from_bytes(answer.body[:2], "big")
            if answer.name == "PUBREC":
                self.uncompleted[packet_id] = None
                if self.chance.random() < 0.7:
                    self.acknowledge(packets.PUBREL, packet_id)
            else:
                del self.uncompleted[packet_id]
        if is_sending and len(self.uncompleted) < 15:
            packet_id = next(each for each in range(1, 20) if each not in self.uncompleted)
            payload = b"%d" % len(self.sent)
            self.sent.append(payload)
            self.uncompleted[packet_id] = payload
            self.publish(packet_id, payload)


@pytest.mark.parametrize("seed", SEEDS)
def test_quality_2_is_exactly_once(seed: int) -> None:
    world, chance = World(), random.Random(seed)
    receiver, sender = Receiver(world, chance), Sender(world, chance)
    for _ in range(STEPS):
        match chance.randrange(20):
            case 0:
                receiver.reopen()
            case 1:
                sender.reopen()
            case number if number < 10:
                sender.step(is_sending=True)
            case _:
                receiver.step()
    for _ in range(STEPS):
        if sender.uncompleted:
            sender.reopen()
        sender.step(is_sending=False)
        receiver.step()
    assert not sender.uncompleted
    assert receiver.got == Counter(sender.sent)


class GroupMember(Client):
    """A member of a group, which acknowledges late."""

    def __init__(self, world: World, chance: random.Random, client_id: str) -> None:
        super().__init__(world, chance, client_id)
        self.unacknowledged: list[tuple[int, bytes]] = []
        self.peer.subscribe((GROUP, 1))

    def reopen(self) -> None:
        super().reopen()
        self.unacknowledged = []
        self.take(self.peer.greeting)

    def take(self, answers: list[Answer]) -> None:
        self.unacknowledged += [(each.packet_id, each.payload) for each in self.peer.published(answers)]

    def step(self) -> list[bytes]:
        """Acknowledge some messages; return them."""
        self.take(self.peer.receive())
        count = self.chance.randrange(len(self.unacknowledged) + 1)
        now, self.unacknowledged = self.unacknowledged[:count], self.unacknowledged[count:]
        for packet_id, _ in now:
            self.acknowledge(packets.PUBACK, packet_id)
        return [payload for _, payload in now]


@pytest.mark.parametrize("seed", SEEDS)
def test_group_acknowledges_each_message_once(seed: int) -> None:
    world, chance = World(), random.Random(seed)
    members = [GroupMember(world, chance, f"m{number}") for number in range(3)]
    sender = world.connect("sender")
    count, got = 0, Counter[bytes]()
    for _ in range(STEPS):
        match chance.randrange(10):
            case 0:
                chance.choice(members).reopen()
            case number if number < 5:
                count += 1
                sender.publish(f"t/{count % 3}", b"%d" % count, 1, count)
            case _:
                got.update(chance.choice(members).step())
    members.pop().peer.drop()
    for _ in range(STEPS):
        for member in members:
            got.update(member.step())
    assert got == Counter(b"%d" % number for number in range(1, count + 1))
    [group] = [durable for durable in world.broker.durables.values() if durable.info.client_id == GROUP]
    assert (group.pending.count, group.in_flight()) == (0, [])
