"""The observers of a broker: the core announces an event once, and each observer is notified."""

from collections.abc import Callable

from pybroker.broker.core.containment import contain
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.observer import Observer


class Observers:
    """The observers of one broker."""

    __slots__ = ("_all",)

    def __init__(self) -> None:
        self._all: list[Observer] = []

    def add(self, observer: Observer) -> None:
        """Add an observer, which is notified after those added before."""
        self._all.append(observer)

    def announce(self, event: Callable[[Observer], None]) -> None:
        """Notify each observer of an event, which is a call of one of its methods.

        Raises:
            StoreError, LockError, OSError: as `contain`.
        """
        EFFORT.is_large = True  # it depends on who is subscribed to advisories, and events come of what is rare
        for observer in self._all:
            try:
                event(observer)
            except Exception as error:
                contain(error, "notifying an observer", about="an event")
