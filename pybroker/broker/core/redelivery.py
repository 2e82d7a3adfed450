"""Redelivery by the broker: what would become a dead letter is sent to its queue again, after a delay.

```text
rejected, or come back too often --> expired, or no policy?            -> as without redelivery, or dropped
                                     as often as the policy allows?    -> as without redelivery, or dropped
                                     else, in one transaction: removed from its queue, and
                                     stored to be scheduled --> a job --> sent to its queue
```

The transaction is one of the message store, and the job is made of what it has stored, as of what a client schedules in
a transaction (see `scheduling_queue`). So a crash leaves the message in its queue, or the job: never none of them, and
both only as described there. The job's message has the id, the number of its deliveries so far in
`redelivery_counter`, and the delay in the property `redeliveryDelay`, as in ActiveMQ. If it has a time to live, that
begins again with each delivery, as for all scheduled messages.

Only queues redeliver so. ActiveMQ sends a message that a durable subscription has rejected to its topic, and so to all
subscribers again.

Source: ActiveMQ 5.17, `RedeliveryPlugin`, `RedeliveryPolicy`.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.piecewise import carry_out
from pybroker.broker.core.policy import EntryMap
from pybroker.broker.core.reference import Reference
from pybroker.broker.core.scheduled import DELAY, JOB_ID, REDELIVERY_DELAY, TIMETABLE_PROPERTIES
from pybroker.broker.core.scheduler import Scheduler
from pybroker.broker.core.scheduling_queue import SchedulingQueue, to_scheduling_queue
from pybroker.broker.core.transaction import BrokerTransaction
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import MalformedData, RequestError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import OpenWireMessage, outline, to_message
from pybroker.broker.domain.openwire.spotting import may_have
from pybroker.broker.domain.openwire.values import Long, Value
from pybroker.broker.domain.ports import RemovalReason

FOR_EVER: Final = -1
"""The value of `maximum_redeliveries` for no limit: a rejected message never becomes a dead letter."""

_DELAY_MAX: Final = 2**31 - 1
_PROPERTY: Final = REDELIVERY_DELAY.encode()

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliveryPolicy:
    """The number of redeliveries of a queue's messages, and their delays. Durations are in milliseconds.

    Attributes:
        maximum_redeliveries: deliveries after the first one; -1: any number.
        initial_redelivery_delay: the delay before the first of them.
        redelivery_delay: the delay before the others.
        use_exponential_back_off: multiply the delay with each of them.
        back_off_multiplier: by what; 1 or less: do not.
        maximum_redelivery_delay: the limit of a multiplied delay; -1: none.
        use_collision_avoidance: add or subtract a random part, but for the first delay.
        collision_avoidance_percent: the limit of that part.
    """

    maximum_redeliveries: int = 6
    initial_redelivery_delay: int = 1000
    redelivery_delay: int = 1000
    use_exponential_back_off: bool = False
    back_off_multiplier: float = 5.0
    maximum_redelivery_delay: int = -1
    use_collision_avoidance: bool = False
    collision_avoidance_percent: int = 15

    def allows(self, count: int) -> bool:
        """Return True if a message that was redelivered so often may be redelivered once more."""
        return self.maximum_redeliveries == FOR_EVER or count < self.maximum_redeliveries

    def delay(self, count: int, previous: int, random: Callable[[], float]) -> int:
        """Return the delay of the next redelivery in milliseconds.

        Args:
            count: the number of redeliveries so far.
            previous: the delay of the last one; 0: it had none.
            random: returns a random number from 0 to 1.
        """
        if count == 0:
            return self.initial_redelivery_delay
        delay = self.redelivery_delay
        if previous > 0 and self.use_exponential_back_off and self.back_off_multiplier > 1:
            delay = int(min(previous * self.back_off_multiplier, _DELAY_MAX))
            if self.maximum_redelivery_delay != -1 and delay > self.maximum_redelivery_delay:
                delay = max(self.maximum_redelivery_delay, self.redelivery_delay)
        if self.use_collision_avoidance:
            part = (1 if random() < 0.5 else -1) * self.collision_avoidance_percent / 100 * random()
            delay += int(delay * part)
        return delay


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliveryRules:
    """The rules of one broker.

    Attributes:
        policies: the policies of queues; None: such a queue has none.
        send_to_dlq_if_max_retries_exceeded: what was redelivered often enough becomes a dead letter; False: is dropped.
        fallback_to_dead_letter: what is rejected on a queue without a policy becomes a dead letter; False: is dropped.
    """

    policies: EntryMap[RedeliveryPolicy | None]
    send_to_dlq_if_max_retries_exceeded: bool = True
    fallback_to_dead_letter: bool = True


class RedeliveryHost(Protocol):
    """The broker, as far as redelivery is concerned."""

    dead_letters: DeadLetters
    scheduler: Scheduler | None
    scheduling_queue: SchedulingQueue

    def begin_transaction(self) -> BrokerTransaction:
        """Begin a transaction of the broker itself."""
        ...

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything accepted so far is durable."""
        ...


