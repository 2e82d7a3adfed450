"""A sample journal of any size, as a busy broker would have written it: the same bytes for the same seed.

Run from the root of the checkout: `python -m benchmarks.journal_generator DIRECTORY --size 2gb --seed 1`.

What goes on in it:

* a dozen queues of unequal traffic, consumed with a lag that comes and goes; one consumer cannot keep up;
* queues sent to in local transactions, some rolled back, and one in XA transactions, prepared and then decided;
* topics with durable subscriptions, one of them far behind, one whose selector passes over every third message;
* poison messages in `ActiveMQ.DLQ`, with their cause; short-lived queues that are removed again;
* text, map and bytes messages, about 1 KB of body, with properties and some with correlation id, group or expiration;
* batches of one record and of hundreds, data files of 32 MiB, a time mark a second;
* at the end, as if the broker was killed: one local transaction unfinished, one XA transaction in doubt.

`Totals` has what is in it, from the generator's own counts: the live messages, by destination and subscription, are
what any reader must come to.

Messages are marshalled once per producer and shape, by the broker's own codec, with numbers that are then replaced for
each message: that makes it some 100 MB a second.
"""

import argparse
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from math import sin
from pathlib import Path
from struct import Struct

from pybroker import __version__
from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.message import PRIORITY_DEFAULT, Message
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.commands import AckType, MessageAck
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, encode
from pybroker.broker.domain.openwire.objects import encode_ack, encode_subscription_info
from pybroker.broker.domain.openwire.throwables import Throwable
from pybroker.broker.domain.openwire.values import Value, encode_map
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId
from pybroker.store.journal.commands import (
    Commit,
    Prepare,
    RemoveDestination,
    RemoveMessage,
    Rollback,
    Subscribe,
    Trace,
    encode_add_record,
    encode_remove_record,
)
from pybroker.store.journal.commands import encode as encode_command
from pybroker.store.journal.format import (
    BATCH_BYTES_MAX,
    BATCH_HEADER_BYTES,
    EOF_MARKER,
    FILE_BYTES_MAX,
    data_file_name,
    encode_batch,
    encode_record,
)
from pybroker.store.journal.marks import TimeMarks
from pybroker.units import parse_size

BEGUN_MS = 1_767_225_600_000
"""New Year 2026, UTC: when the sample broker starts."""

DEAD_LETTERS = queue("ActiveMQ.DLQ")
CAUSE = "java.lang.Throwable: Exceeded redelivery policy limit:RedeliveryPolicy"
POISON_EVERY = 400
REMOVED_EVERY = 5_000
SHAPES = 12
"""Different messages per producer, numbers aside."""
ROLLED_BACK = 0.05

_LONG = Struct(">q")
_NUMBERS = [0x5A17_C0DE_0000_0000 + number for number in range(1, 5)]
"""Stand for sequence, expiration, time sent and time of arrival until a message is made. In the order of the wire."""


@dataclass
class Totals:
    """The contents of a generated journal.

    Attributes:
        records: user records, time marks and metadata records included.
        sent: messages added, by destination; those of transactions once they are committed.
        rolled_back: messages added in transactions that were rolled back, were left open, or are in doubt.
        consumed: messages removed from queues.
        dead: messages moved to the dead letter queue.
        pending: what is live at the end: message ids by queue, in order.
        backlogs: what durable subscriptions have still to get: message ids by topic and subscription key.
        in_doubt: the XA transaction that waits for its outcome.
        byte_count: of all data files.
        file_count: data files.
    """

    records: int = 0
    sent: Counter[Destination] = field(default_factory=Counter)
    rolled_back: int = 0
    consumed: int = 0
    dead: int = 0
    pending: dict[Destination, list[str]] = field(default_factory=dict)
    backlogs: dict[tuple[Destination, str], list[str]] = field(default_factory=dict)
    in_doubt: list[TransactionId] = field(default_factory=list)
    byte_count: int = 0
    file_count: int = 0


def generate(
    directory: Path, size: int, *, seed: int = 1, per_second: int = 3000, file_bytes_max: int = FILE_BYTES_MAX
) -> Totals:
    """Write a journal of about so many bytes into a directory without one, and return what is in it.

    Args:
        directory: made if it is missing.
        size: bytes of all data files, at least.
        seed: what is drawn.
        per_second: operations of the broker per second of its time, which does not pass here.
        file_bytes_max: when a data file is closed.

    Raises:
        FileExistsError: there are data files already.
    """
    directory.mkdir(parents=True, exist_ok=True)
    chance = random.Random(seed)
    journal = _Journal(directory, file_bytes_max)
    traffic = _Traffic(journal, chance)
    journal.append(encode_record(encode_command(Trace(f"pybroker {__version__} started, epoch 1"))))
    traffic.subscribe()
    journal.flush()
    operations = 0
    while journal.byte_count < size:
        batch = min(int(chance.expovariate(1 / 40)) + 1, 400)
        traffic.operate(batch)
        journal.flush()
        operations += batch
        journal.now = BEGUN_MS + operations * 1000 // per_second
    traffic.leave()
    journal.close()
    return traffic.final_totals()


