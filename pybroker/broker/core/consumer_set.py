"""The consumers of a queue, and the choice of the consumer that gets a message.

Consumers of a higher priority are filled to their windows first. Consumers of equal priority are chosen in turn. While
the queue has an exclusive consumer, the others get nothing. A message of a group goes to the owner of the group. If the
group has no owner, the message goes to the consumer that owns the fewest groups, of those with the highest priority
that have capacity, and this consumer becomes the owner.

In two cases ActiveMQ delivers a message to no consumer, and this class delivers it:

* The owner's selector refuses the message. Another consumer gets it, and the owner keeps the group.
* The owner is not the exclusive consumer. The exclusive consumer gets the message, and becomes the owner.

Source: ActiveMQ 5.17, `Queue.addSubscription`, `Queue.removeSubscription`, `QueueDispatchSelector`.
"""

from bisect import bisect_right

from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.groups import MessageGroups
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.reference import Reference
from pybroker.broker.domain.message import Message

_PRIORITY_MAX = 127
"""An exclusive consumer of this priority replaces even an exclusive consumer of the same priority."""


class ConsumerSet:
    """The consumers of one queue.

    Attributes:
        all: the consumers, in the order in which messages are offered.
        exclusive: the consumer that gets all messages, if there is an exclusive one.
        eligible: the consumers that may get messages now: the exclusive one, or all.
        groups: the message groups; None until the queue has a message that belongs to one.
        accepts_any: True while every eligible consumer accepts every message. The oldest message then goes to the first
            consumer with capacity, and if a message waits, no consumer has capacity.
    """

    __slots__ = (
        "_are_equal",
        "_is_exclusive_default",
        "_takes_turns",
        "accepts_any",
        "all",
        "eligible",
        "exclusive",
        "groups",
    )

    def __init__(self, policy: DestinationPolicy) -> None:
        self.all: list[BrokerConsumer] = []
        self.eligible = self.all
        self.exclusive: BrokerConsumer | None = None
        self.groups: MessageGroups | None = None
        self.accepts_any = True
        self._takes_turns = not policy.strict_order_dispatch
        self._is_exclusive_default = policy.all_consumers_exclusive_by_default
        self._are_equal = True

    def add(self, consumer: BrokerConsumer) -> None:
        """Add a consumer, behind the others of its priority."""
        self.all.insert(bisect_right(self.all, _rank(consumer), key=_rank), consumer)
        if self._wants_all(consumer):
            priority = consumer.request.priority
            if self.exclusive is None or priority >= _PRIORITY_MAX or priority > self.exclusive.request.priority:
                self.exclusive = consumer
        self._recompute()

    def remove(self, consumer: BrokerConsumer) -> bool:
        """Remove a consumer; return True if others may now get messages that only it could get before."""
        self.all.remove(consumer)
        frees = consumer is self.exclusive
        if frees:
            self.exclusive = next((each for each in self.all if self._wants_all(each)), None)
        if self.groups is not None:
            self.groups.leave(consumer)
            frees |= self.groups.reopened is not None
        self._recompute()
        return frees

    def ensure_groups(self) -> MessageGroups:
        """Return the message groups, which are created for the first message that belongs to one."""
        if self.groups is None:
            self.groups = MessageGroups()
            self.accepts_any = False
        return self.groups

    def choose(self, reference: Reference) -> BrokerConsumer | None:
        """Return a message's consumer, None if it has to wait; while `accepts_any`: `first_with_capacity`."""
        message = reference.message
        if message.group_id is not None and self.groups is not None:
            return self._choose_for_group(reference, self.groups)
        for consumer in self.eligible:
            if consumer.has_capacity and consumer.accepts(message, reference.redelivery_count):
                return consumer
        return None

    def first_with_capacity(self) -> BrokerConsumer | None:
        """Return the first consumer with capacity."""
        for consumer in self.eligible:
            if len(consumer.outstanding) < consumer.window:
                return consumer
        return None

    def record_group_delivery(self, message: Message, consumer: BrokerConsumer) -> bool:
        """Record that a consumer gets a message; return True if it is the consumer's first message of that group."""
        groups = self.ensure_groups()
        owner = groups.owner(message)
        if owner is None or owner is consumer or self.exclusive is consumer:
            return groups.deliver(message, consumer)
        return False

    def rotate(self, consumer: BrokerConsumer) -> None:
        """Move a consumer that got a message behind the others of its priority."""
        consumers = self.all
        if len(consumers) == 1 or not self._takes_turns or self.exclusive is not None:
            return
        consumers.remove(consumer)
        if self._are_equal:
            consumers.append(consumer)
        else:
            consumers.insert(bisect_right(consumers, _rank(consumer), key=_rank), consumer)

    def _choose_for_group(self, reference: Reference, groups: MessageGroups) -> BrokerConsumer | None:
        message, count = reference.message, reference.redelivery_count
        owner = groups.owner(message)
        if owner is not None and self.exclusive in (None, owner) and owner.accepts(message, count):
            if owner.has_capacity:
                return owner
            groups.passed_over(message, reference.sequence)
            return None
        best: BrokerConsumer | None = None
        for consumer in self.eligible:
            if best is not None and _rank(consumer) > _rank(best):
                break
            is_better = best is None or groups.count(consumer) < groups.count(best)
            if is_better and consumer.has_capacity and consumer.accepts(message, count):
                best = consumer
        return best

    def _wants_all(self, consumer: BrokerConsumer) -> bool:
        return consumer.request.exclusive or self._is_exclusive_default

    def _recompute(self) -> None:
        self.eligible = self.all if self.exclusive is None else [self.exclusive]
        self._are_equal = not self.all or _rank(self.all[0]) == _rank(self.all[-1])
        self.accepts_any = self.groups is None and not any(consumer.is_selective for consumer in self.eligible)


def _rank(consumer: BrokerConsumer) -> int:
    return -consumer.request.priority
