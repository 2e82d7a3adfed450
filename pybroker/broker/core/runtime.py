"""What everything in one broker's core works with, as one object."""

from dataclasses import dataclass

from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.observers import Observers
from pybroker.broker.core.policy import DestinationPolicy, PolicyMap
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.ports import Clock, MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreRuntime:
    """The world of one broker's core.

    Attributes:
        store: keeps what outlives the process.
        clock: milliseconds since the epoch.
        policies: the rules for destinations.
        usage: the memory that all messages take.
        dead_letters: takes what nobody could use.
        observers: hear of what happens.
    """

    store: MessageStore
    clock: Clock
    policies: PolicyMap
    usage: Usage
    dead_letters: DeadLetters
    observers: Observers

    def policy(self, destination: Destination) -> DestinationPolicy:
        """Return the rules for a destination."""
        return self.policies.for_destination(destination)
