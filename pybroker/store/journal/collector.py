"""Garbage collection: removes, archives and compacts data files, as `cleanup` decides, in the writer's thread.

```text
loop     decide on the state ----.                                  .---> record removals
thread                           `-> … batches … -> sync -> fence -> file after file -'
```

What clients send meanwhile is written between two files: their receipts wait for one file at most.

The decision is made on everything that was appended, so files may be changed only after all of that is on disk: after a
power failure that loses an ack, the ack's message must still exist. The writer runs a job after everything that was
appended before it, which is sufficient. Records appended later change nothing: a dead message stays dead.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.journal.cleanup import TRACE_ENTRIES_MAX, SubscriptionFiles, compactable, removable, sequence_traces
from pybroker.store.journal.commands import Command
from pybroker.store.journal.compaction import compacted, encode_data_file
from pybroker.store.journal.declared_queues import encode_declared
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.malformed import MalformedRecord
from pybroker.store.journal.reader import DataFileWalk, load
from pybroker.store.journal.relocation import RecordFiles, relocatable
from pybroker.store.journal.state import StoreState
from pybroker.store.journal.writer import JournalWriter
from pybroker.store.producers import NOT_JOURNALLED
from pybroker.store.runtime import Later, Schedule

COMPACTIONS_MAX = 2
"""Data files that one collection rewrites: each delays the writer's batches by some 50 ms."""

VISIT_SECONDS = 0.01
"""The time between two pieces of the visit of all subscriptions."""

DAMAGED_DIRECTORY = "damaged"
"""Below the journal's."""

logger = logging.getLogger(__name__)


