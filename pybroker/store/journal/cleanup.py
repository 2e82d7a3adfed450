"""Selects the data files that are no longer needed. Pure decisions over the store's state; the store acts on them.

A data file must stay as long as

1. it, or a later one, is being written;
2. it holds a live message;
3. it holds a record of an unfinished transaction;
4. it holds the latest record of a durable subscription, or an earlier one while the subscription has pending messages
   that came before the latest: without that a replay would not add those messages to it;
5. it voids records of a file that stays: an acknowledgement must live as long as any record that would create the
   message again, an outcome as long as any operation of its transaction, an unsubscription as long as the subscription.

The fifth rule runs along chains: if `db-7` has acks for messages in `db-3`, and `db-3` stays, `db-7` stays, and so does
`db-9` with acks for messages in `db-7`.

```text
db-3 (live) <--acks-- db-7 <--acks-- db-9        all three stay
db-4        <--acks-- db-5                       both go, db-4 first
```

Because of chains one old message can make a journal grow without bounds; `compaction` breaks them. Where a chain hangs
on a few small records that may be written again, `relocation` does that.

Files go in ascending order, each one durably before the next. References point to lower ids only, so a crash in between
leaves an ack without its message, which is harmless, and never a message without its ack.

The durable subscriptions may be very many, so a running store visits them in pieces (`SubscriptionFiles`), while others
change. That is safe: a subscription that was visited without pending messages needs the file of its latest record, and
that file stays. What it gets later, and each later record of it, is in the file that was being written or a later one.

Source: ActiveMQ 5.17, `MessageDatabase.checkpointUpdate`: the same rules, without what only its index needs.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Self

from pybroker.broker.domain.destination import Destination
from pybroker.store.journal.commands import Subscribe, Trace
from pybroker.store.journal.contents import FILE_SHIFT, OFFSET_SHIFT, Contents, Subscription
from pybroker.store.journal.state import StoreState, encode_sequences

RENEWALS_MAX = 1000
"""Subscriptions that one cleanup writes again: at some 300 bytes each, a burst no client notices."""
VISITED_AT_ONCE = 1000
"""Subscriptions or destinations that are visited in one turn of the event loop: some 0.5 ms."""
PENDING_CHECKED_MAX = 4096
"""Pending messages of a subscription whose places are compared with its record's: at most a millisecond."""
SUBSCRIPTION_REST_BYTES = 512
"""Estimated bytes of a subscription's record beside its `SubscriptionInfo`."""
TRACE_ENTRIES_MAX = 1000
"""Producers in one record: some 50 KB, at most half a megabyte."""


class SubscriptionFiles:
    """The data files that the durable subscriptions need, once all of these were visited.

    Attributes:
        keep_from: the file that is being written when the visit begins.
    """

    def __init__(self, state: StoreState, keep_from: int) -> None:
        self.keep_from = keep_from
        self._state = state
        self._busy: set[int] = set()
        """Files that subscriptions with pending messages need."""
        self._idle: dict[int, list[tuple[Destination, str]]] = {}
        """By file, the topics and keys of the others whose latest record it has."""
        self._taken_count = 0
        """Subscriptions that were taken to be written again."""

    @classmethod
    def of(cls, state: StoreState, keep_from: int) -> Self:
        """Return the files of a state whose subscriptions are visited at once."""
        files = cls(state, keep_from)
        for _ in files.visit():
            pass
        return files

    def visit(self) -> Iterator[None]:
        """Visit the subscriptions; yields after each `VISITED_AT_ONCE` of them, or topics and queues without any."""
        left = VISITED_AT_ONCE
        for topic, contents in list(self._state.destinations.items()):
            oldest: int | None = None
            for key, subscription in list(contents.subscriptions.items()) if contents.subscriptions else ():
                if subscription.pending or self._state.is_in_pieces:
                    if oldest is None:
                        oldest = oldest_place(contents)
                    left -= len(subscription.pending) // 4 if len(subscription.pending) <= PENDING_CHECKED_MAX else 0
                    is_whole = not self._state.is_in_pieces
                    self._busy |= needed_files(contents, subscription, oldest) if is_whole else subscription.files
                elif subscription.location.file_id < self.keep_from:
                    self._idle.setdefault(subscription.location.file_id, []).append((topic, key))
                left -= 1
                if left <= 0:
                    left = VISITED_AT_ONCE
                    yield
            left -= 1
            if left <= 0:
                left = VISITED_AT_ONCE
                yield

    @property
    def unmovable(self) -> set[int]:
        """Files that stay for subscriptions with pending messages, or for too many subscriptions."""
        return self._busy | {file_id for file_id, found in self._idle.items() if len(found) > RENEWALS_MAX}

    def movable_bytes(self) -> dict[int, int]:
        """Return by file the bytes of the subscriptions whose latest record it has, and that may be written again."""
        byte_counts: dict[int, int] = {}
        unmovable = self.unmovable
        for file_id, found in self._idle.items():
            if file_id not in unmovable:
                byte_counts[file_id] = sum(map(self._byte_count, found))
        return byte_counts

    def _byte_count(self, name: tuple[Destination, str]) -> int:
        """Return the estimated bytes of a subscription's record; 0 for one that was deleted."""
        topic, key = name
        contents = self._state.destinations.get(topic)
        subscription = None if contents is None else contents.subscriptions.get(key)
        return 0 if subscription is None else len(subscription.info) + SUBSCRIPTION_REST_BYTES

    def take_moved(self, file_id: int) -> list[Subscribe] | None:
        """Return the subscriptions whose latest record is in a file, to be written again.

        None if one of them has a pending message by now, or more than `RENEWALS_MAX` would be taken. ActiveMQ takes a
        record of a subscription for an acknowledgement of the topic's newest message, and would not deliver that one.
        """
        found = self._renewals_of(file_id)
        if found is None or self._taken_count + len(found) > RENEWALS_MAX:
            return None
        self._taken_count += len(found)
        return found

    @property
    def all(self) -> set[int]:
        """All files that subscriptions need."""
        return self._busy | self._idle.keys()

    def take_renewals(self, file_ids: Collection[int]) -> list[Subscribe]:
        """Return the subscriptions to write again, so that more files can be removed: these count as written.

        Only subscriptions that have nothing pending qualify: on replay a subscription begins where its record is, and
        what was sent before is not for it. While the contents are not whole none does: something may still come.
        """
        renewals: list[Subscribe] = []
        if self._state.is_in_pieces:
            return renewals
        pinned = _pinned(self._state) | self._busy
        for file_id in unreferenced(self._state.usage.references, file_ids, self.keep_from, pinned):
            if len(renewals) + len(self._idle.get(file_id, ())) <= RENEWALS_MAX:
                found = self._renewals_of(file_id)
                if found is not None:
                    renewals += found
                    self._idle.pop(file_id, None)
        self._taken_count += len(renewals)
        return renewals

    def _renewals_of(self, file_id: int) -> list[Subscribe] | None:
        """Return the subscriptions of a file that are still idle; None if one of them has messages now."""
        found: list[Subscribe] = []
        for topic, key in self._idle.get(file_id, ()):
            contents = self._state.destinations.get(topic)
            subscription = None if contents is None else contents.subscriptions.get(key)
            if subscription is None:
                continue  # deleted since the visit
            if subscription.pending:
                return None
            if subscription.location.file_id != file_id:
                continue  # written again
            found.append(Subscribe(topic, key, subscription.info))
        return found


