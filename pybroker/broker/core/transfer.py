"""Moves or copies messages of a queue to another destination, some in each transaction of the store.

```text
locked: no consumer gets them --> sent in a transaction --> removed in it --> its commit --> on disk: dispatched
                                        `-- an error: rolled back, and they wait at their old positions
```

A crash before the commit is on disk leaves the messages of the transaction in their queue, a later one at the target.
What was done by earlier transactions stays done.

A persistent message that its target has already, by its id, stays where it is, and so does one that would be sent
nowhere, or back to its queue by a virtual destination: other queues of that get their copies. If the target is full,
the operation waits for space. It ends with `ResourceLimit` if there is none for some time.

Source: ActiveMQ 5.17, `Queue.moveMessageTo`, `BrokerSupport.doResend`. A copy has the message's id, the queue as
original destination, and no earlier deliveries. ActiveMQ moves without flow control, and removes a message after it has
sent it: a crash in between leaves it at both places.
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol, cast

from pybroker.broker.core.backlog_walk import Waiting
from pybroker.broker.core.consumer import Owner
from pybroker.broker.core.host import COPIED_BYTES_MAX, Routed
from pybroker.broker.core.message_selection import SelectedMessages
from pybroker.broker.core.operation import OperationSteps, SteppedOperation, Wait
from pybroker.broker.core.piecewise import PORTION_COST, Steps, copy_cost
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.reference import Reference
from pybroker.broker.core.transaction import BrokerTransaction
from pybroker.broker.core.uncommitted import SendTarget
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import InvalidDestination, MalformedData, NotReadYet, ResourceLimit
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import outline
from pybroker.broker.domain.openwire.rerouting import Rerouting
from pybroker.broker.domain.ports import RemovalReason

_WAITS_MAX: Final = 3
"""Waits for space after each of which there was none, so that the operation ends."""


class TransferHost(Protocol):
    """The broker, as transfers see it."""

    def admit(self, message: Message, owner: Owner | None) -> Usage:
        """Return the memory usage that a message will count for; see `Host`."""
        ...

    def route(self, message: Message) -> Routed:
        """Return the targets of a message, each with the copy that it gets."""
        ...

    def covering(self, target: SendTarget) -> Steps:
        """Return the steps that are left until a message may be sent to a target."""
        ...

    def policy(self, destination: Destination) -> DestinationPolicy:
        """Return the rules for a destination."""
        ...

    def begin_transaction(self) -> BrokerTransaction:
        """Begin a transaction of the broker itself."""
        ...


class MessageTransfer:
    """The move or copy of selected messages.

    Args:
        host: the broker.
        operation: the operation of which it is the work.
        queue: the queue that has the messages.
        selected: the messages.
        target_of: returns where a message is to go; None: it stays.
        is_move: True to remove the messages from the queue.
        skips_invalid: a message stays whose target cannot be, instead of ending the operation.
        moved: called for each message that was moved.
    """

    def __init__(
        self,
        host: TransferHost,
        operation: SteppedOperation,
        queue: Queue,
        selected: SelectedMessages,
        target_of: Callable[[Message], Destination | None],
        *,
        is_move: bool,
        skips_invalid: bool = False,
        moved: Callable[[Message], None],
    ) -> None:
        self._host = host
        self._operation = operation
        self._queue = queue
        self._selected = selected
        self._target_of = target_of
        self._is_move = is_move
        self._skips_invalid = skips_invalid
        self._moved = moved
        self._wait_count = 0

    def steps(self) -> OperationSteps:
        """Return the steps of all of it."""
        return self._selected.steps(self._transfer)

    def _transfer(self, found: Sequence[Waiting]) -> OperationSteps:
        """Transfer messages in one transaction; set the walk back to the first for which there is no space."""
        selected, queue, walk = self._selected, self._queue, self._selected.walk
        try:
            references = selected.load(found)
        except NotReadYet:
            walk.position = found[0].sequence - 1
            yield selected.when_readable
            return
        references = [each for each in references if self._is_transferable(each)]
        if not references:
            return
        if self._is_move:
            queue.take(references)
        transaction = self._host.begin_transaction()
        sent: list[Reference] = []
        full: _Full | None = None
        try:
            for reference in references:
                outcome = yield from self._send(transaction, reference.message)
                if isinstance(outcome, _Full):
                    full = outcome
                    walk.position = reference.sequence - 1
                    break
                if outcome:
                    sent.append(reference)
                else:
                    self._operation.skipped += 1
        except Exception:
            transaction.rollback()
            if self._is_move:
                queue.restore((), references)
            raise
        if self._is_move:
            transaction.add_removals(sent, queue.release)
            for reference in sent:
                queue.forget(reference, transaction.id, RemovalReason.DISCARDED)
        yield from transaction.committing()
        self._operation.affected += len(sent)
        if self._is_move:
            gone = set(sent)
            if left := [reference for reference in references if reference not in gone]:
                queue.restore((), left)
            for reference in sent:
                self._moved(reference.message)
        if full is not None:
            yield from self._wait_for_space(full, is_first=bool(sent))

    def _is_transferable(self, reference: Reference) -> bool:
        """Return True if a message has somewhere to go; one that has expired is left to its queue."""
        if self._queue.is_expired(reference.message):
            return False
        if self._target_of(reference.message) not in (None, self._queue.destination):
            return True
        self._operation.skipped += 1
        return False

    def _send(self, transaction: BrokerTransaction, message: Message) -> "Generator[int | Wait, None, bool | _Full]":
        """Send the copy of a message in a transaction; return True if a target has taken it, or what has no space."""
        host = self._host
        try:
            destination = self._target_of(message)
            assert destination is not None, "it is transferable"
            copy = yield from _copying(message, destination)
            usage = host.admit(copy, None)
            if usage.is_full and host.policy(destination).producer_flow_control:
                return _Full(usage, destination)
            routed = host.route(copy)
        except MalformedData:  # stored by another broker, and damaged: nothing can be made of it
            return False
        except InvalidDestination:
            if self._skips_invalid:
                return False
            raise
        is_sent, stays = False, False
        for each in routed.in_steps():
            if each is None:
                yield PORTION_COST
                continue
            target, its_copy = each
            if self._is_move and its_copy.destination == self._queue.destination:
                stays = True  # a virtual destination leads back to where it is
                continue
            yield from host.covering(target)
            is_sent |= transaction.add_send(target, its_copy)
            yield copy_cost(its_copy.size)
        return is_sent and not stays

    def _wait_for_space(self, full: "_Full", *, is_first: bool) -> OperationSteps:
        """Wait until there may be space.

        Raises:
            ResourceLimit: there was none for some time.
        """
        usage, destination = full
        self._wait_count = 0 if is_first else self._wait_count + 1
        if self._wait_count >= _WAITS_MAX or self._queue.paging.later is None:
            raise ResourceLimit(
                f"Usage Manager Memory Limit reached on {destination}: consume from it, or raise its limit, and repeat "
                "the operation for the messages that are left."
            )
        try:
            yield partial(_when_space, usage, self._operation)
        finally:
            usage.cancel(self._operation)


class _Full(NamedTuple):
    """The usage that has no space for a message, and where the message was to go."""

    usage: Usage
    destination: Destination


def _when_space(usage: Usage, operation: SteppedOperation, callback: Callable[[], None]) -> None:
    """Call back in a later turn than the one in which there is space: memory is freed within other work."""

    def in_later_turn() -> None:
        if not usage.paging.defer(callback):
            callback()

    usage.when_space(in_later_turn, operation)


def _copying(message: Message, destination: Destination) -> Generator[int, None, Message]:
    """Return the copy of a message for another destination, in steps if it is large."""
    rerouting = Rerouting(message)
    if len(message.data) <= COPIED_BYTES_MAX:
        return rerouting.copy(destination, message.destination)
    copying = rerouting.copying(destination, message.destination)
    while True:
        try:
            next(copying)
        except StopIteration as ended:
            return cast("Message", ended.value)
        yield PORTION_COST


def original_destination(message: Message) -> Destination | None:
    """Return where a message was before it was dead-lettered, moved or copied; None if that is not known."""
    try:
        return outline(message).original_destination
    except MalformedData:
        return None