class GarbageCollector:
    """Collects the data files of one store. Used on the event loop; only its jobs run in the writer's thread.

    Args:
        state: the store's.
        writer: runs the jobs, and knows which file is being written.
        files: the journal's directory.
        file_ids: the existing data files. The writer adds later ones without gaps.
        settings: where files go, and when to compact.
        check: the lock's fence, called before each file.
        post: runs a callback on the loop.
        on_failure: called with an error of a collection that the loop began later.
        call_later: runs a callback on the loop after some seconds; None: nothing is done in pieces.
        append: journals a command and applies it.
        flush: journals the messages that wait to be written: a durable subscription may be about to get one.
        sizes: returns the bytes of each data file; None: no records are written again for their files' size.
        damaged: data files that the recovery could only use in part. They are never deleted but moved to
            `DAMAGED_DIRECTORY`, which no recovery reads, so that an operator can still salvage them.
    """

    def __init__(
        self,
        state: StoreState,
        writer: JournalWriter,
        files: JournalFiles,
        *,
        file_ids: Iterable[int],
        settings: JournalSettings,
        check: Callable[[], None],
        post: Schedule,
        on_failure: Callable[[Exception], object],
        call_later: Later | None = None,
        append: Callable[[Command], None],
        flush: Callable[[], None],
        sizes: Callable[[], Mapping[int, int]] | None = None,
        damaged: Collection[int] = (),
    ) -> None:
        self._state = state
        self._writer = writer
        self._files = files
        self._settings = settings
        self._check = check
        self._post = post
        self._on_failure = on_failure
        self._call_later = call_later
        self._append = append
        self._flush = flush
        self._sizes = sizes
        self._damaged = frozenset(damaged)
        self._file_ids = set(file_ids)
        self._newest_id = writer.file_id
        self._compacted: set[int] = set()
        self._survived: dict[int, int] = {}
        """By file that only its acknowledgements keep, the number of collections in a row that found it so."""
        self._visit: tuple[SubscriptionFiles, RecordFiles, Iterator[None]] | None = None
        """The visit of all subscriptions and records under way."""
        self._to_move: dict[Destination, deque[str]] = {}
        """By reserved queue, the records to be written again."""
        self._job_count = 0
        self.change_count = 0
        """How often data files were removed or compacted."""

    @property
    def is_busy(self) -> bool:
        """True from the beginning of a collection until its jobs are done."""
        return self._job_count > 0 or self._visit is not None

    def collect(self) -> None:
        """Remove the files that are not needed, and compact those that could not be removed for long enough.

        Counted by file: in a busy journal each collection removes some file, while others stay forever.
        """
        if not self.is_busy:
            found = SubscriptionFiles(self._state, self._writer.file_id)
            records = RecordFiles(self._state, self._writer.file_id)
            self._visit = found, records, chain(found.visit(), records.visit())
            self._visit_next()

    def cancel(self) -> None:
        """End a collection that has decided nothing yet."""
        self._visit = None

    def _visit_next(self) -> None:
        """Visit some of the subscriptions and records and schedule the rest, or decide."""
        if self._visit is None:
            return
        found, records, steps = self._visit
        for _ in steps:
            if self._call_later is not None:
                self._call_later(VISIT_SECONDS, self._go_on)
                return
        self._visit = None
        self._remove_unneeded(found)
        self._relocate(found, records)
        self._compact_unremovable(found)

    def _go_on(self) -> None:
        try:
            self._visit_next()
        except StoreUnavailable:
            self._visit = None  # the writer has stopped, and has reported why
        except Exception as error:
            self._visit = None
            self._on_failure(error)

    def take_records_to_move(self, queue: Destination, count_max: int) -> list[str]:
        """Return ids of some records on a reserved queue that the last collection wants written again."""
        waiting = self._to_move.get(queue, deque())
        return [waiting.popleft() for _ in range(min(count_max, len(waiting)))]

    def _relocate(self, subscriptions: SubscriptionFiles, records: RecordFiles) -> None:
        """Write subscriptions again, and select records for that, which alone keep files of garbage."""
        self._to_move = {}
        if self._sizes is None or self._writer.is_full:
            return
        existing, sizes = self._existing(), self._sizes()
        known = {file_id: sizes[file_id] for file_id in existing if file_id in sizes}
        for file_id in relocatable(self._state, known, subscriptions, records):
            moved = subscriptions.take_moved(file_id)
            if moved is None:
                continue  # the file stays: a message came for one of them, or they are too many for this time
            for renewal in moved:
                self._append(renewal)
            for queue, message_ids in records.of(file_id).items():
                self._to_move.setdefault(queue, deque()).extend(message_ids)

    def _compact_unremovable(self, subscriptions: SubscriptionFiles) -> None:
        """Compact files that could not be removed for long enough."""
        found = compactable(self._state, self._existing(), subscriptions.keep_from, subscriptions)
        self._survived = {file_id: self._survived.get(file_id, 0) + 1 for file_id in found}
        if self._settings.compact_after_cleanups > 0:
            self._compact_some()

    def remove(self) -> bool:
        """Remove the files that are not needed; return True if there are any. No effect while a job is running."""
        self.cancel()
        return not self.is_busy and self._remove_unneeded(SubscriptionFiles.of(self._state, self._writer.file_id))

    def _remove_unneeded(self, subscriptions: SubscriptionFiles) -> bool:
        self._flush()  # a replay would not give a subscription the messages that are in front of its latest record
        for renewal in subscriptions.take_renewals(self._existing()):
            self._append(renewal)
        self.rewrite_metadata()
        doomed = removable(self._state, self._existing(), subscriptions.keep_from, subscriptions)
        if doomed:
            self.rewrite_metadata(doomed)
            self._submit(partial(self._remove, doomed))
        return bool(doomed)

    def rewrite_metadata(self, file_ids: Sequence[int] = ()) -> None:
        """Write again the metadata that only these files have, or that no file has yet."""
        for trace in sequence_traces(self._state, (*file_ids, NOT_JOURNALLED)):
            self._append(trace)
        kept = self._state.declared.last_recorded_in(file_ids)
        for start in range(0, len(kept), TRACE_ENTRIES_MAX):
            self._append(encode_declared(kept[start : start + TRACE_ENTRIES_MAX]))

    def _compact_some(self) -> None:
        """Compact a few files that this run has not compacted yet."""
        due = [file_id for file_id, count in self._survived.items() if count >= self._settings.compact_after_cleanups]
        chosen = [file_id for file_id in due if file_id not in self._compacted | self._damaged][:COMPACTIONS_MAX]
        if chosen:
            self.rewrite_metadata(chosen)
            self._compacted.update(chosen)
            self._submit(partial(self._compact, chosen))

    def _submit(self, job: Callable[[], None]) -> None:
        """Run a job in the writer's thread; the job posts its completion."""
        self._job_count += 1
        self._writer.submit(job)

    def _existing(self) -> set[int]:
        self._file_ids.update(range(self._newest_id + 1, self._writer.file_id + 1))
        self._newest_id = self._writer.file_id
        return self._file_ids

    def _removed(self, file_ids: Sequence[int]) -> None:
        self._job_count -= 1
        self.change_count += 1
        self._writer.tell_removed(file_ids)
        self._file_ids.difference_update(file_ids)
        self._compacted.difference_update(file_ids)
        self._state.forget_files(file_ids)
        logger.info("%s: %d data files were no longer needed", self._files.directory, len(file_ids))

    def _were_compacted(self, closed: Sequence[int]) -> None:
        self._job_count -= 1
        self.change_count += 1
        # A removed queue's declaration still needs the record of the removal.
        needless = set(closed) - self._state.declared.files
        for answered in self._state.usage.references.values():
            answered.difference_update(needless)

    # ------------------------------------------------------------ in the writer's thread

    def _remove(self, file_ids: Sequence[int]) -> None:
        """Remove files. A failure ends this collection but does not stop the broker."""
        removed: list[int] = []
        for file_id in file_ids:
            try:
                self._check()
                self._remove_one(file_id)
            except OSError as error:
                directory = self._files.directory
                logger.warning("%s: this cleanup ends early, the next one tries again: %s", directory, error)
                break
            removed.append(file_id)
            self._writer.write_waiting()  # a file takes some 10 ms, and a hundred of them a second
        self._post(partial(self._removed, removed))

    def _remove_one(self, file_id: int) -> None:
        path = self._files.path(file_id)
        if file_id in self._damaged:
            target = self._files.directory / DAMAGED_DIRECTORY
            self._files.archive(path, target)
            logger.warning("%s is no longer needed; because it is damaged it was moved to %s", path, target)
        elif self._settings.archive_directory is None:
            self._files.remove(path)
        else:
            self._files.archive(path, self._settings.archive_directory)

    def _compact(self, file_ids: Sequence[int]) -> None:
        """Rewrite files without their dead messages."""
        closed: list[int] = []
        for file_id in file_ids:
            try:
                if self._compact_one(file_id):
                    closed.append(file_id)
            except (OSError, StoreUnavailable, MalformedRecord) as error:
                logger.warning("%s: db-%d.log is not compacted: %s", self._files.directory, file_id, error)
            self._writer.write_waiting()
        self._post(partial(self._were_compacted, closed))

    def _compact_one(self, file_id: int) -> bool:
        """Rewrite a file if that makes it smaller; return True if no other file has to void its records any more."""
        walk = DataFileWalk(load(self._files.path(file_id)), file_id)
        small = compacted(payload for _, payload in walk)
        if walk.damages:
            return False  # An operator may still want to examine it.
        if small.dropped_count:
            content = encode_data_file(small.records, checksum=self._settings.checksum)
            self._files.replace(file_id, content, self._check)
            if self._writer.is_replicated:
                self._post(partial(self._writer.tell_replaced, file_id, content))
            logger.info("%s: db-%d.log: %d dead messages dropped", self._files.directory, file_id, small.dropped_count)
        return small.is_closed
