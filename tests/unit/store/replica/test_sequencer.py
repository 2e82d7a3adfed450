"""One order for the operations of both journals, and callbacks that wait until everything before is confirmed."""

import zlib
from collections.abc import Callable

import pytest

from pybroker.broker.domain.replica.operations import (
    BeginFile,
    CutFile,
    FilePlace,
    Journal,
    Operation,
    RemoveFiles,
    ReplaceFile,
    WriteBatch,
)
from pybroker.store.journal.format import BATCH_HEADER_BYTES, EOF_MARKER, batch_header, encode_batch
from pybroker.store.journal.sink import JournalBatch
from pybroker.store.replica.sequencer import Sequencer

MESSAGES, SCHEDULER = Journal.MESSAGES, Journal.SCHEDULER
BATCH_BYTES = BATCH_HEADER_BYTES + 1


class Term:
    """A sequencer with both journals, whose first batches are written."""

    def __init__(self, *, ahead: int = 8, is_begun: bool = True) -> None:
        self.log: list[str] = []
        self.shipped: list[Operation] = []
        self.numbers = {MESSAGES: 0, SCHEDULER: 0}
        self.places = {MESSAGES: FilePlace(43, 0), SCHEDULER: FilePlace(9, 0)}
        self.on_synced: Callable[[int], object] = lambda sequence: self.log.append(f"synced {sequence}")
        self.sequencer = Sequencer(
            {MESSAGES: 43, SCHEDULER: 9},
            {MESSAGES: 43 + ahead, SCHEDULER: 9 + ahead},
            on_synced=lambda sequence: self.on_synced(sequence),
            on_file=lambda: self.log.append(f"files {sorted(self.sequencer.files().values())}"),
        )
        if is_begun:
            for journal in (SCHEDULER, MESSAGES):
                self.take(journal, b"1")
                self.write(journal, "first")
            self.sequencer.begin(self.ship)
            self.log.clear()
            self.shipped.clear()

    def ship(self, sequence: int, operation: Operation) -> None:
        assert sequence == self.sequencer.last
        self.shipped.append(operation)

    def take(self, journal: Journal, record: bytes = b"r", *, is_new_file: bool = False) -> None:
        """Take the next batch, of one record of a byte."""
        file_id, offset = self.places[journal]
        if is_new_file:
            file_id, offset = file_id + 1, 0
        self.places[journal] = FilePlace(file_id, offset + BATCH_BYTES)
        self.numbers[journal] += 1
        batch = JournalBatch(file_id, offset, [record])
        self.sequencer.journal(journal).take(self.numbers[journal], batch)

    def write(self, journal: Journal, name: str, number: int = 0) -> None:
        """Have the own disk have a batch; by default the newest."""
        replica = self.sequencer.journal(journal)
        replica.when_confirmed(number or self.numbers[journal], lambda: self.log.append(name))


