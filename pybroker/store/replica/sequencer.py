"""Numbers the operations of a master's journals in one order, and holds callbacks until everything before is confirmed.

```text
messages   take(batch) --.                         own disk --.                         .--> callbacks, in order
scheduler  take(batch) --+--> n --> ship(n)                   +--> synced(n) … confirm(n)
           removed, replaced    (before the write)  ----------'
```

A promotion writes before there is a stream: its first data files with their first records. These operations are held,
and get their numbers when the epoch begins on the event loop: those of the message journal first, since scheduled
messages rest on it. The end of a former master's last file is not among them: a follower compares its files with the
master's when it connects, and that is after the epoch has begun.

A batch for a data file whose number is not reserved is held in the same way, and the writer's thread does not write it
until it is: a number that the register does not know might be used again by the next master.

What a journal's jobs remove and replace is shipped after it was done here. Such a job runs once everything that was
appended before it is confirmed, and each follower gets the operations in their order.

Used on the event loop, except that before the epoch a journal is used by the thread that recovers it.

Source: specification of replication, 3.1 (`reserved`, `durable`), 4.1 and 4.2.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import NamedTuple

from pybroker.broker.domain.replica.operations import (
    MARKER_BYTES,
    BeginFile,
    CutFile,
    FilePlace,
    Journal,
    Operation,
    RemoveFiles,
    ReplaceFile,
    WriteBatch,
)
from pybroker.store.journal.activity import JournalActivity
from pybroker.store.journal.appender import batch_body, body_checksum
from pybroker.store.journal.format import BATCH_HEADER_BYTES, batch_header
from pybroker.store.journal.sink import JournalBatch
from pybroker.store.runtime import Callback

ReadRecordElsewhere = Callable[[Journal, int, int, Callable[[bytes], None]], None]
"""Asks followers for the record at an offset of a data file, and passes it on; see `ReplicatedJournal`."""

Ship = Callable[[int, Operation], None]
"""Sends an operation with its sequence to the followers: `ReplicaMaster.ship`."""


class _HeldBatch(NamedTuple):
    """Operations that have no sequence yet.

    Attributes:
        number: of the journal's batch that they write.
        file_id: its data file.
        operations: in their order; the batch is the last one.
        end: where the batch ends.
    """

    number: int
    file_id: int
    operations: Sequence[Operation]
    end: FilePlace


class _SentBatch(NamedTuple):
    """A batch that was shipped, and may not be on the own disk.

    Attributes:
        number: of the journal's batch.
        first: the sequence of its first operation.
        last: its own sequence.
    """

    number: int
    first: int
    last: int


class _WaitingConfirmation(NamedTuple):
    """A callback for the time when everything up to a sequence is confirmed."""

    sequence: int
    callback: Callback


class _BatchEnd(NamedTuple):
    """The end of a journal batch that followers have not confirmed, and when it was sent."""

    sequence: int
    journal: Journal
    end: FilePlace
    sent_at: float


class Sequencer:
    """The operations of one epoch.

    Attributes:
        last: the last sequence that was given.
        synced: everything up to this sequence is on the own disk.
        confirmed: everything up to this sequence is confirmed.
        is_abandoned: nothing happens any more.
        on_damage: asks followers for a record that the own disk does not give back.
        confirm_times: the times from when a batch was sent until it was confirmed, in the classes of a sync's times.

    Args:
        first_files: by journal, the number of the data file that the promotion begins.
        reserved: by journal, the highest number that a data file may have.
        on_synced: called with `synced` when it has grown.
        on_file: called when a journal needs another data file: see `files`.
    """

    def __init__(
        self,
        first_files: Mapping[Journal, int],
        reserved: Mapping[Journal, int],
        *,
        on_synced: Callable[[int], object],
        on_file: Callback,
    ) -> None:
        self.last = self.synced = self.confirmed = 0
        self._on_synced = on_synced
        self._on_file = on_file
        self._ship: Ship | None = None
        self.on_damage: ReadRecordElsewhere = _nowhere
        self.is_abandoned = False
        self.confirm_times = JournalActivity()
        self._unconfirmed: deque[_BatchEnd] = deque()
        self._durable: dict[Journal, FilePlace] = {}
        self._journals = {
            journal: SequencedJournal(self, journal, first_file, reserved.get(journal, 0))
            for journal, first_file in sorted(first_files.items())
        }

    def journal(self, journal: Journal) -> "SequencedJournal":
        """Return the replica for a journal's writer. Each of the journals must be opened before the epoch begins."""
        return self._journals[journal]

    # ------------------------------------------------------------ for the election

    def begin(self, ship: Ship) -> int:
        """Begin the epoch: number and ship what the promotion has written; return the last sequence of that.

        Args:
            ship: takes all operations of the epoch, from sequence 1 on.
        """
        assert self._ship is None, "an epoch begins once"
        self._ship = ship
        self._release(self._journals.values())
        return self.last

    def reserve(self, numbers: Mapping[Journal, int]) -> None:
        """Allow data files up to these numbers, which are in the register now; those that wait for one are begun."""
        raised = [each for each in self._journals.values() if each.raise_reserved(numbers.get(each.journal, 0))]
        self._release(raised)

    def confirm(self, sequence: int) -> None:
        """Run the callbacks of everything up to a sequence: each disk that must have it has it.

        In the order of their sequences over both journals.
        """
        if self.is_abandoned or sequence <= self.confirmed:
            return
        assert sequence <= self.synced, "a master confirms what its own disk has"
        self.confirmed = sequence
        now = monotonic()
        while self._unconfirmed and self._unconfirmed[0].sequence <= sequence:
            _, journal, end, sent_at = self._unconfirmed.popleft()
            self._durable[journal] = end
            self.confirm_times.add_sync(now - sent_at)
        while (callback := self._next_callback()) is not None:
            callback()

    def abandon(self) -> None:
        """Ship nothing, and run no callback any more: this member is not the master."""
        self.is_abandoned = True
        for journal in self._journals.values():
            journal.abandon()

    def files(self) -> Mapping[Journal, int]:
        """Return the newest data file of each journal, also one that waits for its number to be reserved."""
        return {journal: each.file_id for journal, each in self._journals.items()}

    def durable(self) -> Mapping[Journal, FilePlace]:
        """Return where the confirmed records of this epoch end; a journal that has none is left out."""
        return dict(self._durable)

    # ------------------------------------------------------------ for the journals

    @property
    def is_shipping(self) -> bool:
        """True while operations get their sequences at once."""
        return self._ship is not None and not self.is_abandoned

    def number(self, operations: Iterable[Operation]) -> int:
        """Number operations and ship them; return the last sequence."""
        assert self._ship is not None, "operations are numbered in an epoch"
        for operation in operations:
            self.last += 1
            self._ship(self.last, operation)
        return self.last

    def sent(self, end: _BatchEnd) -> None:
        """Note where a batch ends."""
        self._unconfirmed.append(end)

    def file_begun(self) -> None:
        """Report that a journal needs another data file."""
        if self.is_shipping:
            self._on_file()

    def disk_has_more(self) -> None:
        """Report how far the own disk is, if it has more than before."""
        waiting_for = [each.unsynced for each in self._journals.values() if each.unsynced]
        synced = min(waiting_for) - 1 if waiting_for else self.last
        if synced > self.synced and not self.is_abandoned:
            self.synced = synced
            self._on_synced(synced)

    def _release(self, journals: Iterable["SequencedJournal"]) -> None:
        """Ship what was held and may go now."""
        if self.is_shipping:
            for journal in journals:
                journal.release()
            self.disk_has_more()

    def _next_callback(self) -> Callback | None:
        """Take the first callback that is due; None if there is none."""
        due = [each for each in self._journals.values() if 0 < each.due <= self.confirmed]
        return min(due, key=_due).take_callback() if due else None


