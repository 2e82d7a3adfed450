"""Work that a store is killed in the middle of, and the check that what is left of it is correct.

Every promise the store makes is written to a ledger as it is made: one line per callback of `when_durable`. After the
crash the ledger and the recovered contents must agree, whatever the moment of death.
"""

import math
import random
import struct
from collections.abc import Callable, Iterable
from dataclasses import replace

from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import MessageStore
from pybroker.broker.domain.recovery import Recovery
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from pybroker.store import group_commit
from pybroker.store.journal.appender import JournalSettings

ORDERS, IN_TX, IN_XA, PRICES = queue("ORDERS"), queue("IN.TX"), queue("IN.XA"), topic("PRICES")
KEY = "client:s"
CONNECTION_ID = "ID:testhost-40001-1700000000000-3:1"
PRODUCER_ID = f"{CONNECTION_ID}:1:1"
OPERATIONS_PER_TRANSACTION = 3
SETTINGS = JournalSettings(file_bytes_max=6000, batch_bytes_max=2500, compact_after_cleanups=1)
"""Small, so that a run goes through many files."""

WAYS = ("thread", "inline")
"""The writers of batches."""

Ledger = Callable[[str], None]


def written(way: str) -> JournalSettings:
    """Return settings that have all batches written by the thread, or inline whatever can be."""
    if way == "inline":
        group_commit.INLINE_WAITERS_MAX = 1_000_000
        return replace(SETTINGS, inline_seconds_max=math.inf)
    return replace(SETTINGS, inline_seconds_max=0.0)


def message(destination: Destination, sequence: int, size: int = 0) -> Message:
    """Return a persistent bytes message, marshalled field by field (OpenWire v11, loose)."""
    producer = b"\x01\x7b" + _string(CONNECTION_ID) + struct.pack(">qq", 1, 1)
    name = b"\x01" + bytes((100 + destination.type,)) + _string(destination.name)
    message_id = b"\x01\x6e\0" + producer + struct.pack(">qq", sequence, 0)
    data = b"".join(
        (
            b"\x18" + struct.pack(">iB", 7, 1) + producer + name + b"\0\0" + message_id + b"\0\0",
            struct.pack(">iBBqbBqB", 0, 0, 1, 0, 4, 0, 1_700_000_000_000, 0),
            struct.pack(">Bi", 1, size) + b"x" * size + b"\0\0\0\0" + struct.pack(">iBq", 0, 0, 0),
            b"\0\0\0\0" + struct.pack(">qqB", 0, 0, 0),
        )
    )
    return Message(message_id=f"{PRODUCER_ID}:{sequence}", destination=destination, data=data, persistent=True)


def _string(text: str) -> bytes:
    return struct.pack(">BH", 1, len(text)) + text.encode()


