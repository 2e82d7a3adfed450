"""Garbage collection: removes, archives and compacts data files, as `cleanup` decides, in the writer's thread.

```text
loop     decide on the state ----.                                  .---> note what is gone
thread                           `-> … batches … -> sync -> fence -> file after file -'
```

The decision sees everything that was appended, so the files may be touched only once all of that is on disk: an ack
that a power failure takes back must find its message again. The writer runs its jobs behind what was appended before
them, and that is all it takes. Whatever is appended meanwhile changes nothing: a message that is dead stays dead.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.journal.cleanup import REMARKED_MAX, compactable, remarks, removable, renewable
from pybroker.store.journal.commands import Command
from pybroker.store.journal.compaction import compacted, encode_data_file
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.kept import encode_kept
from pybroker.store.journal.malformed import MalformedRecord
from pybroker.store.journal.reader import DataFileWalk, load
from pybroker.store.journal.state import StoreState
from pybroker.store.journal.writer import JournalWriter
from pybroker.store.producers import UNSAID
from pybroker.store.runtime import Schedule

COMPACTIONS_MAX = 2
"""Data files one collection rewrites: each keeps the writer's thread from its batches for some 50 ms."""

DAMAGED_DIRECTORY = "damaged"
"""Below the journal's."""

logger = logging.getLogger(__name__)


class GarbageCollector:
    """Collects the data files of one store. Lives on the loop; only its jobs run in the writer's thread.

    Args:
        state: the store's.
        writer: runs the jobs, and knows which file is being written.
        files: the journal's directory.
        file_ids: the data files there are. Later ones are the writer's, which leaves no gaps.
        settings: where files go, and when to compact.
        check: the lock's fence, asked before each file.
        post: runs a callback on the loop.
        append: journals a command and applies it.
        damaged: data files that the recovery could not use all of. Somebody may yet rescue what is in them, so they
            are never deleted, but moved to `DAMAGED_DIRECTORY`, where no recovery looks.
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
        append: Callable[[Command], None],
        damaged: Collection[int] = (),
    ) -> None:
        self._state = state
        self._writer = writer
        self._files = files
        self._settings = settings
        self._check = check
        self._post = post
        self._append = append
        self._damaged = frozenset(damaged)
        self._file_ids = set(file_ids)
        self._newest_id = writer.file_id
        self._compacted: set[int] = set()
        self._survived: dict[int, int] = {}
        """How many collections in a row each file has outlived that stays for its acknowledgements alone."""
        self._job_count = 0
        self.change_count = 0
        """How often data files were removed or compacted."""

    @property
    def is_busy(self) -> bool:
        """True from a decision until its jobs are done."""
        return self._job_count > 0

    def collect(self) -> None:
        """Remove what can be, and compact what could not be for long enough.

        Counted by file: in a busy journal each collection removes some file, while others stay for ever.
        """
        if self.is_busy:
            return
        self.remove()
        found = compactable(self._state, self._existing(), self._writer.file_id)
        self._survived = {file_id: self._survived.get(file_id, 0) + 1 for file_id in found}
        if self._settings.compact_after_cleanups > 0:
            self._compact_some()

    def remove(self) -> bool:
        """Have removed what can be; tell whether there is anything. Nothing happens while a job is under way."""
        if self.is_busy:
            return False
        for renewal in renewable(self._state, self._existing(), self._writer.file_id):
            self._append(renewal)
        self.keep_remarks()
        doomed = removable(self._state, self._existing(), self._writer.file_id)
        if doomed:
            self.keep_remarks(doomed)
            self._submit(partial(self._remove, doomed))
        return bool(doomed)

    def keep_remarks(self, file_ids: Sequence[int] = ()) -> None:
        """Write anew what these files are the last to say, and what no file says yet."""
        for remark in remarks(self._state, (*file_ids, UNSAID)):
            self._append(remark)
        kept = self._state.kept.last_said_by(file_ids)
        for start in range(0, len(kept), REMARKED_MAX):
            self._append(encode_kept(kept[start : start + REMARKED_MAX]))

    def _compact_some(self) -> None:
        """Have compacted a few files that were not in this life."""
        due = [file_id for file_id, count in self._survived.items() if count >= self._settings.compact_after_cleanups]
        chosen = [file_id for file_id in due if file_id not in self._compacted | self._damaged][:COMPACTIONS_MAX]
        if chosen:
            self.keep_remarks(chosen)
            self._compacted.update(chosen)
            self._submit(partial(self._compact, chosen))

    def _submit(self, job: Callable[[], None]) -> None:
        """Have the writer's thread do a job, which posts its end."""
        self._job_count += 1
        self._writer.submit(job)

    def _existing(self) -> set[int]:
        self._file_ids.update(range(self._newest_id + 1, self._writer.file_id + 1))
        self._newest_id = self._writer.file_id
        return self._file_ids

    def _removed(self, file_ids: Sequence[int]) -> None:
        self._job_count -= 1
        self.change_count += 1
        self._file_ids.difference_update(file_ids)
        self._compacted.difference_update(file_ids)
        self._state.forget_files(file_ids)
        logger.info("%s: %d data files were needed no more", self._files.directory, len(file_ids))

    def _were_compacted(self, closed: Sequence[int]) -> None:
        self._job_count -= 1
        self.change_count += 1
        # A removed queue's remark still needs the record of the removal.
        needless = set(closed) - self._state.kept.files
        for answered in self._state.usage.references.values():
            answered.difference_update(needless)

    # ------------------------------------------------------------ in the writer's thread

    def _remove(self, file_ids: Sequence[int]) -> None:
        """Remove files. One that cannot be removed ends this collection, and not the broker."""
        removed: list[int] = []
        try:
            for file_id in file_ids:
                self._check()
                self._remove_one(file_id)
                removed.append(file_id)
        except OSError as error:
            logger.warning("%s: cleanup goes no further for now: %s", self._files.directory, error)
        self._post(partial(self._removed, removed))

    def _remove_one(self, file_id: int) -> None:
        path = self._files.path(file_id)
        if file_id in self._damaged:
            target = self._files.directory / DAMAGED_DIRECTORY
            self._files.archive(path, target)
            logger.warning("%s is needed no more; as it is damaged, it was moved to %s", path, target)
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
                logger.warning("%s: db-%d.log is left as it is: %s", self._files.directory, file_id, error)
        self._post(partial(self._were_compacted, closed))

    def _compact_one(self, file_id: int) -> bool:
        """Rewrite a file if that makes it smaller; tell whether no other file has to answer its records any more."""
        walk = DataFileWalk(load(self._files.path(file_id)), file_id)
        small = compacted(payload for _, payload in walk)
        if walk.damages:
            return False  # It may yet be looked into by somebody who knows more.
        if small.dropped_count:
            self._check()
            self._files.replace(file_id, encode_data_file(small.records, checksum=self._settings.checksum))
            logger.info("%s: db-%d.log: %d dead messages dropped", self._files.directory, file_id, small.dropped_count)
        return small.is_closed
