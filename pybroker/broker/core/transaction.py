"""A transaction, local or XA: sends and acknowledgements that take effect together, at its commit.

The store appends each operation when it happens, marked with the transaction, and a commit record makes them take
effect (as in KahaDB). Here, acknowledgements take effect at the commit. Messages are dispatched only once the commit is
on disk: no consumer may see a part of a transaction that a crash would undo. `uncommitted` limits the memory that they
take until then.

`transaction_states` has the states and transitions. A commit enqueues the sends and settles the acknowledgements. A
roll-back drops the sends, and makes the acknowledged deliveries outstanding again. If an operation fails, the
transaction is doomed: its commit rolls it back and fails. A prepared transaction survives its connection and a crash.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final

from pybroker.broker.core.consumer import BrokerConsumer, Owner, reinstate
from pybroker.broker.core.containment import attempt
from pybroker.broker.core.gate import Gate, PagedOutMessage
from pybroker.broker.core.paging import PIECE_MAX
from pybroker.broker.core.piecewise import Steps, carry_out
from pybroker.broker.core.reference import Reference, ReferenceState
from pybroker.broker.core.transaction_states import TRANSITIONS, TransactionEvent, TransactionState
from pybroker.broker.core.uncommitted import SendTarget, UncommittedMessages, UncommittedSend
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import CommitFailed, ResourceLimit, TransactionError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import MessageStore
from pybroker.broker.domain.transaction import TransactionId, XATransactionId

_log = logging.getLogger(__name__)

OPERATION_BYTES: Final = 600
"""The memory of one operation without the message: closure, ids, entries of tables here and in the store. Measured with
300,000 sends and 300,000 acknowledgements."""

TRANSACTION_BYTES: Final = 4096
"""The memory of a transaction without operations, with its entries in tables here and in the store."""

XID_BYTES_MAX: Final = 64

UNCHECKED_BYTES: Final = 1 << 20
"""The bytes that each transaction may hold although memory is full, or a 64th of the limit if that is more; any number
while all transactions together hold less than `Usage.in_transactions_max`."""

OPERATIONS_MAX = 1_000_000
"""Operations of one transaction. Their ids are in memory until it ends, and so many of them are surely a mistake."""

_DISCARDED_COUNT: Final = 128
"""Operations whose memory is freed in one step."""

_GATES_OPENED_MAX: Final = 32
"""Gates that are opened in one turn of the event loop: each delivers messages."""

_DISPATCHED: Final = ReferenceState.DISPATCHED
_ACTIVE: Final = TransactionState.ACTIVE
_PREPARED: Final = TransactionState.PREPARED
_ROLLED_BACK: Final = TransactionState.ROLLED_BACK
_COMMIT: Final = TransactionEvent.COMMIT
_ON_DISK: Final = TransactionEvent.ON_DISK
"""Module constants, because the look-up of an enum's member takes longer than the comparison."""