class BrokerRedelivery:
    """Redelivers the messages of one broker's queues; implements `Redeliverer`."""

    def __init__(self, host: RedeliveryHost, rules: RedeliveryRules, random: Callable[[], float]) -> None:
        self._host = host
        self._rules = rules
        self._random = random

    def count_of(self, message: Message) -> int:
        """Return how often a message was redelivered before it came to its queue this time."""
        if not may_have(message, _PROPERTY):
            return 0
        EFFORT.is_large = True
        try:
            fields = outline(message)
            return max(0, fields.redelivery_counter) if REDELIVERY_DELAY in fields.properties else 0
        except MalformedData:
            return 0

    def keeps(self, reference: Reference) -> bool | None:
        """Return True if a message would be redelivered, False if it would be dropped; None: it is not taken."""
        policy = self._rules.policies.for_destination(reference.message.destination)
        if policy is None:
            return None if self._rules.fallback_to_dead_letter else False
        if policy.allows(reference.redelivery_count):
            return True
        return None if self._rules.send_to_dlq_if_max_retries_exceeded else False

    def takes(self, reference: Reference, cause: str, release: Callable[[Reference], None]) -> bool:
        """Redeliver or drop a message; return False if it is to be a dead letter, or dropped as one."""
        message = reference.message
        policy = self._rules.policies.for_destination(message.destination)
        if policy is None:
            return not self._rules.fallback_to_dead_letter and self._drop(reference, cause, release)
        try:
            fields = outline(message)
            count = max(reference.redelivery_count, self.count_of(message))
            if not policy.allows(count):
                return not self._rules.send_to_dlq_if_max_retries_exceeded and self._drop(reference, cause, release)
            return self._schedule(reference, self._again(fields, policy, count), cause, release)
        except (MalformedData, RequestError) as error:
            _log.error("%s on %s cannot be redelivered: %s", message.message_id, message.destination, error)
            return False

    def _again(self, fields: OpenWireMessage, policy: RedeliveryPolicy, count: int) -> Message:
        """Return the message that is scheduled."""
        previous = fields.properties.get(REDELIVERY_DELAY)
        delay = policy.delay(count, previous if isinstance(previous, int) else 0, self._random)
        removed = (*TIMETABLE_PROPERTIES, JOB_ID)
        properties: dict[str, Value] = {name: each for name, each in fields.properties.items() if name not in removed}
        properties[REDELIVERY_DELAY] = properties[DELAY] = Long(delay)
        again = replace(fields, transaction_id=None, original_transaction_id=None, redelivery_counter=count + 1)
        again.set_properties(properties)
        return to_message(again)

    def _schedule(self, reference: Reference, again: Message, cause: str, release: Callable[[Reference], None]) -> bool:
        scheduler = self._host.scheduler
        if scheduler is None or not scheduler.has_space:
            _log.error("%s cannot be redelivered: there is no space for its job", again.message_id)
            return False
        self._record("redelivered later", reference, cause)
        transaction = self._host.begin_transaction()
        if not transaction.add_send(self._host.scheduling_queue, to_scheduling_queue(again)):
            transaction.rollback()
            # Its last job is not on disk after all that time. There may be two of it after a crash now.
            scheduler.schedule(again)
            self._host.when_durable(partial(_remove, reference, release))
            return True
        transaction.add_removals([reference], release)
        reference.source.forget(reference, transaction.id, RemovalReason.DISCARDED)
        carry_out(transaction.committing())
        return True

    def _drop(self, reference: Reference, cause: str, release: Callable[[Reference], None]) -> bool:
        self._record("dropped", reference, cause)
        _remove(reference, release)
        return True

    def _record(self, what: str, reference: Reference, cause: str) -> None:
        message = reference.message
        self._host.dead_letters.aggregator.record(what, message.message_id, f"on {message.destination}", cause)


def _remove(reference: Reference, release: Callable[[Reference], None]) -> None:
    reference.source.forget(reference, None, RemovalReason.DISCARDED)
    release(reference)