class Workload:
    """A seeded stream of operations, one `step` at a time."""

    def __init__(self, store: MessageStore, ledger: Ledger, seed: int) -> None:
        self._store = store
        self._ledger = ledger
        self._random = random.Random(seed)
        self._sequence = 0
        self._live: list[int] = []
        self._pending: list[int] = []
        self._committed: list[tuple[Destination, int]] = []
        self._open: int | None = None
        self._prepared: list[tuple[int, int]] = []

    def begin(self) -> None:
        """Make the durable subscription."""
        self._store.subscribe(
            DurableSubscription(client_id="client", name="s", destination=PRICES, subscribed_destination=PRICES)
        )

    def step(self) -> None:
        """Run one operation, and write its promise into the ledger once it is made."""
        operations = (
            (self._send, 6),
            (self._consume, 8),
            (self._publish, 3),
            (self._acknowledge, 5),
            (self._transaction, 3),
            (self._consume_in_transaction, 4),
            (self._prepare, 1),
            (self._decide, 3),
        )
        operation = self._random.choices([each for each, _ in operations], [weight for _, weight in operations])[0]
        operation()

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    def _promise(self, *words: object) -> None:
        line = " ".join(map(str, words))
        self._ledger("try " + line)
        self._store.when_durable(lambda: self._ledger("done " + line))

    def _send(self) -> None:
        number = self._next()
        self._store.add(message(ORDERS, number, self._random.choice((0, 200, 900))))
        self._live.append(number)
        self._promise("send", number)

    def _consume(self) -> None:
        if self._live:
            number = self._live.pop(0)
            self._store.remove(ORDERS, message(ORDERS, number).message_id)
            self._promise("consume", number)

    def _publish(self) -> None:
        number = self._next()
        self._store.add(message(PRICES, number))
        self._pending.append(number)
        self._promise("publish", number)

    def _acknowledge(self) -> None:
        if self._pending:
            number = self._pending.pop(self._random.randrange(min(3, len(self._pending))))
            self._store.acknowledge(PRICES, KEY, message(PRICES, number).message_id)
            self._promise("acknowledge", number)

    def _transaction(self) -> None:
        """Begin a transaction, or end the one that is open."""
        if self._open is None:
            self._open = self._next()
            for _ in range(OPERATIONS_PER_TRANSACTION):
                self._store.add(message(IN_TX, self._sequence), self._transaction_id())
                self._sequence += 1
            return
        end = self._random.choice(("commit", "rollback"))
        getattr(self._store, end)(self._transaction_id())
        if end == "commit":
            self._committed.append((IN_TX, self._open))
        self._promise(end, self._open)
        self._open = None

    def _transaction_id(self) -> LocalTransactionId:
        return LocalTransactionId(CONNECTION_ID, self._open or 0)

    def _consume_in_transaction(self) -> None:
        """Consume all messages of a committed transaction, in another one."""
        if self._committed:
            destination, first = self._committed.pop(0)
            transaction = LocalTransactionId(CONNECTION_ID, -first)
            for number in range(first, first + OPERATIONS_PER_TRANSACTION):
                self._store.remove(destination, message(destination, number).message_id, transaction)
            self._store.commit(transaction)
            self._promise("receive" if destination == IN_TX else "xa-receive", first)

    def _prepare(self) -> None:
        """Send some messages in an XA transaction, consume one, and leave it to its coordinator."""
        if self._live and len(self._prepared) < 2:
            first, consumed = self._next(), self._live.pop(0)
            transaction = branch(first)
            for _ in range(OPERATIONS_PER_TRANSACTION):
                self._store.add(message(IN_XA, self._sequence), transaction)
                self._sequence += 1
            self._store.remove(ORDERS, message(ORDERS, consumed).message_id, transaction)
            self._store.prepare(transaction)
            self._prepared.append((first, consumed))
            self._promise("prepare", first, consumed)

    def _decide(self) -> None:
        if self._prepared:
            first, consumed = self._prepared.pop(self._random.randrange(len(self._prepared)))
            end = self._random.choice(("commit", "rollback"))
            getattr(self._store, end)(branch(first))
            if end == "rollback":
                self._live.insert(0, consumed)
            else:
                self._committed.append((IN_XA, first))
            self._promise(f"xa-{end}", first, consumed)


def branch(first: int) -> XATransactionId:
    """Return the XA transaction that sends a message with that sequence number, and those behind it."""
    return XATransactionId(1, str(first).encode(), b"branch")


def judge(ledger: list[str], recovery: Recovery) -> None:
    """Check what was recovered against what was promised.

    Done means done. What was tried and not answered may have happened or not, but a transaction only as a whole. And
    whatever there is, is in order.
    """
    tried = {line.removeprefix("try ") for line in ledger if line.startswith("try ")}
    done = {line.removeprefix("done ") for line in ledger if line.startswith("done ")}
    assert done <= tried

    tried, done = tried | _consumed(tried), done | _consumed(done)
    _judge_kind(tried, done, "send", "consume", _numbers(recovery.queues.get(ORDERS, ())))
    backlogs = [backlog.message_ids for backlog in recovery.backlogs]
    _judge_kind(tried, done, "publish", "acknowledge", _numbers(backlogs[0]) if backlogs else [])
    _judge_transactions(tried, done, _numbers(recovery.queues.get(IN_TX, ())))
    _judge_prepared(tried, done, recovery)


