"""The observers of a broker: the core announces an event once, and each observer is notified."""

from collections.abc import Callable

from pybroker.broker.core.containment import contain
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.observer import Observer


class Observers:
    """The observers of one broker.

    Attributes:
        generation: grows whenever an observer may begin or cease to use the events about each message.
    """

    __slots__ = ("_all", "generation")

    def __init__(self) -> None:
        self._all: list[Observer] = []
        self.generation = 0

    def add(self, observer: Observer) -> None:
        """Add an observer, which is notified after those added before."""
        self._all.append(observer)
        self.advance_generation()

    def advance_generation(self) -> None:
        """Ask the observers again whether they use the events about the next message of each destination."""
        self.generation += 1

    def use_messages_of(self, destination: Destination) -> bool:
        """Return True if one of them uses the events about each message of a destination now."""
        return any([observer.uses_messages_of(destination) for observer in self._all])

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


class MessageEvents:
    """The events about each message of one destination, which are announced only while an observer uses them.

    The observers' answer is kept until it may have changed, so that a message costs a comparison while none does.
    """

    __slots__ = ("_are_used", "_destination", "_generation", "_observers")

    def __init__(self, destination: Destination, observers: Observers) -> None:
        self._destination = destination
        self._observers = observers
        self._generation = -1
        self._are_used = False

    @property
    def are_used(self) -> bool:
        """True while an observer uses them."""
        generation = self._observers.generation
        if self._generation != generation:
            self._generation = generation
            self._are_used = self._observers.use_messages_of(self._destination)
        return self._are_used

    def announce(self, event: Callable[[Observer], None]) -> None:
        """Notify each observer of an event; see `Observers.announce`."""
        self._observers.announce(event)