class TestOrder:
    def test_a_promotion_is_numbered_when_the_epoch_begins_with_messages_first(self) -> None:
        term = Term(is_begun=False)
        for journal in (SCHEDULER, MESSAGES):
            term.take(journal, b"1")
            term.write(journal, "first")
        assert (term.shipped, term.log) == ([], [])
        assert term.sequencer.begin(term.ship) == 4
        assert [type(each).__name__ for each in term.shipped] == ["BeginFile", "WriteBatch"] * 2
        assert [each.journal for each in term.shipped] == [MESSAGES, MESSAGES, SCHEDULER, SCHEDULER]
        assert term.shipped[:3:2] == [BeginFile(MESSAGES, 43), BeginFile(SCHEDULER, 9)]
        assert term.log == ["synced 4"]

    def test_what_the_own_disk_has_not_at_the_beginning_is_not_synced(self) -> None:
        term = Term(is_begun=False)
        term.take(MESSAGES)
        term.write(MESSAGES, "first")
        term.take(MESSAGES)
        term.take(SCHEDULER)
        term.write(SCHEDULER, "job")
        assert term.sequencer.begin(term.ship) == 5
        assert term.log == ["synced 2"]
        term.write(MESSAGES, "second")
        assert term.log == ["synced 2", "synced 5"]

    def test_batches_of_both_journals_are_numbered_as_they_are_taken(self) -> None:
        term = Term()
        for journal in (MESSAGES, SCHEDULER, SCHEDULER, MESSAGES):
            term.take(journal)
        assert [each.journal for each in term.shipped] == [MESSAGES, SCHEDULER, SCHEDULER, MESSAGES]
        assert term.sequencer.last == 4 + 4

    def test_a_new_file_is_the_end_of_the_former_one_its_beginning_and_a_batch(self) -> None:
        term = Term()
        term.take(MESSAGES, b"a", is_new_file=True)
        assert term.shipped == [
            CutFile(MESSAGES, 43, BATCH_BYTES + len(EOF_MARKER)),
            BeginFile(MESSAGES, 44),
            WriteBatch(MESSAGES, 44, 0, (batch_header(1, zlib.adler32(b"a")), b"a")),
        ]
        assert term.log == ["files [9, 44]"]

    @pytest.mark.parametrize("has_checksums", [True, False])
    def test_a_batch_has_the_bytes_of_the_disk(self, has_checksums: bool) -> None:
        term = Term()
        replica = term.sequencer.journal(MESSAGES)
        replica.opening(has_checksums=has_checksums)
        records = [b"short", b"x" * (64 << 10), b"", b"tail"]
        replica.take(2, JournalBatch(43, BATCH_BYTES, records, is_in_pieces=True))
        replica.take(3, JournalBatch(43, 100_000, records))
        for operation in term.shipped:
            assert isinstance(operation, WriteBatch)
            assert b"".join(operation.content) == encode_batch(records, checksum=has_checksums)

    def test_removals_and_replacements_count_as_synced_at_once(self) -> None:
        term = Term()
        replica = term.sequencer.journal(SCHEDULER)
        replica.removed([7, 3])
        replica.replaced(8, (b"content", EOF_MARKER))
        assert term.shipped == [RemoveFiles(SCHEDULER, [3, 7]), ReplaceFile(SCHEDULER, 8, (b"content", EOF_MARKER))]
        assert term.log == ["synced 5", "synced 6"]

    def test_what_is_removed_before_the_epoch_is_for_the_comparison_of_files(self) -> None:
        term = Term(is_begun=False)
        term.sequencer.journal(MESSAGES).removed([7])
        term.sequencer.journal(MESSAGES).replaced(7, (EOF_MARKER,))
        assert term.sequencer.begin(term.ship) == 0
        assert not term.shipped


class TestConfirmations:
    def test_synced_is_what_both_journals_have_in_order(self) -> None:
        term = Term()
        term.take(MESSAGES)  # 5
        term.take(SCHEDULER)  # 6
        term.take(MESSAGES)  # 7
        term.write(SCHEDULER, "job")
        assert term.log == []
        term.write(MESSAGES, "message", 2)
        assert term.log == ["synced 6"]
        term.sequencer.journal(MESSAGES).removed([1])  # 8
        assert term.log == ["synced 6"]
        term.write(MESSAGES, "message")
        assert term.log == ["synced 6", "synced 8"]

    def test_callbacks_run_in_the_order_of_both_journals_once_all_before_is_confirmed(self) -> None:
        term = Term()
        for journal in (MESSAGES, SCHEDULER, MESSAGES):
            term.take(journal)
        term.write(SCHEDULER, "job")
        term.write(MESSAGES, "one", 2)
        term.write(MESSAGES, "two")
        term.log.clear()
        term.sequencer.confirm(3)
        assert term.log == ["first"]
        term.sequencer.confirm(4)
        term.sequencer.confirm(4)
        assert term.log == ["first", "first"]
        term.sequencer.confirm(7)
        assert term.log[2:] == ["one", "job", "two"]

    def test_a_file_is_confirmed_with_its_first_batch(self) -> None:
        term = Term()
        term.take(MESSAGES, is_new_file=True)  # 5, 6, 7
        term.write(MESSAGES, "new")
        term.sequencer.confirm(4)
        term.log.clear()
        term.sequencer.confirm(6)
        assert (term.log, term.sequencer.durable()[MESSAGES]) == ([], FilePlace(43, BATCH_BYTES))
        term.sequencer.confirm(7)
        assert (term.log, term.sequencer.durable()[MESSAGES]) == (["new"], FilePlace(44, BATCH_BYTES))

    def test_a_master_alone_confirms_when_its_disk_has_a_batch(self) -> None:
        term = Term()
        term.on_synced = term.sequencer.confirm
        term.take(MESSAGES)
        term.write(MESSAGES, "message")
        assert term.log == ["first", "first", "message"]

    def test_durable_is_what_is_confirmed_of_each_journal(self) -> None:
        term = Term()
        assert term.sequencer.durable() == {}
        term.sequencer.confirm(2)
        assert term.sequencer.durable() == {MESSAGES: FilePlace(43, BATCH_BYTES)}
        term.take(MESSAGES)
        term.write(MESSAGES, "message")
        term.sequencer.confirm(4)
        assert term.sequencer.durable() == {
            MESSAGES: FilePlace(43, BATCH_BYTES),
            SCHEDULER: FilePlace(9, BATCH_BYTES),
        }

    def test_a_master_confirms_nothing_that_its_own_disk_lacks(self) -> None:
        term = Term()
        term.take(MESSAGES)
        with pytest.raises(AssertionError, match="own disk"):
            term.sequencer.confirm(5)

    def test_a_callback_may_end_the_term_before_the_next_one(self) -> None:
        term = Term()
        term.take(MESSAGES)
        term.sequencer.journal(MESSAGES).when_confirmed(2, term.sequencer.abandon)
        term.take(MESSAGES)
        term.write(MESSAGES, "later")
        term.sequencer.confirm(6)
        assert "later" not in term.log


