"""Messages that come over bridges, while answers are lost, paths change and the broker crashes between any two batches.

The store has a history: a crash leaves its beginning, up to some batch after the last one that was durable. A message
whose acknowledgement is in that beginning is never delivered again, and each message is delivered in the end.
"""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination, parse
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import decode, to_message
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import Client, World, make_message

COUNT = 8
QUEUES = ("queue://Q", "queue://P")
BRIDGES = (0, 1)

_Contents = dict[Destination, dict[str, Message]]

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("forward"), st.sampled_from(BRIDGES), st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=4)
        ),
        st.tuples(st.just("turn"), st.just(0), st.just(())),
        st.tuples(st.just("sync"), st.just(0), st.just(())),
        st.tuples(st.just("acknowledge"), st.integers(0, COUNT - 1), st.just(())),
        st.tuples(st.just("cut"), st.sampled_from(BRIDGES), st.just(())),
        st.tuples(st.just("crash"), st.integers(0, 8), st.just(())),
    ),
    max_size=30,
)


class CrashingStore(MemoryStore):
    """Keeps the states after each batch since the last sync, each with what consumers had acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.acknowledged: set[str] = set()
        self.waiting: list[Callable[[], None]] = []
        self.states: list[tuple[_Contents, set[str]]] = []
        self.end_batch()

    def when_durable(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)

    def sync(self) -> None:
        """Make all batches durable, and call back."""
        del self.states[:-1]
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()

    def crash(self, number: int) -> None:
        """Lose the batches behind one of them."""
        self._messages, self.acknowledged = self.states[min(number, len(self.states) - 1)]
        self.states.clear()
        self.waiting.clear()
        self.end_batch()

    def end_batch(self) -> None:
        """Take what has changed for one batch: a store writes the changes of a turn of the event loop together."""
        contents = {destination: dict(messages) for destination, messages in self._messages.items()}
        self.states.append((contents, set(self.acknowledged)))


class Acceptor:
    """A broker with a consumer, to which two bridges forward the messages of one other broker."""

    def __init__(self) -> None:
        self.messages = [_message(number) for number in range(COUNT)]
        self.numbers = {each.message_id: number for number, each in enumerate(self.messages)}
        self.waiting = set(range(COUNT))
        self.unanswered: list[set[int]] = [set() for _ in BRIDGES]
        self.store = CrashingStore()
        self.duplicates: list[str] = []
        self.turns: list[Callable[[], None]] = []
        self.deliveries: dict[int, tuple[Client, Delivery]] = {}
        self.world = World(self.store)
        self.start()

    def start(self) -> None:
        self.turns.clear()
        self.deliveries.clear()
        self.world.start().paging.later = self.turns.append
        self.bridges = [self.world.client() for _ in BRIDGES]
        consumer = self.world.client()
        self.consumers = {
            parse(name): consumer.connection.subscribe(ConsumerRequest(destination=parse(name)), self.deliver)
            for name in QUEUES
        }
        for each in self.consumers.values():
            each.start()
        self.turn()

    def deliver(self, delivery: Delivery) -> None:
        message_id = delivery.message.message_id
        number = self.numbers[message_id]
        if message_id in self.store.acknowledged or number in self.deliveries:
            self.duplicates.append(message_id)  # the broker would contain an error that is raised here
        self.deliveries[number] = self.bridges[0], delivery

    def turn(self) -> None:
        while self.turns:
            self.turns.pop(0)()

    def forward(self, bridge: int, numbers: list[int]) -> None:
        sent = [number for number in dict.fromkeys(numbers) if number in self.waiting]
        unanswered = self.unanswered[bridge]
        for number in sent:
            self.waiting.remove(number)
            unanswered.add(number)
            self.bridges[bridge].connection.send(self.messages[number], answered=True)
        self.bridges[bridge].connection.when_confirmed(lambda: unanswered.difference_update(sent))

    def acknowledge(self, number: int) -> None:
        found = self.deliveries.pop(number, None)
        if found is not None:
            message = self.messages[number]
            self.store.acknowledged.add(message.message_id)
            self.consumers[message.destination].acknowledge(found[1])

    def cut(self, bridge: int) -> None:
        """Lose the answers: messages without one wait to be forwarded again, as redelivered, over any bridge."""
        for number in self.unanswered[bridge]:
            self.messages[number] = to_message(replace(decode(self.messages[number].data), redelivery_counter=1))
        self.waiting |= self.unanswered[bridge]
        self.unanswered[bridge] = set()

    def crash(self, number: int) -> None:
        self.store.crash(number)
        for bridge in BRIDGES:
            self.cut(bridge)
        self.start()

    def finish(self) -> None:
        for bridge in BRIDGES:
            self.cut(bridge)
        self.forward(0, list(range(COUNT)))
        self.turn()
        for number in range(COUNT):
            self.acknowledge(number)
        self.turn()
        self.store.sync()


def _message(number: int) -> Message:
    made = decode(make_message(str(number), QUEUES[number % 2]).data)
    producer_id = ProducerId(f"ID:origin-{number % 3}", 1, 1)
    return to_message(
        replace(
            made,
            message_id=OpenWireMessageId(None, producer_id, number + 1),
            producer_id=producer_id,
            broker_path=("ID:a",),
        )
    )


@given(STEPS)
def test_each_message_is_consumed_once(steps: list[tuple[str, int, list[int]]]) -> None:
    acceptor = Acceptor()
    for name, number, numbers in steps:
        match name:
            case "forward":
                acceptor.forward(number, numbers)
            case "acknowledge":
                acceptor.acknowledge(number)
            case "cut":
                acceptor.cut(number)
            case "crash":
                acceptor.crash(number)
            case "sync":
                acceptor.store.sync()
            case _:
                acceptor.turn()
        acceptor.store.end_batch()
    acceptor.finish()
    assert acceptor.store.acknowledged == {each.message_id for each in acceptor.messages}
    assert not any(acceptor.unanswered)
    assert not acceptor.duplicates
