"""Both journals of a master with a sequencer, on a loop that the test turns, and the copy that its operations make."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.identity import BrokerIdentity
from pybroker.broker.domain.jobs import Job
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import (
    MessageType,
    OpenWireMessage,
    OpenWireMessageId,
    ProducerId,
    to_message,
)
from pybroker.broker.domain.replica.operations import (
    MARKER_BYTES,
    BeginFile,
    CutFile,
    Journal,
    Operation,
    RemoveFiles,
    ReplaceFile,
    WriteBatch,
)
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.journal.format import EOF_MARKER, data_file_name
from pybroker.store.journal.reader import data_files
from pybroker.store.journal.store import JournalStore
from pybroker.store.replica.sequencer import Sequencer
from pybroker.store.scheduler.store import JournalJobStore
from tests.replicas import journals, logical
from tests.runtimes import runtime

WAIT_SECONDS = 20.0
QUEUE = queue("Q")
PRODUCER = ProducerId("ID:c:1", 1, 1)
SETTINGS = JournalSettings(file_bytes_max=4000, batch_bytes_max=1500, compact_after_cleanups=1)


def message(sequence: int, size: int = 10) -> Message:
    return to_message(
        OpenWireMessage(
            type=MessageType.BYTES,
            producer_id=PRODUCER,
            destination=QUEUE,
            message_id=OpenWireMessageId(None, PRODUCER, sequence),
            persistent=True,
            content=b"x" * size,
        )
    )


class HandTurnedLoop:
    """An event loop's scheduling, turned by the test."""

    def __init__(self) -> None:
        self.ready: list[Callable[[], None]] = []
        self.arrived = threading.Condition()

    def call_soon(self, callback: Callable[[], None]) -> None:
        with self.arrived:
            self.ready.append(callback)
            self.arrived.notify()

    def turn(self) -> None:
        with self.arrived:
            ready, self.ready = self.ready, []
        for callback in ready:
            callback()

    def run_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            with self.arrived:
                assert self.arrived.wait_for(lambda: self.ready, WAIT_SECONDS), "nothing happens any more"
            self.turn()


class CopiedFiles:
    """The logical contents of a follower's data files, as operations make them. Refuses what does not fit.

    Attributes:
        contents: by journal and number.
        finished: files that are cut.
    """

    def __init__(self) -> None:
        self.contents: dict[tuple[Journal, int], bytes] = {}
        self.finished: set[tuple[Journal, int]] = set()

    def newest(self, journal: Journal) -> int:
        return max((number for each, number in self.contents if each is journal), default=0)

    def apply(self, operation: Operation) -> None:
        journal = operation.journal
        newest = journal, self.newest(journal)
        match operation:
            case BeginFile(_, file_id):
                assert file_id > newest[1]
                assert newest not in self.contents or newest in self.finished
                self.contents[journal, file_id] = b""
            case WriteBatch(_, file_id, offset, content):
                assert (journal, file_id) == newest
                assert newest not in self.finished
                assert offset == len(self.contents[newest])
                self.contents[newest] += b"".join(content)
            case CutFile(_, file_id, length):
                assert (journal, file_id) == newest
                assert length == len(self.contents[newest]) + MARKER_BYTES
                self.finished.add(newest)
            case ReplaceFile(_, file_id, content):
                assert (journal, file_id) in self.finished
                data = b"".join(content)
                assert data.endswith(EOF_MARKER)
                self.contents[journal, file_id] = data.removesuffix(EOF_MARKER)
            case RemoveFiles(_, file_ids):
                assert list(file_ids) == sorted(file_ids)
                for file_id in file_ids:
                    assert (journal, file_id) in self.finished
                    del self.contents[journal, file_id]

    def join(self, root: Path, first_files: dict[Journal, int]) -> None:
        """Become what a comparison with a master makes of it, which has not begun its epoch: all its former files."""
        found = {key: data for key, data in logical(root).items() if key[1] < first_files[key[0]]}
        for key, data in found.items():
            own = self.contents.get(key, b"")
            assert own.startswith(data) or data.startswith(own), f"{key}: two contents for one place"
        self.contents, self.finished = found, set(found)


