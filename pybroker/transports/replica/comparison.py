"""Compares a live follower's store with the master's, part by part, while both go on.

```text
master                                            follower
checksum of a part of a file (from the disk)
COMPARE ---- in the order of the operations ---->  checksum of the same part, with all operations before applied
equal?  <---- COMPARED --------------------------
```

Data files that are finished do not change, except that one is replaced or removed as a whole: an operation about a file
that is being compared ends its comparison without a result. Of a journal's last file the beginning is compared that was
there when the comparison began. A replacement is sent after the master has made it, so a difference counts only if it
is there again a second later.

Used on the event loop; files are read in a thread.

Source: specification of replication, section 9.
"""

import asyncio
import time
import zlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from pybroker.broker.domain.errors import StoreError
from pybroker.broker.domain.replica.frames import PIECE_BYTES, Compare, FrameBody, ReplacePiece
from pybroker.broker.domain.replica.manifest import ManifestFile, manifest_ends
from pybroker.broker.domain.replica.operations import (
    MARKER,
    MARKER_BYTES,
    Journal,
    Operation,
    RemoveFiles,
    ReplaceFile,
)
from pybroker.broker.domain.replica.reports import DIFFERENCES_MAX, ComparisonResult, FileDifference
from pybroker.broker.domain.replica.store_ports import DataFileSource, MasterStore
from pybroker.transports.replica.opening import open_data_file

PART_BYTES: Final = 4 << 20
"""The most bytes that a follower reads for one question. That takes some ten milliseconds, and it confirms nothing
meanwhile."""

AGAIN_SECONDS: Final = 1.0
"""The time before a part that differs is compared again."""

T = TypeVar("T")


class ComparedFollower(Protocol):
    """A follower's session, as a comparison uses it."""

    @property
    def is_live(self) -> bool:
        """True while it receives operations as they happen."""
        ...

    def send(self, body: FrameBody) -> None:
        """Send a frame that is no operation."""
        ...

    async def drain(self) -> None:
        """Wait until the connection takes more."""
        ...


