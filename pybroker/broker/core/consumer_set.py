"""The consumers of a queue, and the choice of the consumer that gets a message.

Consumers of a higher priority are filled to their windows first, unless the policy says otherwise. Consumers of equal
priority are chosen in turn. While the queue has an exclusive consumer, the others get nothing. A message of a group
goes to the owner of the group. If the group has no owner, the message goes to the consumer that owns the fewest groups,
of those with the highest priority that have capacity, and this consumer becomes the owner.

Consumers may have selectors that take long, so the answers of many of them to one message are gathered in pieces:
`Answers` keeps those that are known until the others are.

In two cases ActiveMQ delivers a message to no consumer, and this class delivers it:

* The owner's selector refuses the message. Another consumer gets it, and the owner keeps the group.
* The owner is not the exclusive consumer. The exclusive consumer gets the message, and becomes the owner.

A message is offered to consumers in their order, until one has capacity. So that not every message passes thousands of
consumers whose windows are full, or that pull and do not pull now, a large set parks them: it removes them from the
order until they have capacity again, when they return to their place in it. A small set parks none.

Source: ActiveMQ 5.17, `Queue.addSubscription`, `Queue.removeSubscription`, `QueueDispatchSelector`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.groups import MessageGroups
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.reference import Reference
from pybroker.broker.domain.message import Message

_PRIORITY_MAX = 127
"""An exclusive consumer of this priority replaces even an exclusive consumer of the same priority."""


PARKING_MIN: Final = 64
"""A set with more consumers numbers them, and may park some. With half as many it parks none any more."""

_PASSED_MAX: Final = 16
"""Consumers without capacity that a message may pass before they are parked. The return of one takes a few
microseconds, as long as passing so many."""


PREPARED_FACTOR: Final = 4
"""A piece of a search lasts at least so many times as long as its beginning, which visits all consumers: so at most a
fifth of the work is for beginnings."""


class Answers:
    """The answers of the consumers to one message, gathered in pieces.

    A further piece passes the consumers that have answered before it asks others. It asks for several times
    as long as that took, also beyond the usual piece: else the work for a message would grow with the square of their
    number.

    Attributes:
        known: the answers.
        ends_at: monotonic seconds after which the others are asked in a later turn of the event loop.
        is_over: the time was over before all that are needed were known.
    """

    __slots__ = ("_monotonic", "_redelivery_count", "_resumed_at", "_sequence", "ends_at", "is_over", "known")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._sequence = -1
        self._redelivery_count = 0
        self._resumed_at = 0.0
        self.known: dict[BrokerConsumer, bool] = {}
        self.ends_at = 0.0
        self.is_over = False
        self._monotonic = monotonic

    def begin(self, reference: Reference, ends_at: float) -> None:
        """Begin a piece for a message. What is known is kept if it is the message of the last piece."""
        self.ends_at = ends_at
        self.is_over = False
        if reference.sequence != self._sequence or reference.redelivery_count != self._redelivery_count:
            self._sequence, self._redelivery_count = reference.sequence, reference.redelivery_count
            self.known.clear()
        self._resumed_at = self._monotonic() if self.known else 0.0

    def ask(self, consumer: BrokerConsumer, reference: Reference) -> bool:
        """Return True if a consumer accepts the message."""
        known = self.known.get(consumer)
        if known is None:
            if self._resumed_at:
                now = self._monotonic()
                self.ends_at = max(self.ends_at, now + PREPARED_FACTOR * (now - self._resumed_at))
                self._resumed_at = 0.0
            known = self.known[consumer] = consumer.accepts(reference.message, reference.redelivery_count)
            self.is_over = self._monotonic() >= self.ends_at
        return known


class ConsumerSet:
    """The consumers of one queue.

    Attributes:
        all: all consumers.
        exclusive: the consumer that gets all messages, if there is an exclusive one.
        eligible: the consumers that may get messages now, in the order in which messages are offered: the exclusive
            one, or all that are not parked.
        parked: consumers without capacity that were removed from the order; `unpark` returns one to it.
        on_parked: called with consumers that were just parked; None: it is not called.
        is_paused: True while no consumer gets messages, because an operator has said so: none is eligible then.
        is_start_awaited: the same, because the queue waits for more consumers (see `dispatch_start`).
        is_shared: True while each consumer may get messages: there is no exclusive one, and none of these two reasons.
        groups: the message groups; None until the queue has a message that belongs to one.
        accepts_any: True while every eligible consumer accepts every message. The oldest message then goes to the first
            consumer with capacity, and if a message waits, no consumer has capacity.
    """

    __slots__ = (
        "_are_equal",
        "_chosen",
        "_closing",
        "_is_exclusive_default",
        "_next_number",
        "_numbers",
        "_selective_count",
        "_takes_turns",
        "_turns",
        "_uses_priority",
        "accepts_any",
        "all",
        "eligible",
        "exclusive",
        "groups",
        "is_paused",
        "is_shared",
        "is_start_awaited",
        "on_parked",
        "parked",
    )

    def __init__(self, policy: DestinationPolicy) -> None:
        self.all: dict[BrokerConsumer, None] = {}
        self._turns: list[BrokerConsumer] = []
        self.eligible = self._turns
        self.parked: dict[BrokerConsumer, None] = {}
        self._closing: dict[BrokerConsumer, None] = {}
        """The consumers that close, and have not yet given back all of their outstanding messages."""
        self.on_parked: Callable[[Sequence[BrokerConsumer]], None] | None = None
        self.exclusive: BrokerConsumer | None = None
        self.is_paused = False
        self.is_start_awaited = False
        self.is_shared = True
        self._chosen: BrokerConsumer | None = None
        """The exclusive consumer, without regard to those that close."""
        self.groups: MessageGroups | None = None
        self.accepts_any = True
        self._uses_priority = policy.use_consumer_priority
        self._takes_turns = not policy.strict_order_dispatch
        self._is_exclusive_default = policy.all_consumers_exclusive_by_default
        self._are_equal = True
        self._selective_count = 0
        self._numbers: dict[BrokerConsumer, int] | None = None
        """The place of each consumer among those of its priority, lowest first; None in a small set, where the list has
        them all."""
        self._next_number = 0

    def add(self, consumer: BrokerConsumer) -> None:
        """Add a consumer, behind the others of its priority."""
        if self._uses_priority and self.all and consumer.request.priority != next(iter(self.all)).request.priority:
            self._are_equal = False
        self.all[consumer] = None
        self._selective_count += consumer.is_selective
        self._turns.insert(bisect_right(self._turns, self._rank(consumer), key=self._rank), consumer)
        if self._numbers is not None:
            self._number(consumer, self._numbers)
        elif len(self.all) > PARKING_MIN:
            self._numbers = {each: number for number, each in enumerate(self._turns)}
            self._next_number = len(self.all)
        if self._wants_all(consumer):
            priority = consumer.request.priority
            if self._chosen is None or priority >= _PRIORITY_MAX or priority > self._chosen.request.priority:
                self._chosen = consumer
        self._recompute()

    def pause(self, *, is_paused: bool) -> None:
        """Have no consumer get messages from now on, or all again that may."""
        self.is_paused = is_paused
        self._recompute()

    def await_start(self, *, is_awaited: bool) -> None:
        """Have no consumer get messages until the dispatch starts, or all again that may."""
        self.is_start_awaited = is_awaited
        self._recompute()

    def hold(self, consumer: BrokerConsumer) -> None:
        """Make a consumer that closes, and so gets no messages, the exclusive one, until it is removed."""
        self._closing[consumer] = None
        self._recompute()

    def remove(self, consumer: BrokerConsumer) -> bool:
        """Remove a consumer; return True if others may now get messages that only it could get before."""
        del self.all[consumer]
        self._closing.pop(consumer, None)
        self._selective_count -= consumer.is_selective
        if consumer in self.parked:
            del self.parked[consumer]
        else:
            del self._turns[self._index(consumer)]
        if self._numbers is not None:
            del self._numbers[consumer]
            if 2 * len(self.all) <= PARKING_MIN:
                for parked in [*self.parked]:
                    self.unpark(parked)
                self._numbers = None
        if not self.all:
            self._are_equal = True
        frees = consumer is self.exclusive
        if consumer is self._chosen:
            self._chosen = self._first_exclusive()
        if self.groups is not None:
            self.groups.leave(consumer)
            frees |= self.groups.reopened is not None
        self._recompute()
        return frees

    def becomes_selective(self) -> None:
        """Record that one of the consumers does not accept all messages any more."""
        self._selective_count += 1
        self._recompute()

    def unpark(self, consumer: BrokerConsumer) -> None:
        """Return a consumer that has capacity again to its place in the order; do nothing if it is not parked."""
        if consumer in self.parked:
            del self.parked[consumer]
            self._turns.insert(bisect_right(self._turns, self._place(consumer), key=self._place), consumer)

    def ensure_groups(self) -> MessageGroups:
        """Return the message groups, which are created for the first message that belongs to one."""
        if self.groups is None:
            self.groups = MessageGroups()
            self.accepts_any = False
        return self.groups

    def choose(self, reference: Reference, answers: Answers | None = None) -> BrokerConsumer | None:
        """Return a message's consumer, None if it has to wait; while `accepts_any`: `first_with_capacity`.

        Args:
            reference: the message.
            answers: gathers the answers of the consumers, and may end before a consumer is found (`is_over`); None: all
                are asked.
        """
        message = reference.message
        if message.group_id is not None and self.groups is not None:
            return self._choose_for_group(reference, self.groups, answers)
        chosen: BrokerConsumer | None = None
        visited = passed = 0
        for consumer in self.eligible:
            visited += 1
            if not consumer.has_capacity:
                passed += 1
            elif answers is None:
                if consumer.accepts(message, reference.redelivery_count):
                    chosen = consumer
                    break
            elif answers.ask(consumer, reference):
                chosen = consumer
                break
            elif answers.is_over:
                break
        if passed > _PASSED_MAX:
            self._park(visited)
        return chosen

    def first_with_capacity(self) -> BrokerConsumer | None:
        """Return the first consumer with capacity."""
        for consumer in self.eligible:
            if len(consumer.outstanding) < consumer.window:
                return consumer
            if self._numbers is not None:
                return self._first_of_many()
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
        turns = self._turns
        if len(self.all) == 1 or not self._takes_turns or self.exclusive is not None:
            return
        if self._numbers is not None:
            if consumer in self.parked:
                self._number(consumer, self._numbers)
                return
            del turns[self._index(consumer)]
            self._number(consumer, self._numbers)
        else:
            turns.remove(consumer)
        if self._are_equal:
            turns.append(consumer)
        else:
            turns.insert(bisect_right(turns, self._rank(consumer), key=self._rank), consumer)

    def _choose_for_group(
        self, reference: Reference, groups: MessageGroups, answers: Answers | None
    ) -> BrokerConsumer | None:
        message, count = reference.message, reference.redelivery_count
        owner = groups.owner(message)
        if owner is not None and (self.is_shared or self.exclusive is owner) and owner.accepts(message, count):
            if owner.has_capacity:
                return owner
            groups.passed_over(message, reference.sequence)
            return None
        best: BrokerConsumer | None = None
        best_count = visited = passed = 0
        for consumer in self.eligible:
            visited += 1
            if best is not None and (not best_count or self._rank(consumer) > self._rank(best)):
                break
            if not consumer.has_capacity:
                passed += 1
            elif best is None or groups.count(consumer) < best_count:
                if consumer.accepts(message, count) if answers is None else answers.ask(consumer, reference):
                    best, best_count = consumer, groups.count(consumer)
                if answers is not None and answers.is_over and (best is None or best_count):
                    best = None  # one of the others may own fewer groups
                    break
        if passed > _PASSED_MAX:
            self._park(visited)
        return best

    # ------------------------------------------------------------ many consumers

    def _first_of_many(self) -> BrokerConsumer | None:
        """Return the first consumer with capacity, and park those before it."""
        chosen: BrokerConsumer | None = None
        passed = 0
        for consumer in self.eligible:
            if len(consumer.outstanding) < consumer.window:
                chosen = consumer
                break
            passed += 1
        if passed > _PASSED_MAX:
            self._park(passed)
        return chosen

    def _park(self, visited: int) -> None:
        """Remove those without capacity among the first consumers of a large set from the order."""
        if self._numbers is None or self.exclusive is not None:
            return
        turns = self._turns
        first = turns[:visited]
        parked = [consumer for consumer in first if not consumer.has_capacity]
        self.parked.update(dict.fromkeys(parked))
        if self.on_parked is not None:
            self.on_parked(parked)
        turns[:visited] = [consumer for consumer in first if consumer.has_capacity]

    def _number(self, consumer: BrokerConsumer, numbers: dict[BrokerConsumer, int]) -> None:
        """Give a consumer the last place of its priority."""
        numbers[consumer] = self._next_number
        self._next_number += 1

    def _place(self, consumer: BrokerConsumer) -> tuple[int, int]:
        """Return the place of a consumer in the order of a large set."""
        return self._rank(consumer), 0 if self._numbers is None else self._numbers[consumer]

    def _index(self, consumer: BrokerConsumer) -> int:
        """Return the index of a consumer that is not parked."""
        turns = self._turns
        if turns[0] is consumer:
            return 0
        if self._numbers is None:
            return turns.index(consumer)
        return bisect_left(turns, self._place(consumer), key=self._place)

    # ------------------------------------------------------------ private

    def _rank(self, consumer: BrokerConsumer) -> int:
        """Return a number that is lower for consumers that are served before others."""
        return -consumer.request.priority if self._uses_priority else 0

    def _wants_all(self, consumer: BrokerConsumer) -> bool:
        return consumer.request.exclusive or self._is_exclusive_default

    def _first_exclusive(self) -> BrokerConsumer | None:
        """Return the first consumer in the order that is exclusive, parked ones included."""
        if not self._uses_priority:  # an exclusive one is chosen by priority all the same
            wanting = [each for each in self.all if self._wants_all(each)]
            return min(wanting, key=_by_priority, default=None)
        if not self.parked:
            return next((each for each in self._turns if self._wants_all(each)), None)
        return min((each for each in self.all if self._wants_all(each)), key=self._place, default=None)

    def _recompute(self) -> None:
        is_held = self.is_paused or self.is_start_awaited
        exclusive = self.exclusive = None if is_held else next(iter(self._closing), self._chosen)
        self.is_shared = exclusive is None and not is_held
        self.eligible = self._turns if self.is_shared else [] if exclusive is None else [exclusive]
        is_selective = self._selective_count > 0 if exclusive is None else exclusive.is_selective
        self.accepts_any = self.groups is None and not is_selective


def _by_priority(consumer: BrokerConsumer) -> int:
    return -consumer.request.priority
