"""The waiting messages of a slow topic consumer, and the choice of the message to drop when there are too many.

Source: ActiveMQ 5.17, `OldestMessageEvictionStrategy`, `OldestMessageWithLowestPriorityEvictionStrategy`.
"""

from collections import deque
from typing import Protocol

from pybroker.broker.core.policy import Eviction
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.routing import PRIORITY_MAX


class Overflow(Protocol):
    """Waiting messages, oldest first.

    A message that waits for many consumers is one object, so each of them adds a pointer only.
    """

    def __len__(self) -> int: ...

    def append(self, message: Message, /) -> None:
        """Add the newest message."""
        ...

    def popleft(self) -> Message:
        """Remove and return the oldest message, to be delivered."""
        ...

    def evict(self) -> Message:
        """Remove and return the message to drop."""
        ...


def overflow(eviction: Eviction) -> Overflow:
    """Return an empty list of waiting messages that drops by this strategy."""
    return _LowestPriorityGoes() if eviction is Eviction.OLDEST_WITH_LOWEST_PRIORITY else _OldestGoes()


class _OldestGoes(deque[Message]):
    """Drops the oldest message."""

    def evict(self) -> Message:
        return self.popleft()


class _LowestPriorityGoes:
    """Drops the oldest message of the lowest priority; delivery is by age.

    Both delivery and eviction remove the oldest message of its priority, so each of the ten lists shrinks at its front.
    """

    def __init__(self) -> None:
        self._count = 0
        self._next = 0
        self._by_priority: list[deque[tuple[int, Message]]] = [deque() for _ in range(PRIORITY_MAX + 1)]
        """The messages of each priority, with their numbers in the order of arrival."""

    def __len__(self) -> int:
        return self._count

    def append(self, message: Message) -> None:
        self._by_priority[message.priority].append((self._next, message))
        self._next += 1
        self._count += 1

    def popleft(self) -> Message:
        return self._remove(min((each for each in self._by_priority if each), key=_first_number))

    def evict(self) -> Message:
        return self._remove(next(each for each in self._by_priority if each))

    def _remove(self, messages: deque[tuple[int, Message]]) -> Message:
        self._count -= 1
        return messages.popleft()[1]


def _first_number(messages: deque[tuple[int, Message]]) -> int:
    return messages[0][0]
