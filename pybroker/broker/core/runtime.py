"""The objects that all parts of one broker's core share, as one value."""

from dataclasses import dataclass

from pybroker.broker.core.bridged_messages import BridgedMessages
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.object_memory import ObjectMemory
from pybroker.broker.core.observers import Observers
from pybroker.broker.core.policy import DestinationPolicy, PolicyMap
from pybroker.broker.core.retained_messages import RetainedMessages
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.ports import Clock, MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreRuntime:
    """The shared objects of one broker's core.

    Attributes:
        store: keeps messages, subscriptions and transactions across crashes.
        clock: milliseconds since the epoch.
        policies: the policies of destinations.
        usage: the memory usage of all messages.
        dead_letters: gets messages that expire, or cannot be delivered.
        observers: are notified of events.
        objects: the memory of what clients create.
        retained: the stored retained messages of all topics.
        bridged: which messages have come over bridges.
    """

    store: MessageStore
    clock: Clock
    policies: PolicyMap
    usage: Usage
    dead_letters: DeadLetters
    observers: Observers
    objects: ObjectMemory
    retained: RetainedMessages
    bridged: BridgedMessages

    def policy(self, destination: Destination) -> DestinationPolicy:
        """Return the policy of a destination."""
        return self.policies.for_destination(destination)
