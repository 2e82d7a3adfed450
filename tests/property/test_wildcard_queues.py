# mypy: disable-error-code="arg-type"
"""Consumers of several queues, attached and served in pieces: in any history no message waits for nobody.

Between events, no message waits that a consumer with capacity accepts. A consumer of many queues visits only those
where messages may wait, so a queue that fails to wake it would keep its messages for ever.
"""

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pybroker.broker.core import subscribing
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.search import Search
from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.message import Message
from tests.compiled import interpreted
from tests.unit.core.conftest import Client, Inbox
from tests.unit.core.test_wildcard_queues import Loop

QUEUES = 6
PATTERNS = ("queue://A.*", "queue://>", "queue://A.1", "queue://A.0,A.2,A.4", "queue://*.3")
SELECTORS = (None, None, "color = 'red'", "color = 'blue'")


class Machine(RuleBasedStateMachine):
    """One sender, and some clients with consumers; turns of the event loop come when the rules say so."""

    def __init__(self) -> None:
        super().__init__()
        subscribing._FEW_QUEUES, self._few = 1, subscribing._FEW_QUEUES  # type: ignore[misc]
        self.loop = Loop()
        self.clients = [self.loop.world.client() for _ in range(2)]
        self.inboxes: list[tuple[Client, Inbox]] = []
        self.count = 0
        self.settled: Counter[str] = Counter()

    def teardown(self) -> None:
        subscribing._FEW_QUEUES = self._few  # type: ignore[misc]

    @rule(number=st.integers(0, QUEUES - 1), color=st.sampled_from(["red", "blue"]), count=st.integers(1, 4))
    def send(self, number: int, color: str, count: int) -> None:
        for _ in range(count):
            self.loop.sender.send(f"queue://A.{number}", str(self.count), properties={"color": color})
            self.count += 1

    @precondition(lambda self: not self.loop.turns)  # a client's input is held while its command is carried out
    @rule(
        client=st.sampled_from([0, 1]),
        pattern=st.sampled_from(PATTERNS),
        selector=st.sampled_from(SELECTORS),
        prefetch=st.integers(0, 5),
    )
    def subscribe(self, client: int, pattern: str, selector: str | None, prefetch: int) -> None:
        first, *others = pattern.removeprefix("queue://").split(",")
        composite = tuple(parse(f"queue://{name}") for name in others)
        owner = self.clients[client]
        inbox = owner.subscribe(f"queue://{first}", composite=composite, selector=selector, prefetch=prefetch)
        self.inboxes.append((owner, inbox))

    @precondition(lambda self: self.inboxes)
    @rule(data=st.data(), count=st.integers(1, 3), is_oldest=st.booleans())
    def acknowledge(self, data: st.DataObject, count: int, is_oldest: bool) -> None:
        inbox = self._inbox(data)
        for _ in range(min(count, len(inbox.deliveries))):
            delivery = inbox.deliveries.pop(0 if is_oldest else -1)
            if delivery in inbox.consumer.outstanding:
                self.settled[inbox.messages[delivery].message_id] += 1
                inbox.consumer.acknowledge(delivery)

    @precondition(lambda self: self.inboxes)
    @rule(data=st.data(), count=st.integers(1, 3))
    def acknowledge_and_roll_back(self, data: st.DataObject, count: int) -> None:
        owner, inbox = self._entry(data)
        transaction = owner.connection.begin()
        inbox.consumer.acknowledge_oldest(count, transaction)
        owner.connection.rollback(transaction)

    @precondition(lambda self: self.inboxes)
    @rule(data=st.data(), prefetch=st.integers(0, 5), pulled=st.integers(0, 2))
    def change_window(self, data: st.DataObject, prefetch: int, pulled: int) -> None:
        inbox = self._inbox(data)
        inbox.consumer.set_prefetch(prefetch)
        if not prefetch:
            inbox.consumer.pull(pulled)

    @precondition(lambda self: self.inboxes)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        entry = self._entry(data)
        self.inboxes.remove(entry)
        entry[1].consumer.close()

    @rule(client=st.sampled_from([0, 1]))
    def pause(self, client: int) -> None:
        self.clients[client].connection.pause()

    @rule(client=st.sampled_from([0, 1]))
    def resume(self, client: int) -> None:
        self.clients[client].connection.resume()

    @rule(count=st.integers(1, 5))
    def turns(self, count: int) -> None:
        for _ in range(count):
            self.loop.turn()

    @rule()
    def all_turns(self) -> None:
        self.loop.run()

    @invariant()
    def no_message_waits_that_a_consumer_accepts(self) -> None:
        if self.loop.turns:
            return
        for queue in self.loop.broker.queues.values():
            assert queue._progress is Search.IDLE or not queue.pending.count
            for message in self._waiting(queue):
                for _, inbox in self.inboxes:
                    consumer = inbox.consumer
                    if queue in consumer.sources and consumer.has_capacity:
                        assert not consumer.accepts(message), (message.message_id, queue.destination)

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        found = Counter(self.settled)
        for queue in self.loop.broker.queues.values():
            found.update(message.message_id for message in self._waiting(queue))
        for _, inbox in self.inboxes:
            found.update(reference.message.message_id for reference in inbox.consumer.outstanding)
        assert len(found) == self.count
        assert set(found.values()) <= {1}

    def _entry(self, data: st.DataObject) -> tuple[Client, Inbox]:
        return data.draw(st.sampled_from(self.inboxes))

    def _inbox(self, data: st.DataObject) -> Inbox:
        return self._entry(data)[1]

    @staticmethod
    def _waiting(queue: Queue) -> list[Message]:
        return [reference.message for level in queue.pending.levels for reference in level.in_memory()]


TestWildcardQueues = interpreted(Machine.TestCase)  # a compiled module keeps its own copy of the number of few queues
