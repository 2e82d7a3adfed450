"""Selects the data files that are no longer needed. Pure decisions over the store's state; the store acts on them.

A data file must stay as long as

1. it, or a later one, is being written;
2. it holds a live message;
3. it holds a record of an unfinished transaction;
4. it holds the record that creates a durable subscription (`StoreState.subscription_files`);
5. it voids records of a file that stays: an acknowledgement must live as long as any record that would create the
   message again, an outcome as long as any operation of its transaction, an unsubscription as long as the subscription.

The fifth rule runs along chains: if `db-7` has acks for messages in `db-3`, and `db-3` stays, `db-7` stays, and so does
`db-9` with acks for messages in `db-7`.

```text
db-3 (live) <--acks-- db-7 <--acks-- db-9        all three stay
db-4        <--acks-- db-5                       both go, db-4 first
```

Because of chains one old message can make a journal grow without bounds; `compaction` breaks them.

Files go in ascending order, each one durably before the next. References point to lower ids only, so a crash in between
leaves an ack without its message, which is harmless, and never a message without its ack.

Source: ActiveMQ 5.17, `MessageDatabase.checkpointUpdate`: the same rules, without what only its index needs.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from pybroker.store.journal.commands import Subscribe, Trace
from pybroker.store.journal.state import StoreState, encode_sequences

RENEWALS_MAX = 1000
"""Subscriptions that one cleanup writes again: at some 300 bytes each, a burst no client notices."""
TRACE_ENTRIES_MAX = 1000
"""Producers in one record: some 50 KB, at most half a megabyte."""


def removable(state: StoreState, file_ids: Collection[int], keep_from: int) -> list[int]:
    """Return the data files that can go, in the order in which they must.

    Args:
        state: with every record applied that was appended; the files may go once those are durable.
        file_ids: the files there are.
        keep_from: the file that is being written; it and all above stay.
    """
    return unreferenced(state.usage.references, file_ids, keep_from, _pinned(state) | state.subscription_files())


def renewable(state: StoreState, file_ids: Collection[int], keep_from: int) -> list[Subscribe]:
    """Return the durable subscriptions to write again, so that more files can be removed.

    Only subscriptions that have nothing pending qualify: on replay a subscription begins where its record is, and what
    was sent before is not for it.
    """
    idle: dict[int, list[Subscribe]] = {}
    busy: set[int] = set()
    for topic, key, subscription in state.subscriptions():
        if subscription.pending:
            busy |= subscription.files
        else:
            command = Subscribe(topic, key, subscription.info)
            idle.setdefault(subscription.location.file_id, []).append(command)
    renewals: list[Subscribe] = []
    for file_id in unreferenced(state.usage.references, file_ids, keep_from, _pinned(state) | busy):
        found = idle.get(file_id, [])
        if len(renewals) + len(found) <= RENEWALS_MAX:
            renewals += found
    return renewals


def sequence_traces(state: StoreState, file_ids: Collection[int]) -> Iterator[Trace]:
    """Yield the producers' last sequence numbers, to be written again before these files lose their messages.

    A client may send a message again if it got no answer, also after the message was consumed and its file removed.
    """
    sequences = list(state.sequences.recorded_in(file_ids).items())
    for start in range(0, len(sequences), TRACE_ENTRIES_MAX):
        yield encode_sequences(dict(sequences[start : start + TRACE_ENTRIES_MAX]))


def compactable(state: StoreState, file_ids: Collection[int], keep_from: int) -> list[int]:
    """Return the data files that only the fifth rule keeps, in ascending order: `compaction` shrinks those."""
    pinned = _pinned(state) | state.subscription_files()
    gone = set(unreferenced(state.usage.references, file_ids, keep_from, pinned))
    return sorted(file_id for file_id in file_ids if file_id < keep_from and file_id not in pinned | gone)


def _pinned(state: StoreState) -> set[int]:
    """Return the files kept by their own contents, apart from subscriptions."""
    return state.usage.live.keys() | state.transaction_files()


def unreferenced(
    references: Mapping[int, Collection[int]], file_ids: Iterable[int], keep_from: int, pinned: Collection[int]
) -> list[int]:
    """Return the files that are neither pinned nor void records of a file that stays.

    Args:
        references: per file the files whose records it voids.
        file_ids: the existing files.
        keep_from: the file that is being written; it and all above stay.
        pinned: files kept by their own contents.
    """
    existing = set(file_ids)
    candidates = {file_id for file_id in existing if file_id < keep_from}.difference(pinned)
    referrers: dict[int, list[int]] = {}
    for file_id in candidates:
        for referred in references.get(file_id, ()):
            referrers.setdefault(referred, []).append(file_id)
    staying = list(existing - candidates)
    while staying:
        for file_id in referrers.get(staying.pop(), ()):
            if file_id in candidates:
                candidates.remove(file_id)
                staying.append(file_id)
    return sorted(candidates)