class _Journal:
    """Data files, written batch by batch."""

    def __init__(self, directory: Path, file_bytes_max: int) -> None:
        self._directory = directory
        self._file_bytes_max = file_bytes_max
        self._marks = TimeMarks(lambda: self.now)
        self._records: list[bytes] = []
        self._end = 0
        self.file_id = 1
        self.now = BEGUN_MS
        self.byte_count = 0
        self.record_count = 0
        self.append: Callable[[bytes], None] = self._records.append
        self._file = (directory / data_file_name(1)).open("xb")

    def flush(self) -> None:
        """Write what was appended as one batch, or as few as ActiveMQ's limits allow."""
        batch: list[bytes] = []
        length = 0
        for record in self._records:
            if length + len(record) >= BATCH_BYTES_MAX or self._end + length + len(record) >= self._file_bytes_max:
                self._write(batch)
                batch, length = [], 0
            if self._end + len(record) >= self._file_bytes_max:
                self._rotate()
            if not batch and (mark := self._marks.begin(self.file_id)):
                batch.append(mark)
                length += len(mark) + BATCH_HEADER_BYTES
            batch.append(record)
            length += len(record)
        self._write(batch)
        self._records.clear()

    def close(self) -> None:
        """Finish the last file."""
        self._file.write(EOF_MARKER)
        self._file.close()

    def _write(self, records: list[bytes]) -> None:
        if records:
            data = encode_batch(records)
            self._file.write(data)
            self._end += len(data)
            self.byte_count += len(data)
            self.record_count += len(records)

    def _rotate(self) -> None:
        self.close()
        self.file_id += 1
        self._end = 0
        self._file = (self._directory / data_file_name(self.file_id)).open("xb")


class _Shape:
    """A message of one producer, marshalled except four numbers."""

    def __init__(self, fields: OpenWireMessage, *, seconds_to_live: int = 0) -> None:
        self.destination = fields.destination
        self.producer = fields.producer_id
        self.priority = fields.priority
        self._milliseconds_to_live = seconds_to_live * 1000
        fields.message_id = OpenWireMessageId(None, fields.producer_id, _NUMBERS[0])
        fields.expiration, fields.timestamp, fields.broker_in_time = _NUMBERS[1:]
        fields.persistent = True
        parts: list[bytes] = []
        rest = encode(fields)
        for number in _NUMBERS:
            part, found, rest = rest.partition(_LONG.pack(number))
            assert found
            parts.append(part)
        self._parts = (*parts, rest)

    def message(self, sequence: int, now: int) -> Message:
        """Return the message with that number of its producer, sent just before it arrived now."""
        pack = _LONG.pack
        to_live = self._milliseconds_to_live
        one, two, three, four, five = self._parts
        expiration = now - 2 + to_live if to_live else 0
        data = b"".join(
            (one, pack(sequence), two, pack(expiration), three, pack(now - 2), four, pack(now), five),
        )
        assert self.destination is not None
        return Message(
            message_id=f"{self.producer}:{sequence}",
            destination=self.destination,
            data=data,
            persistent=True,
            priority=self.priority,
        )


class _Producer:
    """Sends messages of several shapes to one destination, numbered in a row."""

    def __init__(self, number: int, destination: Destination, chance: random.Random) -> None:
        self.connection_id = f"ID:sample-{number}-1767225600000-{number}:1"
        self.producer_id = ProducerId(self.connection_id, 1, 1)
        self.destination = destination
        self._sequence = 0
        self._shapes = cycle([self._shape(chance) for _ in range(SHAPES)])

    def next(self, now: int) -> Message:
        """Return the next message."""
        self._sequence += 1
        return next(self._shapes).message(self._sequence, now)

    def _shape(self, chance: random.Random) -> _Shape:
        kind = chance.choices((MessageType.TEXT, MessageType.BYTES, MessageType.MAP), (14, 4, 2))[0]
        fields = OpenWireMessage(type=kind, producer_id=self.producer_id, destination=self.destination)
        size = min(int(chance.lognormvariate(6.8, 0.5)), 16_384)
        fields.content = _content(kind, size, chance)
        fields.priority = chance.choices((PRIORITY_DEFAULT, 7), (9, 1))[0]
        if chance.random() < 0.8:
            fields.set_properties(_properties(chance))
        if chance.random() < 0.3:
            fields.correlation_id = f"order-{chance.randrange(10**8)}"
            fields.jms_type = "order"
        if chance.random() < 0.1:
            fields.reply_to = queue("REPLIES")
        if chance.random() < 0.1:
            fields.group_id, fields.group_sequence = f"customer-{chance.randrange(100)}", 1
        return _Shape(fields, seconds_to_live=86_400 if chance.random() < 0.1 else 0)