def judge_sequence(ledger: list[str], last_sequence: int) -> None:
    """Check the number by which a client's repeated sends are known: of all that was stored, and of nothing else."""
    tried = [line.removeprefix("try ") for line in ledger if line.startswith("try ")]
    done = [line.removeprefix("done ") for line in ledger if line.startswith("done ")]
    assert max(map(_stored, done), default=-1) <= last_sequence
    assert last_sequence in {-1, *map(_stored, tried)}


def _stored(line: str) -> int:
    """Return the highest number that an operation stored, -1 for one that stored nothing."""
    verb, number = line.split()[:2]
    if verb in ("commit", "xa-commit"):
        return int(number) + OPERATIONS_PER_TRANSACTION - 1
    return int(number) if verb in ("send", "publish") else -1


def _consumed(lines: set[str]) -> set[str]:
    """Return what XA commits consumed, in the format of consumption without a transaction."""
    return {f"consume {line.split()[2]}" for line in lines if line.split()[0] == "xa-commit"}


def _numbers(message_ids: Iterable[str]) -> list[int]:
    return [int(each.rpartition(":")[2]) for each in message_ids]


def _named(lines: set[str], verb: str) -> set[int]:
    return {int(line.split()[1]) for line in lines if line.split()[0] == verb}


def _judge_kind(tried: set[str], done: set[str], adding: str, removing: str, found: list[int]) -> None:
    assert found == sorted(found), "out of order, or twice"
    must = _named(done, adding) - _named(tried, removing)
    may = _named(tried, adding) - _named(done, removing)
    assert must <= set(found), f"lost: {must - set(found)}"
    assert set(found) <= may, f"came back: {set(found) - may}"


def _judge_transactions(tried: set[str], done: set[str], found: list[int]) -> None:
    assert found == sorted(found)
    firsts = _named(tried, "commit")
    members = {first: {first + n for n in range(OPERATIONS_PER_TRANSACTION)} for first in firsts}
    for first, numbers in members.items():
        present = numbers & set(found)
        assert present in (set(), numbers), f"half a transaction: {present}"
        if first in _named(done, "commit") - _named(tried, "receive"):
            assert present, f"a committed transaction was lost: {first}"
        if first in _named(done, "receive"):
            assert not present, f"a consumed transaction came back: {first}"
    assert set(found) <= set().union(*members.values()), "what was not committed came back"


def _judge_prepared(tried: set[str], done: set[str], recovery: Recovery) -> None:
    in_doubt = {int(each.transaction_id.global_transaction_id): each for each in recovery.prepared}
    committed, rolled_back = _named(tried, "xa-commit"), _named(tried, "xa-rollback")
    must = _named(done, "prepare") - committed - rolled_back
    assert must <= in_doubt.keys() <= _named(tried, "prepare") - _named(done, "xa-commit") - _named(done, "xa-rollback")
    consumed = {int(line.split()[1]): int(line.split()[2]) for line in tried if line.split()[0] == "prepare"}
    found = set(_numbers(recovery.queues.get(IN_XA, ())))
    for first in consumed:
        members = [first + number for number in range(OPERATIONS_PER_TRANSACTION)]
        there = found.intersection(members)
        if first in in_doubt:
            assert _numbers(each.message_id for each in in_doubt[first].sent) == members
            acknowledged = [message(ORDERS, consumed[first]).message_id]
            assert [each.message_id for each in in_doubt[first].acknowledged] == acknowledged
            assert not there, "a message was seen before its commit"
        else:
            assert there in (set(), set(members)), f"half a transaction: {there}"
            must_stay = _named(done, "xa-commit") - _named(tried, "xa-receive")
            assert there or first not in must_stay, "a committed transaction was lost"
            may_stay = committed - _named(done, "xa-receive")
            assert not there or first in may_stay, "what was not committed, or was consumed, came"
        found -= there
    assert not found