class BrokerTransaction:
    """One transaction.

    Attributes:
        id: its id.
        owner: the connection that began it. If that closes, the transaction is rolled back. None once the transaction
            is prepared, and if no client began it.
        state: its state.
    """

    __slots__ = (
        "_acknowledged",
        "_applying",
        "_at_commit",
        "_commits",
        "_counted",
        "_current",
        "_doom",
        "_forgone",
        "_gates",
        "_in_store",
        "_sent",
        "_store",
        "_uncommitted",
        "_unkept",
        "_usage",
        "id",
        "owner",
        "state",
        "user",
    )

    def __init__(
        self,
        transaction_id: TransactionId,
        store: MessageStore,
        owner: Owner | None = None,
        *,
        usage: Usage | None = None,
        commits: "CommitsInProgress | None" = None,
    ) -> None:
        """Begin it.

        Args:
            transaction_id: its id.
            store: keeps its operations.
            owner: see the attribute.
            usage: the broker's memory, in which it is counted; None: it is not counted, as it ends at once.
            commits: those of all transactions; None: its commit is carried out at once.
        """
        self.id = transaction_id
        self.owner = owner
        self.user: str | None = None
        """The user who has begun it; None: it is not known, or does not matter."""
        self.state = _ACTIVE
        self._store = store
        self._at_commit: list[Callable[[], None]] = []
        self._acknowledged: dict[BrokerConsumer | None, list[Reference]] = {}  # None: consumers of an earlier process
        self._gates: dict[Gate, None] = {}
        self._sent: set[tuple[Destination, str]] = set()
        self._in_store = False
        self._doom: str | None = None
        self._uncommitted = UncommittedMessages(store)
        self._unkept: dict[Destination, list[Message]] = {}
        """Messages sent to topics that had no durable subscription at that time; they are not in the store."""
        self._usage = usage
        self._commits = commits
        self._applying: Steps = iter(())
        """After its commit: the steps that apply it to the contents of the store."""
        self._current: dict[Gate, Gate] = {}
        """After its commit: the gates to which it sends, by those to which its messages were sent."""
        self._forgone: set[Gate] = set()
        """The gates of destinations that were deleted since its commit."""
        self._counted = 0
        """Bytes that are counted for the transaction and its operations, without messages."""
        self._count(TRANSACTION_BYTES)

    def add_send(self, target: SendTarget, message: Message) -> bool:
        """Add a send, unless the message is already in the transaction or stored at its destination.

        A failover client that got no answer to its PREPARE sends the whole branch again.

        Returns:
            False if its destination has a message of the same id.

        Raises:
            TransactionError: the transaction is prepared, and does not contain the message.
        """
        if (message.destination, message.message_id) in self._sent:
            return True
        self._check_open()
        self._check_memory()
        self._count(OPERATION_BYTES)
        is_stored = target.stores(message)
        if is_stored:
            if not target.is_kept_now:
                self._unkept.setdefault(message.destination, []).append(message)
            elif self._unkept:
                self._keep(self._unkept.pop(message.destination, ()), self.id)
            if not self._store.add(message, self.id):
                _log.info("%s is on %s already", message.message_id, message.destination)
                return False
            self._in_store = True
        send = self._uncommitted.add(target, message, is_stored=is_stored)
        self._enqueue_at_commit(target, message, send)
        return True

    def add_acknowledgements(self, consumer: BrokerConsumer, references: Sequence[Reference]) -> None:
        """Add acknowledgements; the consumer appends the removals to the store."""
        self._check_open()
        if not self._acknowledged:
            self._register()
        for reference in references:
            self._in_store |= reference.message.persistent
            self._at_commit.append(partial(reference.source.settle, reference))
        self._count(OPERATION_BYTES * len(references) + consumer.tracked_bytes(references))
        self._acknowledged.setdefault(consumer, []).extend(references)

    def add_removals(self, references: Sequence[Reference], removed: Callable[[Reference], None]) -> None:
        """Add removals of messages that their backlog has locked; the caller appends them to the store.

        They are not counted as memory, and a roll-back leaves them to the caller: it is for a commit that follows.

        Args:
            references: the messages.
            removed: called for each of them at the commit.
        """
        self._check_open()
        for reference in references:
            self._in_store |= reference.message.persistent
            self._at_commit.append(partial(removed, reference))

    def recover(
        self, sends: Sequence[tuple[SendTarget, Message | PagedOutMessage]], acknowledged: Sequence[Reference]
    ) -> None:
        """Restore a prepared transaction from the store; the acknowledged references are locked already."""
        self._enter(TransactionEvent.RECOVER)
        self._count(OPERATION_BYTES * (len(sends) + len(acknowledged)))
        self._in_store = True
        for target, message in sends:
            if isinstance(message, Message):
                send = self._uncommitted.add(target, message, is_stored=True)
            else:
                send = UncommittedSend(target, message)
            self._enqueue_at_commit(target, message, send)
        for reference in acknowledged:
            self._at_commit.append(partial(reference.source.settle, reference))
        self._acknowledged[None] = list(acknowledged)
        self._register()

    @property
    def prepared(self) -> bool:
        """True when it is prepared, and neither committed nor rolled back."""
        return self.state is _PREPARED

    @property
    def is_open(self) -> bool:
        """True while operations may be added."""
        return self.state is _ACTIVE

    @property
    def sent_count(self) -> int:
        """The number of messages that its commit sends."""
        return len(self._sent)

    @property
    def acknowledged_count(self) -> int:
        """The number of messages that its commit removes."""
        return sum(map(len, self._acknowledged.values()))

    @property
    def acknowledged_so_far(self) -> Iterable[Reference]:
        """The acknowledged references, which stay locked until the transaction ends."""
        return (reference for references in self._acknowledged.values() for reference in references)

    def delivered(self) -> Iterator[Reference]:
        """Iterate over the acknowledged references, whose bodies are not needed until a roll-back; see `delivered`."""
        for consumer, references in list(self._acknowledged.items()):
            if consumer is not None and consumer.request.is_counted:
                continue
            for reference in references:
                if reference.state is _DISPATCHED:
                    yield reference

    @property
    def gates(self) -> Iterable[Gate]:
        """The gates of the destinations of its messages."""
        return self._gates

    def sends_to(self, gate: Gate) -> bool:
        """Return True if it has sent messages to a gate."""
        return gate in self._gates

    @property
    def holds_memory(self) -> bool:
        """True when its messages take memory, which its end releases."""
        return self._uncommitted.holds_memory

    def check_space(self, usage: Usage, message: Message) -> None:
        """Check that one more message may be held although memory is full.

        Raises:
            ResourceLimit: it may not.
        """
        self._uncommitted.check_space(usage, message, self.id)

    def doom(self, reason: str) -> None:
        """Make its commit fail, because an operation in it has failed."""
        if self.state is _ACTIVE:
            self._doom = reason
        self._enter(TransactionEvent.FAIL)

    def prepare(self) -> bool:
        """Prepare the transaction; return False if it has no operations, and has ended.

        A prepared transaction stays prepared: a failover client repeats a PREPARE that was not answered.

        Raises:
            TransactionRolledBack: it was doomed.
        """
        if self._asked_for(TransactionEvent.PREPARE, self.owner) is self.state:
            return True
        if not self._at_commit:
            self._enter(TransactionEvent.PREPARE_NOTHING)
            self._release()
            return False
        if self._in_store:
            self._keep_late(self.id)
            self._store.prepare(_branch(self.id))
        self._enter(TransactionEvent.PREPARE)
        self._uncommitted.mark_prepared()
        return True

    def commit(self, owner: Owner | None = None) -> None:
        """Commit: all operations take effect, in their order.

        Args:
            owner: carries out a long commit in pieces; None: it is carried out at once.

        Raises:
            TransactionRolledBack: it was doomed, and is rolled back.
        """
        after = self._asked_for(_COMMIT, owner)
        if owner is not None and len(self._at_commit) > PIECE_MAX:
            owner.work_off(self._committing(after))
        else:
            carry_out(self._committing(after))

    def committing(self) -> Steps:
        """Return the steps of its commit, which take effect together: the first one decides all."""
        return self._committing(self._asked_for(_COMMIT, None))

    def _committing(self, after: TransactionState) -> Steps:
        """Commit with the first step; the others are only in memory, for a crash between them is one after the commit.

        The gates are closed before the first message reaches one, so no message sent later overtakes those.
        """
        in_store, store = self._in_store, self._store
        if in_store:  # a destination that was deleted since is created again, so that later messages wait there too
            self._current = {gate: gate.current() for gate in self._gates}
            self._gates = dict.fromkeys(self._current.values())
        gates = list(reversed(self._gates)) if in_store else []
        self._uncommitted.hand_over()
        if in_store:
            if self.state is _ACTIVE:
                self._keep_late(self.id)
            if self._unkept:
                store.require_fence()
            self._applying = store.commit_steps(self.id)
            if self.state is _PREPARED and self._unkept:  # it accepts nothing; the store skips what it already has
                carry_out(self._applying)
                self._keep_late(None)
            for gate in gates:
                gate.close()
        self.state = after
        self._at_commit.reverse()  # so that each is freed as soon as it is carried out
        commits = self._commits
        if commits is not None:
            commits.begin(self)
        yield from self.finishing()
        if commits is not None:
            commits.end(self)
        self._release(is_committed=True)
        if in_store:
            store.when_durable(partial(self._on_disk, gates))
        else:
            self._enter(_ON_DISK)
        yield from self._discarding()

    def finishing(self) -> Steps:
        """Return the steps that its commit has left; what waits for them may take some, also within one of them.

        The store has committed all operations, so all of them are carried out, even if one raises an error.
        """
        yield from self._applying
        actions = self._at_commit
        while actions:
            action = actions.pop()
            if self._forgone and isinstance(action, UncommittedSend) and self._is_forgone(action.gate):
                action = action.drop
            attempt(action, "carrying out a commit")
            yield 1

    def _is_forgone(self, gate: Gate) -> bool:
        return self._current.get(gate, gate) in self._forgone

    def forgo(self, gate: Gate) -> None:
        """Drop what its commit has not sent to a gate yet: the destination is deleted with all that was committed."""
        self._forgone.add(gate)

    def rollback(self, owner: Owner | None = None) -> None:
        """Roll back: drop the sends; make acknowledged deliveries outstanding again, or return them to backlogs.

        Args:
            owner: frees the memory of a long transaction in pieces; None: at once.
        """
        steps = self.rolling_back()
        if owner is not None and len(self._at_commit) > PIECE_MAX:
            owner.work_off(steps)
        else:
            carry_out(steps)

    def rolling_back(self) -> Steps:
        """Roll back; return the steps that free its memory."""
        after = TRANSITIONS.after(self.state, TransactionEvent.ROLLBACK)
        forgetting = self._store.rollback_steps(self.id) if self._in_store else iter(())
        self.state = after
        self._release()
        acknowledged, self._acknowledged = self._acknowledged, {}
        reinstate(acknowledged)
        return chain(forgetting, self._discarding())

    def _discarding(self) -> Steps:
        """Free the memory of the operations: 300,000 of them take a tenth of a second."""
        actions, sent = self._at_commit, self._sent
        while actions:
            del actions[-_DISCARDED_COUNT:]
            yield _DISCARDED_COUNT // 2
        while sent:
            for _ in range(min(len(sent), _DISCARDED_COUNT)):
                sent.pop()
            yield _DISCARDED_COUNT // 4
        for acknowledged in self._acknowledged.values():
            while acknowledged:
                del acknowledged[-_DISCARDED_COUNT:]
                yield _DISCARDED_COUNT // 2

    def _enqueue_at_commit(self, target: SendTarget, message: Message | PagedOutMessage, send: UncommittedSend) -> None:
        self._sent.add((message.destination, message.message_id))
        self._gates[target.gate] = None
        self._at_commit.append(send)

    def _keep_late(self, transaction_id: TransactionId | None) -> None:
        """Store messages for durable subscriptions that were created after the messages were sent."""
        for messages in self._unkept.values():
            self._keep(messages, transaction_id)

    def _keep(self, messages: Iterable[Message], transaction_id: TransactionId | None) -> None:
        for message in messages:
            self._store.add(message, transaction_id)

    def _enter(self, event: TransactionEvent) -> None:
        self.state = TRANSITIONS.after(self.state, event)

    def _asked_for(self, event: TransactionEvent, owner: Owner | None) -> TransactionState:
        """Return the state that an event leads to.

        Raises:
            TransactionRolledBack: it was doomed, and is rolled back.
        """
        after = TRANSITIONS.after(self.state, event)
        if after is _ROLLED_BACK:
            self.rollback(owner)
            raise CommitFailed(f"{self.id} is rolled back: {self._doom}")
        return after

    def _on_disk(self, gates: list[Gate]) -> None:
        """Open the gates."""
        self._enter(_ON_DISK)
        _open(gates)

    def _register(self) -> None:
        """Have the acknowledged messages leave memory while it is short."""
        if self._usage is not None:
            self._usage.delivered.add(self)

    def _count(self, size: int) -> None:
        if self._usage is not None:
            self._counted += size
            self._usage.in_transactions += size
            self._usage.acquire(size)

    def _release(self, *, is_committed: bool = False) -> None:
        """Release the memory of the transaction; after a commit, gates and destinations count its messages."""
        if not is_committed:
            self._uncommitted.end()
        if self._usage is not None:
            self._usage.delivered.discard(self)
        counted, self._counted = self._counted, 0
        if self._usage is not None and counted:
            self._usage.in_transactions -= counted
            self._usage.release(counted)

    def _check_memory(self) -> None:
        """Check that the transaction may grow: always, until memory is nearly full, and it and all of them hold much.

        The rest, above `Usage.fair_limit`, is for others: its operations cannot leave memory before its end. A full
        memory alone is no reason: what a fast producer sends may fill it for the time of a sync, and then leaves.

        Acknowledgements are not refused: what they acknowledge is freed by the commit that they belong to.

        Raises:
            ResourceLimit: it may not.
        """
        usage = self._usage
        if usage is None or usage.used < usage.fair_limit:
            return
        if usage.in_transactions < usage.in_transactions_max:
            return
        held = self._counted
        if held > max(UNCHECKED_BYTES, usage.limit >> 6):
            raise ResourceLimit(
                f"Usage Manager Memory Limit reached: {self.id} holds {held} bytes. "
                "Commit more often, or raise the limit."
            )

    def _check_open(self) -> None:
        """Check that an operation may be added."""
        if self.state is not _ACTIVE:
            if self.state is _PREPARED:
                raise TransactionError(f"{self.id} is prepared: nothing can be added to it")
            self._enter(TransactionEvent.ADD)
        if len(self._at_commit) >= OPERATIONS_MAX:
            raise TransactionError(f"{self.id} has {OPERATIONS_MAX} operations already: commit more often")


