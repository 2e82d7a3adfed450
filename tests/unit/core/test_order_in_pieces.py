"""A queue's order while deliveries and searches take many turns, and consumers of all kinds come and go between them.

Each message is first delivered to a consumer behind the older ones that this consumer gets, none is lost or delivered
to two consumers at a time, and at rest none waits that a consumer with capacity accepts.
"""

import random
from unittest import mock

import pytest

from pybroker.broker.core import queue as queue_module
from pybroker.broker.core.paging import PIECE_SECONDS
from pybroker.broker.core.search import Search
from pybroker.broker.domain.delivery import Delivery
from tests.compiled import interpreted
from tests.unit.core.backlogs import Client
from tests.unit.core.test_pieces import LoopWorld

STEPS = 150
PIECE = 9
SEEDS = 25

SELECTORS = ([None, None, None, "n = 1", "n <> 1", "n = 4"], [*[None] * 12, "n = 4"])
CLIENTS_MAX = 3


class History:
    """A random history of one queue.

    Attributes:
        sent: the group of each message, by its number.
    """

    def __init__(self, seed: int, *, has_groups: bool, has_exclusive: bool) -> None:
        self.dice = random.Random(seed)
        self.has_groups, self.has_exclusive = has_groups, has_exclusive
        seconds = self.dice.choice([0.0, PIECE_SECONDS / 3, PIECE_SECONDS])
        self.world = LoopWorld(seconds_per_read=seconds, max_redeliveries=-1)
        self.selectors = self.dice.choice(SELECTORS)
        self.clients: list[Client] = []
        self.sent: list[str | None] = []
        self.acknowledged: set[str] = set()
        self._delivered: set[str] = set()
        self._overtaken: list[int] = []
        self._last: dict[tuple[Client, str | None], int] = {}

    def step(self) -> None:
        """Do one thing."""
        dice = self.dice
        actions = [
            self.send,
            self.send,
            self.open,
            self.acknowledge,
            self.acknowledge,
            self.world.turn,
            self.world.turn,
        ]
        dice.choice([*actions, self.pull, self.pause, self.resume, self.close, self.settle])()

    def send(self) -> None:
        for _ in range(self.dice.choice([1, 2, PIECE, 30])):
            group = self.dice.choice([None, None, "a", "b"]) if self.has_groups and self.dice.random() < 0.3 else None
            self.sent.append(group)
            number = len(self.sent) - 1
            kind = 1 if group else self.dice.randint(1, 3)  # what the owner of a group refuses, others get at once
            self.world.put(str(number), group_id=group, properties={"n": kind})

    def open(self, **request: object) -> None:
        dice = self.dice
        wanted: dict[str, object] = {
            "selector": dice.choice(self.selectors),
            "prefetch": dice.choice([0, 5, 1000, 1000]),
            "priority": dice.choice([0, 0, 1]),
            "exclusive": self.has_exclusive and dice.random() < 0.2,
        }
        client = self.world._client("queue://Q", wanted | request)
        deliver = client.deliver
        client.deliver = lambda delivery: self._note(client, delivery, deliver(delivery))  # type: ignore[method-assign]
        while len(self.clients) >= CLIENTS_MAX:
            self.close()
        self.clients.append(client)
        self.world.queue.attach(client.consumer)
        client.consumer.start()

    def acknowledge(self) -> None:
        for client in self.clients:
            for _ in range(min(len(client.unsettled), self.dice.choice([0, 1, 40]))):
                self.acknowledged.add(name(client.unsettled[0], client))
                client.ack()

    def pull(self) -> None:
        for client in self.clients:
            if not client.consumer.request.prefetch:
                client.consumer.pull(self.dice.randint(1, 30))

    def pause(self) -> None:
        if self.clients:
            self.dice.choice(self.clients).pause()

    def resume(self) -> None:
        for client in self.clients:
            client.resume()

    def close(self) -> None:
        if self.clients:
            self.clients.pop(self.dice.randrange(len(self.clients))).close()

    def settle(self) -> None:
        """Run the loop until it rests, and look at everything."""
        for _ in range(10_000):
            if not self.world.turns:
                break
            self.world.turn()
        else:
            pytest.fail("the loop does not come to rest")
        assert not self._overtaken
        queue = self.world.queue
        waiting = list(queue.pending)
        stuck = [reference.sequence for reference in waiting if queue.consumer_set.choose(reference) is not None]
        assert not stuck, "a message waits that a consumer with capacity accepts"
        assert queue._progress is Search.IDLE or not waiting
        held = [name(delivery, client) for client in self.clients for delivery in client.unsettled]
        found = [*held, *self.acknowledged, *(str(reference.sequence) for reference in waiting)]
        assert sorted(found, key=int) == [str(number) for number in range(len(self.sent))]

    def drain(self) -> None:
        """Have one consumer get the rest, in its order."""
        while self.clients:
            self.close()
        self.settle()
        self.open(selector=None, prefetch=100_000)
        self.settle()
        (client,) = self.clients
        assert {*client.names} | self.acknowledged == {str(number) for number in range(len(self.sent))}
        assert client.names == sorted(client.names, key=int)

    def _note(self, client: Client, delivery: Delivery, _: None) -> None:
        """Note if a first delivery comes behind newer ones of its group, or of messages without one."""
        named = name(delivery, client)
        if named not in self._delivered:
            self._delivered.add(named)
            number, group = int(named), self.sent[int(named)]
            if number < self._last.get((client, group), -1):
                self._overtaken.append(number)
            self._last[client, group] = number


def name(delivery: Delivery, client: Client) -> str:
    """Return the name of a message that a client got."""
    return client.names[client.got.index(delivery)]


@interpreted
@pytest.mark.parametrize("has_groups", [False, True])
@pytest.mark.parametrize("has_exclusive", [False, True])
def test_order_is_kept_while_consumers_come_and_go(*, has_groups: bool, has_exclusive: bool) -> None:
    with mock.patch.object(queue_module, "PIECE_MAX", PIECE):
        for seed in range(SEEDS):
            history = History(seed, has_groups=has_groups, has_exclusive=has_exclusive)
            try:
                for _ in range(STEPS):
                    history.step()
                history.settle()
                history.drain()
            except AssertionError as error:
                error.add_note(f"seed {seed}")
                raise
