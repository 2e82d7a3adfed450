"""Operations on two queues do what a model of two lists does, whatever clients and restarts do between them."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pybroker.broker.core.broker import Limits
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.domain.operations import (
    FROM_THE_BEGINNING,
    MessageSelection,
    MessageState,
    OperationResult,
)
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import Inbox, World
from tests.unit.core.operators import ACTOR, TARGET, Loop, Operator, Q, names_of

BODY = "x" * 500
"""With the limit below, some 20 messages are paged out."""

MEMORY_BYTES = 300_000

REMAINDERS = st.integers(0, 4)
MAXIMA = st.none() | st.integers(0, 12)


class OperatedQueues(RuleBasedStateMachine):
    """A queue with a consumer now and then, a target, and the lists of their messages, oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(
            MemoryStore(supports_paging=True),
            DestinationPolicy(max_redeliveries=-1, memory_limit=MEMORY_BYTES // 10, producer_flow_control=False),
            Limits(memory_bytes_max=MEMORY_BYTES),
        )
        self.operator = Operator(self.world)
        self.queue: list[int] = []
        self.target: list[int] = []
        self.in_flight: list[int] = []
        self.lasting: set[int] = set()
        self.ids: dict[int, str] = {}
        self.number = 0
        self.inbox: Inbox | None = None
        self.window = 0

    @initialize()
    def begin(self) -> None:
        self.send(3, is_persistent=True)

    # ------------------------------------------------------------ clients

    @rule(count=st.integers(1, 30), is_persistent=st.booleans())
    def send(self, count: int, is_persistent: bool) -> None:
        client = self.world.client()
        for _ in range(count):
            name, self.number = f"{self.number:06}{BODY}", self.number + 1
            client.send("queue://Q", name, persistent=is_persistent, properties={"n": (self.number - 1) % 5})
            self.queue.append(self.number - 1)
            if is_persistent:
                self.lasting.add(self.number - 1)
        self.operator.loop.run()
        self._deliver()

    @precondition(lambda self: self.inbox is None)
    @rule(window=st.integers(1, 8))
    def subscribe(self, window: int) -> None:
        self.inbox, self.window = self.world.client().subscribe("queue://Q", prefetch=window), window
        self.operator.loop.run()
        self._deliver()

    @precondition(lambda self: self.inbox is not None and self.in_flight)
    @rule(index=st.integers(0, 7))
    def acknowledge(self, index: int) -> None:
        assert self.inbox is not None
        number = self.in_flight.pop(index % len(self.in_flight))
        delivery = next(each for each in self.inbox.deliveries if self._number(self.inbox, each) == number)
        self.inbox.deliveries.remove(delivery)
        self.inbox.consumer.acknowledge(delivery)
        self.operator.loop.run()
        self._deliver()

    @precondition(lambda self: self.inbox is not None)
    @rule()
    def close(self) -> None:
        assert self.inbox is not None
        self.inbox.consumer.close()
        self.operator.loop.run()
        self.inbox = None
        self.queue = sorted(self.queue + self.in_flight)
        self.in_flight = []

    @rule()
    def restart(self) -> None:
        """Kill the broker, and start the next one."""
        self.inbox = None
        self.queue = sorted(self.lasting.intersection(self.queue + self.in_flight))
        self.target = [each for each in self.target if each in self.lasting]
        self.in_flight = []
        self.world.start()
        self.operator = Operator(self.world, loop=Loop())

    # ------------------------------------------------------------ operators

    @rule(remainder=st.none() | REMAINDERS, maximum=MAXIMA)
    def remove(self, remainder: int | None, maximum: int | None) -> None:
        selected = self._selected(remainder, maximum)
        result = self._begin("remove", self._selection(remainder, maximum), ACTOR)
        assert result.affected == len(selected)
        assert result.in_flight == len(self.in_flight)
        self.queue = [each for each in self.queue if each not in selected]

    @rule(remainder=st.none() | REMAINDERS, maximum=MAXIMA)
    def move(self, remainder: int | None, maximum: int | None) -> None:
        self._transfer("move", remainder, maximum)

    @rule(remainder=st.none() | REMAINDERS, maximum=MAXIMA)
    def copy(self, remainder: int | None, maximum: int | None) -> None:
        self._transfer("copy", remainder, maximum)

    @rule(data=st.data())
    def move_by_ids(self, data: Any) -> None:
        known = [each for each in self.queue if each in self.ids]
        wanted = data.draw(st.sets(st.sampled_from(known), max_size=6) if known else st.just(set()))
        selection = MessageSelection(message_ids=frozenset(self.ids[each] for each in wanted))
        there = {each for each in wanted if self._is_refused(each)}
        result = self._begin("move", TARGET, selection, ACTOR)
        assert (result.affected, result.skipped) == (len(wanted - there), len(there))
        self.target += sorted(wanted - there)
        self.queue = [each for each in self.queue if each not in wanted or each in there]

    @rule(remainder=st.none() | REMAINDERS, maximum=MAXIMA)
    def count(self, remainder: int | None, maximum: int | None) -> None:
        result = self._begin("count", self._selection(remainder, maximum))
        assert result.affected == len(self._selected(remainder, maximum))

    @rule(remainder=st.none() | REMAINDERS, size=st.integers(1, 9))
    def browse(self, remainder: int | None, size: int) -> None:
        self._ensure_queue()
        cursor, shown = FROM_THE_BEGINNING, list[int]()
        while True:
            page = self.operator.browse(cursor, self._selection(remainder, None).selector, count=size)
            if not page.messages:
                break
            shown += [int(name[:6]) for name in names_of(page)]
            cursor = page.cursor
            held = [each for each in page.messages if each.state is MessageState.IN_FLIGHT]
            assert all(each.holder is not None for each in held)
            self.ids.update(
                zip(shown[-len(page.messages) :], [m.message.message_id for m in page.messages], strict=True)
            )
        expected = sorted(self.queue + self.in_flight)
        assert shown == [each for each in expected if remainder is None or each % 5 == remainder]

    # ------------------------------------------------------------ what holds

    @invariant()
    def counts_agree(self) -> None:
        state = self.world.broker.admin.state(Q)
        if state is not None:
            assert state.counters.size == len(self.queue) + len(self.in_flight)
            assert state.counters.in_flight == len(self.in_flight)
        if TARGET in self.world.broker.queues:
            assert self.world.broker.queues[TARGET].pending.count == len(self.target)

    def teardown(self) -> None:
        self.browse(None, 9)
        assert [int(name[:6]) for name in self.operator.names(TARGET)] == self.target
        self.restart()
        self.browse(None, 9)
        assert [int(name[:6]) for name in self.operator.names(TARGET)] == self.target

    # ------------------------------------------------------------ private

    def _transfer(self, act: str, remainder: int | None, maximum: int | None) -> None:
        """Move or copy; what the target has already is skipped, and does not count for the maximum."""
        moved: list[int] = []
        skipped = 0
        for each in self._selected(remainder, None):
            if maximum is not None and len(moved) >= maximum:
                break
            if self._is_refused(each):
                skipped += 1
            else:
                moved.append(each)
        result = self._begin(act, TARGET, self._selection(remainder, maximum), ACTOR)
        assert result.affected == len(moved)
        assert result.skipped >= skipped
        self.target += moved
        if act == "move":
            self.queue = [each for each in self.queue if each not in moved]

    def _begin(self, act: str, *arguments: Any) -> OperationResult:
        self._ensure_queue()
        getattr(self.world.broker.operations, act)(Q, *arguments, self.operator.results.append)
        result = self.operator.result()
        assert result.error is None
        return result

    def _ensure_queue(self) -> None:
        """Create the queue if a broker has begun without it, as it was empty."""
        if Q not in self.world.broker.queues:
            self.world.broker.operations.create(Q, ACTOR, lambda: None)

    def _selection(self, remainder: int | None, maximum: int | None) -> MessageSelection:
        return MessageSelection(selector=None if remainder is None else f"n = {remainder}", maximum=maximum)

    def _is_refused(self, number: int) -> bool:
        """Return True if the target has a message already: the store knows that of persistent ones alone."""
        return number in self.lasting and number in self.target

    def _selected(self, remainder: int | None, maximum: int | None) -> list[int]:
        return [each for each in self.queue if remainder is None or each % 5 == remainder][:maximum]

    def _deliver(self) -> None:
        """Fill the window of the consumer."""
        if self.inbox is not None:
            while self.queue and len(self.in_flight) < self.window:
                self.in_flight.append(self.queue.pop(0))
            assert sorted(self._number(self.inbox, each) for each in self.inbox.deliveries) == sorted(self.in_flight)

    def _number(self, inbox: Inbox, delivery: Any) -> int:
        return int(inbox.ids[inbox.deliveries.index(delivery)][:6])


TestOperatedQueues = OperatedQueues.TestCase
TestOperatedQueues.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