def _content(kind: MessageType, size: int, chance: random.Random) -> bytes:
    text = " ".join(chance.choices(_WORDS, k=size // 7 + 1))[:size]
    if kind is MessageType.TEXT:
        return encode_text(text)
    if kind is MessageType.BYTES:
        return chance.randbytes(size)
    entries: dict[str, Value] = {"text": text, "count": chance.randrange(1000), "sum": chance.random(), "paid": True}
    return encode_map(entries)


def _properties(chance: random.Random) -> dict[str, Value]:
    return {
        "region": chance.choice(("eu", "us", "apac")),
        "order": chance.randrange(10**6),
        "customer": f"ACME-{chance.randrange(10**4):04}",
        "urgent": chance.random() < 0.1,
    }


# ---------------------------------------------------------------- what goes on


class _Queue:
    """A queue with its producers, and a consumer that follows at a distance.

    Args:
        keeps_up: the share of messages that are consumed once the distance is reached.
    """

    def __init__(
        self,
        traffic: "_Traffic",
        destination: Destination,
        *,
        distance: int = 20,
        keeps_up: float = 1.0,
        producers: int = 2,
    ) -> None:
        self.traffic = traffic
        self.destination = destination
        self.distance = distance
        self.keeps_up = keeps_up
        self.pending: deque[str] = deque()
        self.producers = cycle([traffic.producer(destination) for _ in range(producers)])
        self.sent = 0
        self.consumed = 0

    def operate(self) -> None:
        """Send a message, and consume one if as many wait as usual."""
        self.send()
        self.sent += 1
        wave = self.distance * (1 + sin(self.sent / (50 * self.distance)))
        if len(self.pending) > wave and (self.keeps_up == 1 or self.traffic.chance.random() < self.keeps_up):
            self.consume()
            if len(self.pending) > wave:  # it catches up on the way down
                self.consume()

    def send(self) -> None:
        """Send one."""
        traffic = self.traffic
        message = next(self.producers).next(traffic.journal.now)
        traffic.journal.append(encode_add_record(message))
        traffic.totals.sent[self.destination] += 1
        self.pending.append(message.message_id)

    def consume(self) -> None:
        """Consume the oldest; now and then that fails permanently."""
        message_id = self.pending.popleft()
        self.consumed += 1
        if self.consumed % POISON_EVERY == 0:
            self.traffic.bury(self.destination, message_id)
        else:
            self.traffic.journal.append(encode_remove_record(self.destination, message_id))
        self.traffic.totals.consumed += 1

    def leave(self) -> None:
        """End as a killed broker does."""


class _TransactedQueue(_Queue):
    """Sends and consumes ten at a time in a transaction, local or XA."""

    def __init__(self, traffic: "_Traffic", destination: Destination, *, is_xa: bool = False) -> None:
        super().__init__(traffic, destination, producers=1)
        self._is_xa = is_xa
        self._number = 0
        self._sent: list[str] = []
        self._took: list[str] = []
        self._transaction = self._begin()
        self._commit_at = 10

    def send(self) -> None:
        """Send one, in the transaction, and consume one that was committed before."""
        traffic = self.traffic
        message = next(self.producers).next(traffic.journal.now)
        traffic.journal.append(encode_add_record(message, self._transaction))
        self._sent.append(message.message_id)
        if len(self.pending) > self.distance:
            message_id = self.pending.popleft()
            traffic.journal.append(encode_remove_record(self.destination, message_id, self._transaction))
            self._took.append(message_id)
        if len(self._sent) >= self._commit_at:
            self._end()

    def consume(self) -> None:
        """Do nothing: it is done in transactions."""

    def leave(self) -> None:
        """Leave a local transaction unfinished, or an XA transaction in doubt, that has sent a message."""
        if self._sent:
            self._end()
        self._commit_at, self.distance = 2, len(self.pending)  # so it takes none
        self.send()
        self.traffic.totals.rolled_back += 1
        if self._is_xa:
            self.traffic.journal.append(encode_record(encode_command(Prepare(self._transaction))))
            self.traffic.totals.in_doubt.append(self._transaction)

    def _begin(self) -> TransactionId:
        self._number += 1
        if self._is_xa:
            return XATransactionId(4660, b"sample-%d" % self._number, b"branch-1")
        return LocalTransactionId(f"ID:sample-tx-1767225600000-{self.destination.name}:1", self._number)

    def _end(self) -> None:
        traffic, transaction = self.traffic, self._transaction
        if self._is_xa:
            traffic.journal.append(encode_record(encode_command(Prepare(transaction))))
        if traffic.chance.random() < ROLLED_BACK:
            traffic.journal.append(encode_record(encode_command(Rollback(transaction))))
            traffic.totals.rolled_back += len(self._sent)
            self.pending.extendleft(reversed(self._took))
        else:
            traffic.journal.append(encode_record(encode_command(Commit(transaction))))
            traffic.totals.sent[self.destination] += len(self._sent)
            traffic.totals.consumed += len(self._took)
            self.pending.extend(self._sent)
        self._sent, self._took = [], []
        self._transaction = self._begin()
        self._commit_at = traffic.chance.randrange(1, 20)


class _Topic:
    """A topic with durable subscriptions, each with its own lag; the last one's selector passes over every third."""

    def __init__(self, traffic: "_Traffic", destination: Destination, lags: dict[str, int]) -> None:
        self.traffic = traffic
        self.destination = destination
        self.lags = lags
        self.backlogs: dict[str, deque[str]] = {name: deque() for name in lags}
        self._selective = list(lags)[-1]
        self._producer = traffic.producer(destination)
        self._count = 0

    def subscribe(self) -> None:
        """Make the subscriptions."""
        for name in self.lags:
            made = DurableSubscription(
                client_id="sample",
                name=name,
                destination=self.destination,
                subscribed_destination=self.destination,
                selector="region = 'eu'" if name == self._selective else None,
            )
            command = Subscribe(self.destination, made.key, encode_subscription_info(made))
            self.traffic.journal.append(encode_record(encode_command(command)))

    def operate(self) -> None:
        """Send a message, and have each subscription acknowledge what it is behind."""
        traffic = self.traffic
        message = self._producer.next(traffic.journal.now)
        traffic.journal.append(encode_add_record(message))
        traffic.totals.sent[self.destination] += 1
        self._count += 1
        for name, backlog in self.backlogs.items():
            key = f"sample:{name}"
            if name == self._selective and self._count % 3 == 0:  # an empty ack: the selector did not match
                command = RemoveMessage(self.destination, message.message_id, b"", key)
                traffic.journal.append(encode_record(encode_command(command)))
                continue
            backlog.append(message.message_id)
            if len(backlog) > self.lags[name]:
                traffic.journal.append(encode_remove_record(self.destination, backlog.popleft(), None, key))

    def leave(self) -> None:
        """End as a killed broker does."""


class _Traffic:
    """All destinations, and the books about them."""

    def __init__(self, journal: _Journal, chance: random.Random) -> None:
        self.journal = journal
        self.chance = chance
        self.totals = Totals()
        self._producer_count = 0
        self._letters: list[str] = []
        self._letter_shapes: dict[str, _Shape] = {}
        self._producers: dict[str, ProducerId] = {}
        self._count = 0
        self._queues = [
            _Queue(self, queue(f"SAMPLE.{name}"), distance=distance, keeps_up=keeps_up)
            for name, distance, keeps_up in _QUEUES
        ]
        self._queues += [_TransactedQueue(self, queue(f"SAMPLE.TX.{number}")) for number in (1, 2)]
        self._queues.append(_TransactedQueue(self, queue("SAMPLE.XA"), is_xa=True))
        self._topics = [
            _Topic(self, topic("SAMPLE.PRICES"), {"fast": 3, "far-behind": 2000}),
            _Topic(self, topic("SAMPLE.NEWS"), {"one": 10, "two": 50, "selective": 5}),
        ]
        self._flows: list[_Queue | _Topic] = [*self._queues, *self._topics]
        self._weights = [24, 16, 12, 8, 6, 5, 4, 3, 3, 2, 2, 6, 4, 4, 4, 3]

    def producer(self, destination: Destination) -> _Producer:
        """Return a new producer."""
        self._producer_count += 1
        made = _Producer(self._producer_count, destination, self.chance)
        self._producers[str(made.producer_id)] = made.producer_id
        return made

    def subscribe(self) -> None:
        """Make the durable subscriptions."""
        for each in self._topics:
            each.subscribe()

    def operate(self, count: int) -> None:
        """Do so many things."""
        for flow in self.chance.choices(self._flows, self._weights, k=count):
            flow.operate()
        self._count += count
        if self._count >= REMOVED_EVERY:
            self._count = 0
            self._come_and_go()

    def bury(self, origin: Destination, message_id: str) -> None:
        """Move a message to the dead letter queue: the same id, the cause among its properties."""
        producer, _, sequence = message_id.rpartition(":")
        shape = self._letter_shapes.get(producer)
        if shape is None:
            shape = self._letter_shapes[producer] = _letter_shape(self._producers[producer], origin)
        self.journal.append(encode_add_record(shape.message(int(sequence), self.journal.now)))
        acknowledged = OpenWireMessageId(None, shape.producer, int(sequence))
        ack = MessageAck(
            ack_type=AckType.POISON,
            destination=origin,
            first_message_id=acknowledged,
            last_message_id=acknowledged,
            message_count=1,
            poison_cause=Throwable(class_name="java.lang.Throwable", message=CAUSE),
        )
        command = RemoveMessage(origin, message_id, encode_ack(ack))
        self.journal.append(encode_record(encode_command(command)))
        self.totals.sent[DEAD_LETTERS] += 1
        self.totals.dead += 1
        self._letters.append(message_id)

    def leave(self) -> None:
        """Leave all as a killed broker does."""
        for each in self._flows:
            each.leave()
        self.journal.flush()

    def final_totals(self) -> Totals:
        """Return the books, closed."""
        totals = self.totals
        totals.records = self.journal.record_count
        totals.byte_count = self.journal.byte_count
        totals.file_count = self.journal.file_id
        totals.pending = {each.destination: list(each.pending) for each in self._queues if each.pending}
        if self._letters:
            totals.pending[DEAD_LETTERS] = list(self._letters)
        totals.backlogs = {
            (each.destination, f"sample:{name}"): list(backlog)
            for each in self._topics
            for name, backlog in each.backlogs.items()
            if backlog
        }
        return totals

    def _come_and_go(self) -> None:
        """Send a few messages to a queue that is then removed, with all it holds."""
        place = queue(f"SAMPLE.BRIEF.{self.chance.randrange(10**6)}")
        producer = self.producer(place)
        for _ in range(3):
            self.journal.append(encode_add_record(producer.next(self.journal.now)))
            self.totals.sent[place] += 1
        self.journal.append(encode_record(encode_command(RemoveDestination(place))))


def _letter_shape(producer: ProducerId, origin: Destination) -> _Shape:
    fields = OpenWireMessage(
        type=MessageType.TEXT,
        producer_id=producer,
        destination=DEAD_LETTERS,
        original_destination=origin,
        content=encode_text("no consumer can take this " * 20),
        redelivery_counter=6,
    )
    fields.set_properties({"dlqDeliveryFailureCause": CAUSE, "region": "eu"})
    return _Shape(fields)


_WORDS = (
    "order",
    "item",
    "price",
    "amount",
    "customer",
    "region",
    "warehouse",
    "shipment",
    "invoice",
    "Müller",
    "東京",
)

_QUEUES = (
    ("ORDERS", 200, 1.0),
    ("PAYMENTS", 50, 1.0),
    ("SHIPMENTS", 500, 1.0),
    ("INVOICES", 20, 0.995),
    ("STOCK", 10, 1.0),
    ("MAIL", 5, 1.0),
    ("AUDIT", 100, 1.0),
    ("RETURNS", 5, 1.0),
    ("IMPORT", 1000, 1.0),
    ("EXPORT", 5, 1.0),
    ("SLOW", 5, 0.9),
)
"""Name, how many wait as a rule, and the share of messages that its consumer manages."""


def main() -> None:
    """Generate."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("directory", type=Path, help="a KahaDB directory to make, such as store/kahadb")
    parser.add_argument("--size", type=parse_size, default="200mb", help="of all data files, such as 2gb")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--per-second", type=int, default=3000, help="operations per second of the broker's time")
    options = parser.parse_args()
    totals = generate(options.directory, options.size, seed=options.seed, per_second=options.per_second)
    live = sum(map(len, totals.pending.values()))
    print(
        f"{options.directory}: {totals.byte_count:,} bytes in {totals.file_count} data files,"
        f" {totals.records:,} records, {sum(totals.sent.values()):,} messages sent, {live:,} live on queues"
    )


if __name__ == "__main__":
    main()