def oldest_place(contents: Contents) -> int:
    """Return the entry of a topic's oldest message; 0 if it is not quickly known.

    It is asked for once for all subscriptions of a topic: a dictionary passes what was removed at its beginning.
    """
    return next(iter(contents.messages.values()), 0) if isinstance(contents.messages, dict) else 0


def needed_files(contents: Contents, subscription: Subscription, oldest: int) -> set[int]:
    """Return the files whose records of a subscription a replay needs, if no commit is being applied in pieces.

    Args:
        contents: the topic's.
        subscription: one of it.
        oldest: the topic's `oldest_place`, now or before.
    """
    if subscription.pending and not _is_settled(contents, subscription, oldest):
        return subscription.files
    return {subscription.location.file_id}


def _is_settled(contents: Contents, subscription: Subscription, oldest: int) -> bool:
    """Return True if all that is pending for a subscription is behind its latest record: a replay needs no earlier one.

    A message of a transaction counts from its commit on, and that is behind the message. Where it is not quickly
    known, or a message has several records, the answer is False.
    """
    if contents.recalls or contents.superseded or not isinstance(contents.messages, dict):
        return False
    file_id, offset = subscription.location
    place = file_id << FILE_SHIFT | offset << OFFSET_SHIFT
    if oldest > place:  # entries compare like their places
        return True
    messages = contents.messages
    return len(subscription.pending) <= PENDING_CHECKED_MAX and all(
        messages[each] > place for each in subscription.pending
    )


def removable(
    state: StoreState, file_ids: Collection[int], keep_from: int, subscriptions: SubscriptionFiles | None = None
) -> list[int]:
    """Return the data files that can go, in the order in which they must.

    Args:
        state: with every record applied that was appended; the files may go once those are durable.
        file_ids: the files there are.
        keep_from: the file that is being written; it and all above stay.
        subscriptions: what the durable subscriptions need; None: they are visited now.
    """
    needed = subscriptions or SubscriptionFiles.of(state, keep_from)
    return unreferenced(state.usage.references, file_ids, keep_from, _pinned(state) | needed.all)


def renewable(state: StoreState, file_ids: Collection[int], keep_from: int) -> list[Subscribe]:
    """Return the durable subscriptions to write again; see `SubscriptionFiles.take_renewals`."""
    return SubscriptionFiles.of(state, keep_from).take_renewals(file_ids)


def sequence_traces(state: StoreState, file_ids: Collection[int]) -> Iterator[Trace]:
    """Yield the producers' last sequence numbers, to be written again before these files lose their messages.

    A client may send a message again if it got no answer, also after the message was consumed and its file removed.
    """
    sequences = list(state.sequences.recorded_in(file_ids).items())
    for start in range(0, len(sequences), TRACE_ENTRIES_MAX):
        yield encode_sequences(dict(sequences[start : start + TRACE_ENTRIES_MAX]))


def compactable(
    state: StoreState, file_ids: Collection[int], keep_from: int, subscriptions: SubscriptionFiles | None = None
) -> list[int]:
    """Return the data files that only the fifth rule keeps, in ascending order: `compaction` shrinks those."""
    pinned = _pinned(state) | (subscriptions or SubscriptionFiles.of(state, keep_from)).all
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