class CommitsInProgress:
    """The transactions whose commits are decided, and have operations left to carry out in memory.

    The store takes a commit as one event. So what comes after it there, as the removal of a destination or a new
    subscription, must come after all of its operations in memory too. A removal drops those that are left; a
    subscription waits for them. Neither has to do with commits that send elsewhere.
    """

    __slots__ = ("_transactions",)

    def __init__(self) -> None:
        self._transactions: dict[BrokerTransaction, None] = {}

    def begin(self, transaction: BrokerTransaction) -> None:
        """Add a transaction whose commit is decided."""
        self._transactions[transaction] = None

    def end(self, transaction: BrokerTransaction) -> None:
        """Remove a transaction all of whose operations are carried out."""
        self._transactions.pop(transaction, None)

    def forgo(self, gate: Gate) -> None:
        """Drop what the commits have not sent to a gate yet: its destination is deleted."""
        for transaction in self._transactions:
            if transaction.sends_to(gate):
                transaction.forgo(gate)

    def finishing(self, gate: Gate) -> Steps:
        """Return the steps that the commits have left which send to a gate."""
        for transaction in list(self._transactions):
            if transaction.sends_to(gate):
                yield from transaction.finishing()


def _open(gates: list[Gate]) -> None:
    """Open gates from the last to the first, in pieces if they are many: an open gate delivers messages."""
    for _ in range(_GATES_OPENED_MAX):
        if not gates:
            return
        gates.pop().open()
    if gates and not gates[-1].paging.defer(partial(_open, gates)):
        _open(gates)


def _branch(transaction_id: TransactionId) -> XATransactionId:
    if isinstance(transaction_id, XATransactionId):
        return transaction_id
    raise TransactionError(f"{transaction_id} is local: only XA transactions are prepared")


def check_branch(branch: XATransactionId) -> None:
    """Check the lengths of a branch's id, of which all tables have a copy (X/Open: `MAXGTRIDSIZE`, `MAXBQUALSIZE`).

    Raises:
        TransactionError: one is too long.
    """
    longest = max(len(branch.global_transaction_id), len(branch.branch_qualifier))
    if longest > XID_BYTES_MAX:
        raise TransactionError(f"an XID with a part of {longest} bytes, where {XID_BYTES_MAX} are allowed")