class StoreComparison:
    """One comparison of a follower's store, with the repair that was requested before it.

    Args:
        store: the master's data files.
        follower: the session.
        in_thread: runs a call that blocks.
        is_slow: pause after each part for as long as it took: the stores have other work.
    """

    def __init__(
        self,
        store: MasterStore,
        follower: ComparedFollower,
        in_thread: Callable[[Callable[[], object]], Awaitable[object]],
        *,
        is_slow: bool,
    ) -> None:
        self._store = store
        self._follower = follower
        self._in_thread = in_thread
        self._is_slow = is_slow
        self._changed: set[tuple[Journal, int]] = set()
        """Files that an operation has replaced or removed meanwhile."""
        self._interrupted: set[Journal] = set()
        """Journals of which an operation has replaced a file: a follower takes one new content of each at a time."""
        self._answer: asyncio.Future[int | None] | None = None

    # ------------------------------------------------------------ the session's side

    def note(self, operation: Operation) -> None:
        """Record the files that an operation changes, before it is sent."""
        match operation:
            case ReplaceFile(journal, file_id, _):
                self._changed.add((journal, file_id))
                self._interrupted.add(journal)
            case RemoveFiles(journal, file_ids):
                self._changed.update((journal, file_id) for file_id in file_ids)
            case _:
                pass

    def answer(self, crc: int | None) -> bool:
        """Pass on the follower's checksum; return False if none is awaited."""
        if self._answer is None or self._answer.done():
            return False
        self._answer.set_result(crc)
        return True

    async def run(self, repaired: Sequence[tuple[Journal, int]] = ()) -> ComparisonResult:
        """Send some files as a whole, then compare all files, and return the result."""
        file_count = byte_count = 0
        differences: list[FileDifference] = []
        try:
            files = (await self._call(self._store.manifest)).files
            wanted = frozenset(repaired)
            await self._send_files([each for each in files if each[:2] in wanted])
            left = sum(each.length for each in files)
            last = {journal: end.file_id for journal, end in manifest_ends(files).items()}
            for each in files:
                left -= each.length
                is_equal = await self._compare(each, left)
                if not self._follower.is_live:
                    return ComparisonResult(file_count, byte_count, differences, "the follower has to catch up again")
                if is_equal is None:
                    continue
                file_count += 1
                byte_count += each.length
                if is_equal and (each.file_id == last[each.journal] or await self._has_end(each)):
                    continue
                if len(differences) < DIFFERENCES_MAX:
                    is_sound = await self._call(partial(self._store.is_sound, *each[:3]))
                    if not (is_equal and is_sound):
                        differences.append(FileDifference(each.journal, each.file_id, not is_sound))
        except StoreError as error:
            return ComparisonResult(file_count, byte_count, differences, f"the master cannot read its store: {error}")
        return ComparisonResult(file_count, byte_count, differences)

    # ------------------------------------------------------------ private

    async def _compare(self, file: ManifestFile, left: int) -> bool | None:
        """Return True if a file is the same in both stores; None if it was replaced or removed meanwhile."""
        for start in range(0, file.length, PART_BYTES):
            length = min(PART_BYTES, file.length - start)
            began = time.monotonic()
            behind = left + file.length - start - length
            is_equal = await self._compare_part(file, start, length, behind)
            if is_equal is False:
                await asyncio.sleep(AGAIN_SECONDS)
                is_equal = await self._compare_part(file, start, length, behind)
            if not is_equal:
                return is_equal
            if self._is_slow:
                await asyncio.sleep(time.monotonic() - began)
        return True

    async def _has_end(self, file: ManifestFile) -> bool:
        """Return True if the EOF marker of a finished file follows its contents, or it was replaced meanwhile.

        The contents of one whose last batch is damaged seem to end before that batch, and equal the follower's.
        """
        journal, file_id, length, _ = file
        crc = await self._call(partial(self._store.part_checksum, journal, file_id, length, MARKER_BYTES))
        return crc == zlib.crc32(MARKER) or file[:2] in self._changed

    async def _compare_part(self, file: ManifestFile, start: int, length: int, left: int) -> bool | None:
        journal, file_id = key = file[:2]
        crc = await self._call(partial(self._store.part_checksum, journal, file_id, start, length))
        if crc is None or key in self._changed or not self._follower.is_live:
            return None
        self._answer = asyncio.get_running_loop().create_future()
        self._follower.send(Compare(journal, file_id, start, length, left))
        answer = await self._answer
        return None if key in self._changed or not self._follower.is_live else answer == crc

    async def _send_files(self, files: Sequence[ManifestFile]) -> None:
        """Send files whose records are sound; a journal's last one cannot be replaced on a live connection."""
        for each in files:
            source = None
            if await self._call(partial(self._store.is_sound, *each[:3])):
                source = await open_data_file(self._store, self._in_thread, each.journal, each.file_id)
            if source is not None:
                try:
                    await self._send_file(source, each)
                finally:
                    source.close()

    async def _send_file(self, source: DataFileSource, file: ManifestFile) -> None:
        """Send a file's logical contents, and an EOF marker; as far as no operation is about the file."""
        end = file.length
        crc = zlib.crc32(MARKER, await self._call(partial(source.checksum, end)))
        at, length = 0, end + MARKER_BYTES
        self._interrupted.discard(file.journal)
        while at < length:
            content = await self._call(partial(source.piece, at, end)) if at < end else b""
            if at + len(content) == end and len(content) + MARKER_BYTES <= PIECE_BYTES:
                content += MARKER
            await self._follower.drain()
            if file[:2] in self._changed or not self._follower.is_live:
                return
            if file.journal in self._interrupted:  # the follower has given up what it had of this content
                self._interrupted.discard(file.journal)
                at = 0
                continue
            self._follower.send(ReplacePiece(file.journal, file.file_id, length, crc, at, content))
            at += len(content)

    async def _call(self, call: Callable[[], T]) -> T:
        return await self._in_thread(call)  # type: ignore[return-value]