class ReplicatedStores:
    """A master's stores. The test confirms.

    Attributes:
        shipped: the operations with their sequences.
        synced: the sequence that the own disk has.
        copy: has all that was confirmed.
        asked: how many callbacks were asked for.
        told: how many of them ran.
        lies: those that ran while the copy lacked what they confirm.
    """

    def __init__(
        self,
        root: Path,
        first_files: dict[Journal, int] | None = None,
        *,
        ahead: int = 1000,
        settings: JournalSettings = SETTINGS,
        copy: CopiedFiles | None = None,
        identity: BrokerIdentity | None = None,
    ) -> None:
        self.root = root
        self.first_files = first_files or {Journal.MESSAGES: 1, Journal.SCHEDULER: 1}
        self.loop = HandTurnedLoop()
        self.failures: list[Exception] = []
        self.shipped: list[tuple[int, Operation]] = []
        self.synced = 0
        self.file_reports: list[dict[Journal, int]] = []
        self.copy = CopiedFiles() if copy is None else copy
        self.applied = 0
        self.asked = self.told = 0
        self.lies: list[object] = []
        self.reserved = {journal: number + ahead for journal, number in self.first_files.items()}
        self.sequencer = Sequencer(
            self.first_files,
            self.reserved,
            on_synced=self._on_synced,
            on_file=lambda: self.file_reports.append(dict(self.sequencer.files())),
        )
        directories = journals(root)
        parts: dict[str, Any] = {
            "settings": settings,
            "runtime": runtime(self.loop.call_soon, on_failure=self.failures.append, clock=lambda: 0),
        }
        self.messages = JournalStore(
            directories[Journal.MESSAGES],
            replica=self.sequencer.journal(Journal.MESSAGES),
            identity=identity,
            **parts,
        )
        self.jobs = JournalJobStore(
            directories[Journal.SCHEDULER], replica=self.sequencer.journal(Journal.SCHEDULER), **parts
        )
        self.recovery = self.messages.recover()
        self.found_jobs = list(self.jobs.recover())

    def begin(self) -> int:
        """Begin the epoch, as the loop does it when both journals are open."""
        self.copy.join(self.root, self.first_files)
        self._is_live = False
        floor = self.sequencer.begin(self._ship)
        self._is_live = True
        return floor

    def _ship(self, sequence: int, operation: Operation) -> None:
        assert sequence == len(self.shipped) + 1
        if self._is_live and isinstance(operation, WriteBatch):
            assert not self._is_written(operation), "a batch is shipped before it is written"
        self.shipped.append((sequence, operation))

    def _is_written(self, batch: WriteBatch) -> bool:
        path = journals(self.root)[batch.journal] / data_file_name(batch.file_id)
        header = bytes(batch.content[0])
        if not path.exists():
            return False
        with path.open("rb") as file:
            return os.pread(file.fileno(), len(header), batch.offset) == header

    def _on_synced(self, sequence: int) -> None:
        assert sequence > self.synced
        self.synced = sequence

    def confirm(self, sequence: int | None = None) -> None:
        """Confirm up to a sequence; by default all that is synced."""
        sequence = self.synced if sequence is None else sequence
        for _, operation in self.shipped[self.applied : sequence]:
            self.copy.apply(operation)
        self.applied = max(self.applied, sequence)
        self.sequencer.confirm(sequence)

    def tell(self, store: JournalStore | JournalJobStore, journal: Journal) -> None:
        """Count a callback for what was appended so far; when it runs, the copy must have it."""
        writer = store._writer
        place, end = (journal, writer.file_id), writer.end

        def told() -> None:  # an exception would be logged by the writer, and the test would pass
            if place not in self.copy.finished and len(self.copy.contents.get(place, b"")) < end:
                self.lies.append((place, end))
            self.told += 1

        self.asked += 1
        store.when_durable(told)

    def send(self, number: int, size: int = 10) -> None:
        self.messages.add(message(number, size))
        self.tell(self.messages, Journal.MESSAGES)

    def consume(self, number: int) -> None:
        self.messages.remove(QUEUE, message(number).message_id)
        self.tell(self.messages, Journal.MESSAGES)

    def schedule(self, number: int, size: int = 10) -> Job:
        job = Job(job_id=f"job-{number}", start_time=1, next_time=1000, data=b"x" * size)
        self.jobs.add(job)
        self.tell(self.jobs, Journal.SCHEDULER)
        return job

    def settle(self) -> None:
        """Confirm everything, until nothing is left to be done."""

        def is_quiet() -> bool:
            self.confirm()
            return (
                self.messages.unwritten_bytes == 0
                and self.jobs.unwritten_bytes == 0
                and not self.messages.is_cleaning
                and not self.jobs.is_cleaning
            )

        self.loop.run_until(is_quiet)
        while self.loop.ready:
            self.loop.turn()
        self.confirm()
        assert (self.told, self.lies, self.failures) == (self.asked, [], [])

    def close(self) -> None:
        """Stop in order: everything is written, and confirmed later."""
        self.jobs.close()
        self.messages.close()
        while self.loop.ready:
            self.loop.turn()
        self.confirm()
        assert (self.told, self.lies, self.failures) == (self.asked, [], [])

    def kill(self) -> None:
        """Stop as if killed: nothing happens any more."""
        self.sequencer.abandon()
        self.messages.abandon()
        self.jobs.abandon()
        before = self.told, len(self.shipped), self.synced
        while self.loop.ready:
            self.loop.turn()
        self.sequencer.confirm(self.synced)
        assert (self.told, len(self.shipped), self.synced) == before
        assert (self.lies, self.failures) == ([], [])

    def assert_copied(self) -> None:
        """Check that the copy has the logical contents, and that finished files end behind them."""
        assert self.copy.contents == logical(self.root)
        for journal, directory in journals(self.root).items():
            for file_id in sorted(data_files(directory))[:-1]:
                size = (directory / data_file_name(file_id)).stat().st_size
                assert size == len(self.copy.contents[journal, file_id]) + MARKER_BYTES

    def next_first_files(self, gap: int = 1) -> dict[Journal, int]:
        """Return numbers behind all that this master may have used."""
        return {journal: max(data_files(directory)) + gap for journal, directory in journals(self.root).items()}
