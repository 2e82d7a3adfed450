"""Each producer's last stored sequence number, for duplicate suppression (ActiveMQ's producer audit).

A client that lost its connection sends unanswered messages again with the same ids. Ids of one producer end in a number
that grows with every send, so one number per producer shows which of its messages were stored, consumed or not. The
core decides when to check.

```text
ID:host-40001-1700000000000-3:1 : 1 : 1 : 42
`--------- connection --------´  session  sequence
`--------------- producer ------------´
```

The highest number stands for all below it, for two reasons. Only what is committed counts, so a transaction that was
rolled back may be sent again under the same ids. And of one producer nothing is committed behind what it sent later,
since a session has one local transaction at a time. (An XA session may suspend a branch and send in another. It is
harmless: of an open transaction nothing is stored, and a client never repeats one whose commit it requested.)

Producers that have not sent for a long time are forgotten, so the memory has a bound: two generations of a dict are an
LRU at the price of one look-up per message.

Source: ActiveMQ 5.17, `KahaDBStore.getLastProducerSequenceId`, `ActiveMQMessageAuditNoSync`.
"""

from collections.abc import Collection, Iterator, Mapping

from pybroker.broker.domain.reserved_queues import RECORD_PREFIXES

PRODUCERS_MAX = 16_384
"""Least number of producers kept, the latest ones; at most twice as many: some 5 MB. ActiveMQ has 64."""
PRODUCER_ID_LENGTH_MAX = 512
"""Producers with longer ids are not remembered: strange ones must not fill the memory. Real ones have about 50."""


_OF_STOMP = ":-1:1"
"""Session and producer of each STOMP connection (ActiveMQ 5.17, `ProtocolConverter`)."""

NOT_JOURNALLED = 0
"""Stands for a data file: no record exists, since the message was consumed before it was written."""


class ProducerSequences:
    """The highest sequence number of each producer, and the data file that records it."""

    __slots__ = ("_older", "_recent")

    def __init__(self) -> None:
        # Per producer a list of both, changed in place: nothing is cheaper, and this runs for every message.
        self._recent: dict[str, list[int]] = {}
        self._older: dict[str, list[int]] = {}

    def record(self, message_id: str, file_id: int = 0) -> None:
        """Record that a message is stored. An id without a sequence number at its end is ignored.

        Args:
            message_id: the producer's id, a colon, and the sequence number.
            file_id: the data file with the record, or `NOT_JOURNALLED`.
        """
        producer_id, _, text = message_id.rpartition(":")
        try:
            sequence = int(text)
        except ValueError:
            return  # not an OpenWire client's, which alone sends again
        known = self._recent.get(producer_id)
        if known is None:
            self._add_producer(producer_id, sequence, file_id)
        elif sequence >= known[0]:
            known[0] = sequence
            known[1] = file_id

    def restore(self, sequences: Mapping[str, int], file_id: int = 0) -> None:
        """Record sequence numbers that were stored earlier."""
        for producer_id, sequence in sequences.items():
            self.record(f"{producer_id}:{sequence}", file_id)

    def last(self, producer_id: str) -> int:
        """Return the highest number of a producer, -1 if it is not remembered."""
        known = self._recent.get(producer_id) or self._older.get(producer_id)
        return known[0] if known else -1

    def recorded_in(self, file_ids: Collection[int]) -> dict[str, int]:
        """Return the producers that these data files record, with their sequences, the oldest producers first."""
        return {
            producer_id: sequence
            for generation in (self._older, self._recent)
            for producer_id, (sequence, file_id) in generation.items()
            if file_id in file_ids
        }

    def items(self) -> Iterator[tuple[str, list[int]]]:
        """Yield producers with their sequence and its data file, the oldest producers first."""
        for generation in (self._older, self._recent):
            yield from generation.items()

    def watermarks(self) -> "Watermarks":
        """Return the current sequence number of each producer."""
        return Watermarks({producer_id: sequence for producer_id, (sequence, _) in self.items()})

    def _add_producer(self, producer_id: str, sequence: int, file_id: int) -> None:
        """Add a producer that is new, or move it from the older generation."""
        if not _is_usual(producer_id, sequence):
            return
        known = max(self._older.pop(producer_id, [-1, 0]), [sequence, file_id])
        if len(self._recent) >= PRODUCERS_MAX:
            self._older, self._recent = self._recent, {}
        self._recent[producer_id] = known


class Watermarks:
    """Each producer's sequence number at some moment: later messages cannot have been stored by then."""

    __slots__ = ("_highest", "_is_complete")

    def __init__(self, highest: dict[str, int]) -> None:
        self._highest = highest
        # With fewer producers than this none was forgotten.
        self._is_complete = len(highest) < PRODUCERS_MAX

    def is_beyond(self, message_id: str) -> bool:
        """Return True if a message's id shows that it came later; False if that is unknown."""
        producer_id, _, text = message_id.rpartition(":")
        try:
            sequence = int(text)
        except ValueError:
            return False
        highest = self._highest.get(producer_id)
        if highest is None:
            return self._is_complete and _is_usual(producer_id, sequence)
        return sequence > highest


def split(message_id: str) -> tuple[str, int]:
    """Return a message's producer and sequence number; -1 if its id ends in none."""
    producer_id, _, text = message_id.rpartition(":")
    return producer_id, int(text) if text.isdecimal() else -1


def is_sent_again(producer_id: str, sequence: int) -> bool:
    """Return True if a producer may send a message again; False on STOMP, where the broker makes the ids."""
    return _is_usual(producer_id, sequence) and not producer_id.endswith(_OF_STOMP)


def _is_usual(producer_id: str, sequence: int) -> bool:
    """Return True if a producer is to be remembered for a message."""
    return sequence >= 0 and len(producer_id) <= PRODUCER_ID_LENGTH_MAX and not producer_id.startswith(RECORD_PREFIXES)