class SequencedJournal:
    """Implements `ReplicatedJournal`.

    Attributes:
        journal: the journal.
        first_file: the number of the first data file.
        file_id: the newest data file.

    Args:
        sequencer: of both journals.
        journal: the journal.
        first_file: the number of the first data file.
        reserved: the highest number of a data file.
    """

    def __init__(self, sequencer: Sequencer, journal: Journal, first_file: int, reserved: int) -> None:
        self.journal = journal
        self.first_file = self.file_id = first_file
        self._sequencer = sequencer
        self._reserved = self._begun_up_to = reserved
        self._has_checksums = True
        self._end: FilePlace | None = None
        """The end of the last batch that was shipped or is held; None before the first."""
        self._held: deque[_HeldBatch] = deque()
        self._early: deque[tuple[int, Callback]] = deque()
        """Callbacks of batches that are held although the own disk has them: those of the promotion."""
        self._sent: deque[_SentBatch] = deque()
        self._waiting: deque[_WaitingConfirmation] = deque()

    # ------------------------------------------------------------ for the writer

    def opening(self, *, has_checksums: bool) -> None:
        """Note how batches are written."""
        self._has_checksums = has_checksums

    def may_begin(self, file_id: int) -> bool:
        """Return True if a data file's number is reserved, and its creation was shipped."""
        return file_id <= self._begun_up_to

    def take(self, number: int, batch: JournalBatch) -> None:
        """Ship a batch, and before it the end of a full data file and the creation of the next one."""
        if self._sequencer.is_abandoned:
            return
        body = batch_body(batch.records, is_in_pieces=batch.is_in_pieces)
        length = sum(map(len, body))
        file_id, offset = batch.file_id, batch.offset
        operations: list[Operation] = []
        former, self._end = self._end, FilePlace(file_id, offset + BATCH_HEADER_BYTES + length)
        is_new_file = former is None or former.file_id != file_id
        if is_new_file:
            if former is not None:
                operations.append(CutFile(self.journal, former.file_id, former.offset + MARKER_BYTES))
            operations.append(BeginFile(self.journal, file_id))
            self.file_id = file_id
        header = batch_header(length, body_checksum(body) if self._has_checksums else 0)
        operations.append(WriteBatch(self.journal, file_id, offset, (header, *body)))
        held = _HeldBatch(number, file_id, operations, self._end)
        if self._sequencer.is_shipping and file_id <= self._reserved:  # files ascend, so that nothing is held then
            self._send(held)
        else:
            self._held.append(held)
        if is_new_file:
            self._sequencer.file_begun()

    def when_confirmed(self, number: int, callback: Callback) -> None:
        """Note that the own disk has a batch, and call back when that is confirmed."""
        if self._sequencer.is_abandoned:
            return
        if self._held and self._held[0].number <= number:
            self._early.append((number, callback))
            return
        sequence = 0
        while self._sent and self._sent[0].number <= number:
            sequence = self._sent.popleft().last
        assert sequence, "a batch is written once"
        self._waiting.append(_WaitingConfirmation(sequence, callback))
        self._sequencer.disk_has_more()

    def removed(self, file_ids: Sequence[int]) -> None:
        """Ship the removal of data files."""
        self._follow(RemoveFiles(self.journal, sorted(file_ids)))

    def read_elsewhere(self, file_id: int, offset: int, taken: Callable[[bytes], None]) -> None:
        """Ask the followers for a record that this disk does not give back."""
        self._sequencer.on_damage(self.journal, file_id, offset, taken)

    def replaced(self, file_id: int, content: Sequence[bytes]) -> None:
        """Ship another content of a data file."""
        self._follow(ReplaceFile(self.journal, file_id, content))

    # ------------------------------------------------------------ for the sequencer

    @property
    def unsynced(self) -> int:
        """The first sequence that the own disk may not have; 0 if it has all that were given."""
        return self._sent[0].first if self._sent else 0

    @property
    def due(self) -> int:
        """The sequence that the first callback waits for; 0 without one."""
        return self._waiting[0].sequence if self._waiting else 0

    def take_callback(self) -> Callback:
        """Take the first callback."""
        return self._waiting.popleft().callback

    def raise_reserved(self, number: int) -> bool:
        """Allow data files up to a number; return True if that is more than before."""
        if number <= self._reserved:
            return False
        self._reserved = number
        return True

    def release(self) -> None:
        """Ship what was held, up to the first data file whose number is not reserved."""
        while self._held and self._held[0].file_id <= self._reserved:
            held = self._held.popleft()
            self._send(held)
            if self._early and self._early[0][0] == held.number:  # the own disk has it
                self._waiting.append(_WaitingConfirmation(self._sent.pop().last, self._early.popleft()[1]))
        self._begun_up_to = self._reserved  # not before: the thread may create the file from now on

    def abandon(self) -> None:
        """Forget all that waits."""
        self._held.clear()
        self._early.clear()
        self._sent.clear()
        self._waiting.clear()
        self._begun_up_to = 0

    # ------------------------------------------------------------ private

    def _send(self, held: _HeldBatch) -> None:
        sequencer = self._sequencer
        first = sequencer.last + 1
        last = sequencer.number(held.operations)
        self._sent.append(_SentBatch(held.number, first, last))
        sequencer.sent(_BatchEnd(last, self.journal, held.end, monotonic()))

    def _follow(self, operation: Operation) -> None:
        """Ship what the own disk has already."""
        if self._sequencer.is_shipping:
            self._sequencer.number((operation,))
            self._sequencer.disk_has_more()


def _nowhere(journal: Journal, file_id: int, offset: int, taken: Callable[[bytes], None]) -> None:
    """Pass on nothing: there is no follower."""
    taken(b"")


def _due(journal: SequencedJournal) -> int:
    return journal.due
