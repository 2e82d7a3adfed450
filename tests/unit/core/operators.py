"""An operator of a broker in tests: calls operations, turns the event loop, and returns what came back."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.domain.destination import Destination, parse
from pybroker.broker.domain.errors import BrokerError
from pybroker.broker.domain.openwire.message import view
from pybroker.broker.domain.operations import (
    EVERY_MESSAGE,
    FROM_THE_BEGINNING,
    Actor,
    BrowsedMessage,
    MessagePage,
    MessageSelection,
    OperationResult,
    Operations,
    PageLimits,
)
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import World

ACTOR = Actor("ops", "10.0.0.9")
Q = parse("queue://Q")
TARGET = parse("queue://TARGET")


class Loop:
    """An event loop, turned by hand."""

    def __init__(self) -> None:
        self.later: list[Callable[[], None]] = []
        self.turns = 0

    def turn(self) -> None:
        self.turns += 1
        callbacks, self.later[:] = list(self.later), []
        for callback in callbacks:
            callback()

    def run(self) -> None:
        """Turn until nothing is left to do."""
        while self.later:
            self.turn()


@dataclass
class Operator:
    """An operator of a world's broker, whose loop is turned by hand."""

    world: World
    loop: Loop = field(default_factory=Loop)
    results: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world.broker.usage.paging.later = self.loop.later.append

    @property
    def operations(self) -> Operations:
        """The port, as those who show and call it have it."""
        return self.world.broker.operations

    def browse(
        self,
        cursor: int = FROM_THE_BEGINNING,
        selector: str | None = None,
        queue: Destination = Q,
        **limits: float,
    ) -> MessagePage:
        self.operations.browse(
            queue,
            cursor,
            PageLimits(**limits),  # type: ignore[arg-type]
            selector,
            self.results.append,
        )
        return self.page()

    def page(self) -> MessagePage:
        self.loop.run()
        page = self.results.pop()
        assert isinstance(page, MessagePage), page
        return page

    def message(self, message_id: str) -> BrowsedMessage | None:
        self.operations.message(Q, message_id, self.results.append)
        self.loop.run()
        found = self.results.pop()
        assert found is None or isinstance(found, BrowsedMessage)
        return found

    def count(self, selection: MessageSelection = EVERY_MESSAGE) -> OperationResult:
        self.operations.count(Q, selection, self.results.append)
        return self.result()

    def remove(self, selection: MessageSelection = EVERY_MESSAGE) -> OperationResult:
        self.operations.remove(Q, selection, ACTOR, self.results.append)
        return self.result()

    def move(
        self, selection: MessageSelection = EVERY_MESSAGE, target: Destination = TARGET, queue: Destination = Q
    ) -> OperationResult:
        self.operations.move(queue, target, selection, ACTOR, self.results.append)
        return self.result()

    def copy(self, selection: MessageSelection = EVERY_MESSAGE, target: Destination = TARGET) -> OperationResult:
        self.operations.copy(Q, target, selection, ACTOR, self.results.append)
        return self.result()

    def retry(self, queue: Destination, selection: MessageSelection = EVERY_MESSAGE) -> OperationResult:
        self.operations.retry(queue, selection, ACTOR, self.results.append)
        return self.result()

    def result(self) -> OperationResult:
        self.loop.run()
        result = self.results.pop()
        assert isinstance(result, OperationResult)
        return result

    def names(self, queue: Destination = Q) -> list[str]:
        """Return the names of all messages of a queue, by browsing it page by page."""
        if queue not in self.world.broker.queues:
            return []
        found: list[str] = []
        cursor = FROM_THE_BEGINNING
        while (page := self.browse(cursor, queue=queue, count=7)).messages:
            found += names_of(page)
            cursor = page.cursor
        return found


def names_of(page: MessagePage) -> list[str]:
    return [(view(each.message).content or b"").decode() for each in page.messages]


def operated(store: MemoryStore | None = None, **policy: object) -> Operator:
    return Operator(World(store or MemoryStore(), DestinationPolicy(**policy)))  # type: ignore[arg-type]


def error_of(result: OperationResult) -> BrokerError:
    assert result.error is not None
    return result.error
