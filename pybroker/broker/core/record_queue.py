"""Keeps one record per key in the store, across crashes: as the newest message of the key on a reserved queue.

A record is replaced in a transaction, which adds the new message and removes the old one. If both are there all the
same, recovery keeps the one with the highest number. Bodies are only in the store; their owners keep copies in memory.

The queue has no object in the core. So clients cannot reach it, and it is in no list and no statistics.

Bodies are read back in pages, one in each turn of the event loop, so that very many requests do not hold up others.
Only what is on disk can be read: a page waits for all records put so far, and keeps the bodies of those put meanwhile.

A data file of a journal stays while it has a record, and others with acknowledgements may stay because of it. So the
store selects records of files that hold mostly garbage, and these are written again, a few at a time.

The messages are added in transactions for another reason, too: write elision, which waits a moment for a consumer of a
queue's message, leaves those alone.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from pybroker.broker.core.containment import attempt
from pybroker.broker.core.paging import PAGE_BYTES_MAX, PAGE_MAX, Paging, severity
from pybroker.broker.core.record_messages import RecordMessages
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.openwire.message import view
from pybroker.broker.domain.ports import Clock, MessageStore, RemovalReason
from pybroker.broker.domain.reserved_queues import RecordId, ReservedQueue
from pybroker.broker.domain.transaction import LocalTransactionId

_log = logging.getLogger(__name__)

_NUMBERS_PER_MS: Final = 1000
"""Numbers begin with the time, so that those of a later master are higher, also if the former one removed its last."""


REFRESHED_MAX: Final = 100
"""Records that are written again at a time."""

_Wanted = tuple[str, int | None]
"""A key, and the number that its record must still have to be read back; None: any."""

Receive = Callable[[bytes | None], None]
"""Gets the body of a record that was read back; None if there is none any more, or it cannot be read."""


class _Page(NamedTuple):
    """Records read back together.

    Attributes:
        bodies: by key; a key without one has no record, or one that cannot be read back.
        looked_at: the number of keys that were looked up, from the first on.
    """

    bodies: dict[str, bytes]
    looked_at: int


class RecordQueue:
    """The records on one reserved queue."""

    __slots__ = (
        "_begin",
        "_clock",
        "_fresh",
        "_messages",
        "_number",
        "_numbers",
        "_paging",
        "_removal_count",
        "_requests",
        "_reserved",
        "_store",
        "_unreadable",
    )

    def __init__(
        self,
        reserved: ReservedQueue,
        store: MessageStore,
        begin: Callable[[], LocalTransactionId],
        clock: Clock,
        paging: Paging,
    ) -> None:
        """Begin without records.

        Args:
            reserved: the queue.
            store: keeps the records.
            begin: returns the id of a new transaction.
            clock: milliseconds since the epoch.
            paging: the event loop.
        """
        self._reserved = reserved
        self._messages = RecordMessages(reserved)
        self._store = store
        self._begin = begin
        self._clock = clock
        self._paging = paging
        self._requests: deque[tuple[_Wanted, Receive]] = deque()
        self._fresh: dict[str, bytes] | None = None
        """The records put since a page waits for those before; None while none does."""
        self._numbers: dict[str, int] = {}
        """The number of each key's record, the oldest first."""
        self._unreadable: set[str] = set()
        """The keys of records that could not be read back to write them again."""
        self._number = 0
        """The highest number so far."""
        self._removal_count = 0
        """Removals that are not on disk yet."""

    def recover(self, message_ids: Iterable[str]) -> None:
        """Take over the records of former masters, and remove all but the newest of each key."""
        numbers, outdated, foreign_count = self._numbers, list[RecordId](), 0
        for message_id in message_ids:
            record = self._reserved.record_id(message_id)
            if record is None:
                foreign_count += 1
                continue
            key, number = record
            known = numbers.get(key, -1)
            if known >= 0:
                outdated.append(RecordId(key, min(known, number)))
            numbers[key] = max(known, number)
        self._number = max(numbers.values(), default=0)
        for record in outdated:
            self._store.remove(
                self._reserved.destination, self._reserved.message_id(record), reason=RemovalReason.DISCARDED
            )
        if foreign_count:
            _log.warning(
                "%s has %d messages that this broker has not made: they stay there",
                self._reserved.destination,
                foreign_count,
            )

    def __contains__(self, key: str) -> bool:
        return key in self._numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def can_grow(self) -> bool:
        """False while the store has no space for new messages."""
        return not self._store.is_full

    @property
    def is_removing(self) -> bool:
        """True while a removal is not on disk yet: a confirmation, which speaks of messages alone, must wait for it."""
        return self._removal_count > 0

    def put(self, key: str, body: bytes) -> None:
        """Append a record, which replaces that of the same key.

        Args:
            key: its key, of at most 1,024 characters.
            body: its body.

        Raises:
            RequestError: the store cannot hold the key.
            StoreUnavailable: the store has stopped.
        """
        reserved, store, now = self._reserved, self._store, self._clock()
        self._number = number = max(self._number + 1, now * _NUMBERS_PER_MS)
        transaction = self._begin()
        former = self._numbers.get(key)
        store.add(self._messages.message(key, number, now, body, is_repeated=former is not None), transaction)
        self._numbers.pop(key, None)
        if former is not None:
            store.remove(reserved.destination, reserved.message_id(RecordId(key, former)), transaction)
        store.commit(transaction)
        if self._fresh is not None:
            self._fresh[key] = body
        self._numbers[key] = number
        self._unreadable.discard(key)

    def remove(self, key: str) -> None:
        """Append the removal of a key's record; do nothing if there is none.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        number = self._numbers.pop(key, None)
        self._unreadable.discard(key)
        if number is None:
            return
        reserved = self._reserved
        message_id = reserved.message_id(RecordId(key, number))
        self._store.remove(reserved.destination, message_id, reason=RemovalReason.DISCARDED)
        self._removal_count += 1
        self._store.when_durable(self._removed)

    def read_all(self) -> Iterator[tuple[str, bytes]]:
        """Yield each key and the body of its record, if that can be read. Blocks: for few records, at recovery.

        Raises:
            StoreUnavailable: nothing can be read now; a later call may succeed.
        """
        wanted: list[_Wanted] = [(key, None) for key in self._numbers]
        while wanted:
            page = self._read_page(wanted[:PAGE_MAX])
            yield from page.bodies.items()
            del wanted[: max(1, page.looked_at)]

    def request(self, key: str, receive: Receive) -> None:
        """Read a record back in a later turn of the event loop, behind earlier requests."""
        self._request((key, None), receive)

    def _request(self, wanted: _Wanted, receive: Receive) -> None:
        self._requests.append((wanted, receive))
        if len(self._requests) == 1 and not self._paging.defer(self._await_page):
            self._await_page()

    def refresh(self) -> None:
        """Write records again whose files the store could remove; called periodically."""
        if self._store.is_full:
            return
        for message_id in self._store.take_records_to_move(self._reserved.destination, REFRESHED_MAX):
            record = self._reserved.record_id(message_id)
            if record is not None and record.key not in self._unreadable:
                # One that has replaced it may not be on disk yet, where only its place would be found.
                self._request((record.key, record.number), partial(self._rewrite, record.key, record.number))

    # ------------------------------------------------------------ private

    def _rewrite(self, key: str, number: int, body: bytes | None) -> None:
        if self._numbers.get(key) != number:
            return  # it was replaced or removed meanwhile
        if body is None:  # the store has logged it; it stays, as the file may be repaired
            self._unreadable.add(key)
        else:
            self.put(key, body)

    def _await_page(self) -> None:
        """Answer requests once what was put so far is on disk."""
        self._fresh = {}
        self._store.when_durable(self._serve)

    def _serve(self) -> None:
        """Answer requests: those of one page, or without an event loop all."""
        requests = self._requests
        while requests:
            page = [wanted for wanted, _ in islice(requests, PAGE_MAX)]
            try:
                bodies, looked_at = self._read_page(page)
            except StoreUnavailable as error:
                text = "%d records of %s are read later: %s"
                _log.log(severity(error), text, len(requests), self._reserved.destination, error)
                self._paging.waiting[self._await_page] = None
                self._fresh = None
                return
            for key, _ in page[:looked_at]:
                _, receive = requests.popleft()
                attempt(partial(receive, bodies.get(key)), "receiving a record")
            if requests and self._paging.defer(self._await_page):
                return
        self._fresh = None

    def _read_page(self, wanted: Sequence[_Wanted]) -> _Page:
        """Read records from the first one on. Blocks.

        Raises:
            StoreUnavailable: nothing can be read now; a later call may succeed.
        """
        reserved, numbers = self._reserved, self._numbers
        ids: list[str] = []
        places: list[int] = []
        bodies: dict[str, bytes] = {}
        fresh = self._fresh or {}
        for place, (key, expected) in enumerate(wanted):
            number = numbers.get(key)
            if number is None or expected not in (None, number):
                continue
            body = fresh.get(key)
            if body is not None:
                bodies[key] = body
            else:
                ids.append(reserved.message_id(RecordId(key, number)))
                places.append(place)
        messages, looked_at = self._store.read_page(reserved.destination, ids, PAGE_BYTES_MAX) if ids else ([], 0)
        for message in messages:
            record = reserved.record_id(message.message_id)
            if record is not None:
                bodies[record.key] = bytes(view(message).content or b"")
        return _Page(bodies, len(wanted) if looked_at == len(ids) else places[looked_at])

    def _removed(self) -> None:
        self._removal_count -= 1
