"""Decides when the store snapshot is written: in a thread while the broker runs, and at a clean stop.

A new snapshot is due when the journal has grown by `GROWN_BYTES_MIN` since the last one, or when files that the last
one covers were compacted since. A failure to write it is logged, and only makes the next start slower. On a nearly full
disk none is written, so that acknowledgements still have space.

```text
loop     metadata record, copy of the state -> on disk? --.
thread                                                    `-> write, sync -> fence -> rename
```
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pybroker.broker.domain.errors import BrokerError
from pybroker.store.journal.follower import Signature
from pybroker.store.journal.format import Location, data_file_name
from pybroker.store.journal.reader import data_files
from pybroker.store.journal.store_snapshot import HasSpace, StoreSnapshot, signature, write
from pybroker.store.runtime import StoreRuntime, Worker

INTERVAL_MS = 300_000
"""Shortest time between two snapshots of a running broker. ActiveMQ writes its index every five seconds, page by page;
a snapshot is written whole, and a crash costs a quarter of a second per `GROWN_BYTES_MIN` behind it."""

GROWN_BYTES_MIN = 64 * 1024 * 1024

logger = logging.getLogger(__name__)


class SnapshotWriter:
    """Writes the snapshots of one journal. Runs on the loop; only the writing is done by a thread.

    Args:
        directory: the journal's.
        runtime: clock, threads and the lock's fence, which is checked before a snapshot replaces the former one.
        has_space: called while writing; returns True if the disk can spare so many bytes.
        is_wanted: called at a clean stop; False where a standby takes over, which does not use it and would wait.
        grown_bytes_min: growth of the journal after which another snapshot is due.
    """

    def __init__(
        self,
        directory: Path,
        *,
        runtime: StoreRuntime,
        has_space: HasSpace,
        is_wanted: Callable[[], bool],
        grown_bytes_min: int = GROWN_BYTES_MIN,
    ) -> None:
        self._directory = directory
        self._runtime = runtime
        self._has_space = has_space
        self._is_wanted = is_wanted
        self._grown_bytes_min = grown_bytes_min
        self._thread: Worker | None = None
        self._next_ms = 0
        self._covered = Location(0, 0)
        self._files: Mapping[int, Signature] = {}

    @property
    def is_busy(self) -> bool:
        """True while the thread writes a snapshot."""
        return self._thread is not None and self._thread.is_alive()

    def set_covered(self, covered: Location, files: Mapping[int, Signature]) -> None:
        """Record the data files that the existing snapshot covers."""
        self._covered, self._files = covered, files

    def is_due(self, end: Location, now_ms: int) -> bool:
        """Return True if a running broker should write a snapshot now; `end` is the journal's."""
        if self.is_busy:
            return False
        if not self._next_ms:
            self._next_ms = now_ms + INTERVAL_MS
        if now_ms < self._next_ms:
            return False
        self._next_ms = now_ms + INTERVAL_MS
        return self._is_worth(end)

    def begin(self, taken: StoreSnapshot) -> None:
        """Start writing a snapshot in a thread; all that it covers is on disk. Does nothing while one is written."""
        if self.is_busy:
            return
        self._thread = self._runtime.spawn("journal-snapshot", partial(self._write, taken))

    def end(self, end: Location, take: Callable[[], StoreSnapshot]) -> None:
        """Write a last snapshot if it is due. The journal is closed. Blocks."""
        if self._thread is not None:
            self._thread.join()
        if self._is_worth(end) and self._is_wanted():
            self._write(take())

    def _is_worth(self, end: Location) -> bool:
        try:
            return self._grown_bytes(end) >= self._grown_bytes_min or self._is_outdated()
        except (BrokerError, OSError) as error:
            self._warn(error)
            return False

    def _grown_bytes(self, end: Location) -> int:
        """Return how much a start would have to read: numbers of files are skipped at each change of the master."""
        first, offset = self._covered
        finished = [path for file_id, path in data_files(self._directory).items() if first <= file_id < end.file_id]
        return sum(known.size for known in map(signature, finished) if known) + end.offset - offset

    def _is_outdated(self) -> bool:
        """Return True if a file that the snapshot covers was changed."""
        return any(
            signature(self._directory / data_file_name(file_id)) not in (known, None)
            for file_id, known in self._files.items()
        )

    def _write(self, taken: StoreSnapshot) -> None:
        begun = self._runtime.monotonic()
        try:
            written = write(taken, self._directory, self._runtime.fence, self._has_space)
        except (BrokerError, OSError) as error:
            self._warn(error)
            return
        self.set_covered(taken.covered, written.files)
        milliseconds = (self._runtime.monotonic() - begun) * 1000
        logger.info(
            "%s: snapshot to %s, %d bytes in %.0f ms", self._directory, taken.covered, written.byte_count, milliseconds
        )

    def _warn(self, error: Exception) -> None:
        logger.warning("%s: no snapshot was written, so the next start may take longer: %s", self._directory, error)
