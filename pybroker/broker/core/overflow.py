"""The waiting messages of a slow topic consumer, and the choice of the message to drop when there are too many.

Source: ActiveMQ 5.17, `OldestMessageEvictionStrategy`, `OldestMessageWithLowestPriorityEvictionStrategy`.
"""

from collections import deque
from typing import Protocol

from pybroker.broker.core.pending import Pending
from pybroker.broker.core.policy import Eviction
from pybroker.broker.core.reference import Reference, ReferenceState
from pybroker.broker.domain.openwire.routing import PRIORITY_MAX


class Overflow(Protocol):
    """Waiting references, oldest first."""

    def __len__(self) -> int: ...

    def append(self, reference: Reference, /) -> None:
        """Add the newest reference."""
        ...

    def popleft(self) -> Reference:
        """Remove and return the oldest reference, to be delivered."""
        ...

    def evict(self) -> Reference:
        """Remove and return the reference to drop."""
        ...


def overflow(eviction: Eviction) -> Overflow:
    """Return an empty list of waiting messages that drops by this strategy."""
    return _LowestPriorityGoes() if eviction is Eviction.OLDEST_WITH_LOWEST_PRIORITY else _OldestGoes()


class _OldestGoes(deque[Reference]):
    """Drops the oldest message."""

    def evict(self) -> Reference:
        return self.popleft()


class _LowestPriorityGoes:
    """Drops the oldest message of the lowest priority; delivery is by age.

    Both delivery and eviction remove the oldest message of its priority, so each of the ten lists shrinks at its front.
    """

    def __init__(self) -> None:
        self._all = Pending()
        self._by_priority: list[deque[Reference]] = [deque() for _ in range(PRIORITY_MAX + 1)]

    def __len__(self) -> int:
        return self._all.count

    def append(self, reference: Reference) -> None:
        self._all.append(reference)
        self._by_priority[reference.message.priority].append(reference)

    def popleft(self) -> Reference:
        reference = self._all.pop(ReferenceState.DISPATCHED)
        self._by_priority[reference.message.priority].popleft()
        return reference

    def evict(self) -> Reference:
        reference = next(references for references in self._by_priority if references).popleft()
        self._all.remove(reference, ReferenceState.SETTLED)
        self._all.compact()
        return reference
