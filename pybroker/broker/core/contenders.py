"""The consumers of a queue: who is asked first, who at all, and who gets a message.

Higher priorities are filled to their windows first, equal ones take turns. While there is an exclusive consumer the
others get nothing. A message of a group goes to the group's owner, or makes an owner of whoever gets it: of those of
the highest priority that have room, the one that owns fewest groups.

Where ActiveMQ lets nobody have a message, here somebody gets it: if the owner's selector refuses it, another consumer,
and the group stays where it is; if the owner is not the exclusive consumer, that one, which takes the group over.

Source: ActiveMQ 5.17, `Queue.addSubscription`, `Queue.removeSubscription`, `QueueDispatchSelector`.
"""

from bisect import bisect_right

from pybroker.broker.core.consumer import Consumer
from pybroker.broker.core.groups import MessageGroups
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.reference import Reference
from pybroker.broker.domain.message import Message

_PRIORITY_MAX = 127
"""An exclusive consumer of this priority takes over even from one like itself."""


class Contenders:
    """The consumers of one queue.

    Attributes:
        all: in the order in which they are asked.
        exclusive: the one consumer that gets everything, if there is one.
        eligible: those that may get anything now: that one, or all.
        groups: message groups; None until the first message that has one.
        is_plain: True while every eligible consumer takes any message. Then whoever has room gets what is oldest, and
            that something waits means that nobody has room.
    """

    __slots__ = (
        "_are_equal",
        "_is_exclusive_default",
        "_takes_turns",
        "all",
        "eligible",
        "exclusive",
        "groups",
        "is_plain",
    )

    def __init__(self, policy: DestinationPolicy) -> None:
        self.all: list[Consumer] = []
        self.eligible = self.all
        self.exclusive: Consumer | None = None
        self.groups: MessageGroups | None = None
        self.is_plain = True
        self._takes_turns = not policy.strict_order_dispatch
        self._is_exclusive_default = policy.all_consumers_exclusive_by_default
        self._are_equal = True

    def add(self, consumer: Consumer) -> None:
        """Let a consumer take part, behind those of its priority."""
        self.all.insert(bisect_right(self.all, _rank(consumer), key=_rank), consumer)
        if self._wants_all(consumer):
            priority = consumer.request.priority
            if self.exclusive is None or priority >= _PRIORITY_MAX or priority > self.exclusive.request.priority:
                self.exclusive = consumer
        self._review()

    def remove(self, consumer: Consumer) -> bool:
        """Let a consumer go; True when others may now get what it alone could get before."""
        self.all.remove(consumer)
        frees = consumer is self.exclusive
        if frees:
            self.exclusive = next((each for each in self.all if self._wants_all(each)), None)
        if self.groups is not None:
            self.groups.leave(consumer)
            frees |= self.groups.reopened is not None
        self._review()
        return frees

    def expect_groups(self) -> MessageGroups:
        """Return the groups, from now on kept: the queue has messages that belong to some."""
        if self.groups is None:
            self.groups = MessageGroups()
            self.is_plain = False
        return self.groups

    def choose(self, reference: Reference) -> Consumer | None:
        """Return the consumer that gets a message; None: it waits. While `is_plain` that is `with_room` as well."""
        message = reference.message
        if message.group_id is not None and self.groups is not None:
            return self._choose_for_group(reference, self.groups)
        for consumer in self.eligible:
            if consumer.has_room and consumer.accepts(message, reference.redelivery_count):
                return consumer
        return None

    def with_room(self) -> Consumer | None:
        """Return the first consumer with room."""
        for consumer in self.eligible:
            if len(consumer.outstanding) < consumer.window:
                return consumer
        return None

    def join_group(self, message: Message, consumer: Consumer) -> bool:
        """Note that a consumer gets a message; True when it is the first of its group that it gets."""
        groups = self.expect_groups()
        owner = groups.owner(message)
        if owner is None or owner is consumer or self.exclusive is consumer:
            return groups.deliver(message, consumer)
        return False

    def served(self, consumer: Consumer) -> None:
        """Note that a consumer got a message: next time its equals are asked before it."""
        consumers = self.all
        if len(consumers) == 1 or not self._takes_turns or self.exclusive is not None:
            return
        consumers.remove(consumer)
        if self._are_equal:
            consumers.append(consumer)
        else:
            consumers.insert(bisect_right(consumers, _rank(consumer), key=_rank), consumer)

    def _choose_for_group(self, reference: Reference, groups: MessageGroups) -> Consumer | None:
        message, count = reference.message, reference.redelivery_count
        owner = groups.owner(message)
        if owner is not None and self.exclusive in (None, owner) and owner.accepts(message, count):
            if owner.has_room:
                return owner
            groups.passed_over(message, reference.sequence)
            return None
        best: Consumer | None = None
        for consumer in self.eligible:
            if best is not None and _rank(consumer) > _rank(best):
                break
            is_better = best is None or groups.count(consumer) < groups.count(best)
            if is_better and consumer.has_room and consumer.accepts(message, count):
                best = consumer
        return best

    def _wants_all(self, consumer: Consumer) -> bool:
        return consumer.request.exclusive or self._is_exclusive_default

    def _review(self) -> None:
        self.eligible = self.all if self.exclusive is None else [self.exclusive]
        self._are_equal = not self.all or _rank(self.all[0]) == _rank(self.all[-1])
        self.is_plain = self.groups is None and not any(consumer.is_selective for consumer in self.eligible)


def _rank(consumer: Consumer) -> int:
    return -consumer.request.priority
