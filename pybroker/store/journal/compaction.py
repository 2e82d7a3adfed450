"""Shrinks data files that must stay for their acknowledgements alone, by rewriting them without the dead messages.

One message that is never consumed, in a dead letter queue say, keeps its data file; the acks for that file's other
messages keep the next file; the acks for *its* messages the one after, and so on: the whole journal stays for one
message. What keeps the chain together are messages long dead, so they are dropped where they lie:

```text
db-3  live, dead a   <--ack a--  db-4  ack a, dead b   <--ack b--  db-5  ack b, dead c   <-- …
db-3  live, dead a   <--ack a--  db-4  ack a                       db-5  ack b             can go now
```

A file with no live message, no unfinished transaction and no durable subscription to keep is replaced, in one step
and under its own name, by a copy without its `AddMessage` records. Everything else keeps its order. When the copy has
nothing left that another file must answer, the chain ends there.

ActiveMQ instead copies acks and commits behind the end of the journal (`RewrittenDataFile`), where a copied ack may
follow its own commit and be lost. Staying in place has no such traps, and to ActiveMQ the copy is a data file like any
other, once its index is gone; this store removes that index when it opens.

Source: ActiveMQ 5.17, `enableAckCompaction`, for when to do it.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pybroker.broker.domain.transaction import TransactionId
from pybroker.store.journal.commands import (
    CommandType,
    Commit,
    Prepare,
    RemoveMessage,
    Rollback,
    Subscribe,
    UpdateMessage,
    decode,
)
from pybroker.store.journal.format import BATCH_BYTES_MAX, EOF_MARKER, encode_batch, encode_record
from pybroker.store.journal.marks import mark_at


class CompactedFile(NamedTuple):
    """A data file without its dead messages.

    Attributes:
        records: encoded records, in their order.
        dropped_count: how many were left out.
        is_closed: nothing in it would come to life without some other file: no transaction that ends elsewhere, no
            subscription, no update.
    """

    records: list[bytes]
    dropped_count: int
    is_closed: bool


def compacted(payloads: Iterable[bytes]) -> CompactedFile:
    """Return what stays of a data file whose messages are all dead.

    Raises:
        MalformedRecord: a record does not decode. Such a file is better left alone.
    """
    records: list[bytes] = []
    dropped_count = 0
    is_closed = True
    open_transactions: set[TransactionId] = set()
    for payload in payloads:
        if payload[0] == CommandType.ADD_MESSAGE:
            dropped_count += 1
            continue
        records.append(encode_record(payload))
        match decode(payload):
            case RemoveMessage(transaction=transaction) if transaction is not None:
                open_transactions.add(transaction)
            case Commit(transaction) | Rollback(transaction):
                open_transactions.discard(transaction)
            case Prepare() | Subscribe() | UpdateMessage():
                is_closed = False
            case _:
                pass
    return CompactedFile(records, dropped_count, is_closed and not open_transactions)


def encode_data_file(records: Iterable[bytes], *, checksum: bool = True) -> list[bytes]:
    """Return the pieces of a data file with these records, its EOF marker included. A time mark begins a batch."""
    pieces: list[bytes] = []
    batch: list[bytes] = []
    byte_count = 0
    for record in records:
        if batch and (byte_count + len(record) >= BATCH_BYTES_MAX or mark_at(record, 0) is not None):
            pieces.append(encode_batch(batch, checksum=checksum))
            batch, byte_count = [], 0
        batch.append(record)
        byte_count += len(record)
    if batch:
        pieces.append(encode_batch(batch, checksum=checksum))
    return [*pieces, EOF_MARKER]


def records_of_files(payloads: Iterable[bytes], bytes_max: int) -> Iterator[list[bytes]]:
    """Return the encoded records of one data file after the other, each file with less than a number of bytes."""
    records: list[bytes] = []
    byte_count = 0
    for payload in payloads:
        record = encode_record(payload)
        if records and byte_count + len(record) >= bytes_max:
            yield records
            records, byte_count = [], 0
        records.append(record)
        byte_count += len(record)
    if records:
        yield records