class TestReservedNumbers:
    def test_a_batch_for_a_file_that_is_not_reserved_is_held(self) -> None:
        term = Term(ahead=0)
        replica = term.sequencer.journal(MESSAGES)
        term.take(MESSAGES, is_new_file=True)
        term.take(MESSAGES)
        assert term.shipped == []
        assert not replica.may_begin(44)
        assert term.log == ["files [9, 44]"], "the register has to be asked for a file that waits"
        term.sequencer.reserve({MESSAGES: 44, SCHEDULER: 9})
        assert [type(each).__name__ for each in term.shipped] == ["CutFile", "BeginFile", "WriteBatch", "WriteBatch"]
        assert replica.may_begin(44)
        assert not replica.may_begin(45)

    def test_a_file_may_be_created_only_after_its_creation_was_shipped(self) -> None:
        term = Term(ahead=0)
        term.take(MESSAGES, is_new_file=True)
        was_allowed: list[bool] = []
        ship = term.ship

        def look(sequence: int, operation: Operation) -> None:
            was_allowed.append(term.sequencer.journal(MESSAGES).may_begin(44))
            ship(sequence, operation)

        term.sequencer._ship = look
        term.sequencer.reserve({MESSAGES: 50})
        assert was_allowed == [False, False, False]

    def test_the_other_journal_goes_on(self) -> None:
        term = Term(ahead=0)
        term.take(MESSAGES, is_new_file=True)
        term.take(SCHEDULER)
        term.write(SCHEDULER, "job")
        term.sequencer.confirm(5)
        assert term.log == ["files [9, 44]", "synced 5", "first", "first", "job"]
        term.sequencer.reserve({MESSAGES: 44})
        term.write(MESSAGES, "message")
        term.sequencer.confirm(8)
        assert term.log[-2:] == ["synced 8", "message"]

    def test_numbers_are_never_taken_back(self) -> None:
        term = Term(ahead=2)
        term.sequencer.reserve({MESSAGES: 43})
        assert term.sequencer.journal(MESSAGES).may_begin(45)


def test_nothing_happens_after_the_end_of_the_term() -> None:
    term = Term()
    term.take(MESSAGES)
    term.write(MESSAGES, "message")
    term.take(SCHEDULER)
    term.log.clear()
    term.shipped.clear()
    term.sequencer.abandon()
    term.sequencer.confirm(5)
    term.write(SCHEDULER, "job")
    term.take(MESSAGES, is_new_file=True)
    term.write(MESSAGES, "later")
    term.sequencer.reserve({MESSAGES: 99, SCHEDULER: 99})
    term.sequencer.journal(MESSAGES).removed([1])
    assert (term.log, term.shipped) == ([], [])
    assert not term.sequencer.journal(MESSAGES).may_begin(44)
