"""A master's data files, as followers that catch up receive them: the files are the buffer, nothing else grows.

Used by several threads at a time. Blocks.
"""

import os
import threading
from collections.abc import Mapping
from pathlib import Path

from pybroker import regular
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.replica.frames import PIECE_BYTES
from pybroker.broker.domain.replica.operations import Journal
from pybroker.broker.domain.replica.store_ports import CatchUpPart, MasterManifest
from pybroker.store.journal.files import OS, System
from pybroker.store.journal.format import BATCH_HEADER, BATCH_HEADER_BYTES, BATCH_MAGIC, data_file_name
from pybroker.store.journal.reader import DataFileWalk, data_files, has_vanished, load, unavailable
from pybroker.store.replica.manifest_files import ManifestFiles, checksum_of


class OpenedDataFile:
    """Implements `DataFileSource`."""

    def __init__(self, path: Path) -> None:
        """Open it.

        Raises:
            OSError: it cannot be opened.
        """
        self._path = path
        self._descriptor = regular.descriptor(path)
        status = os.fstat(self._descriptor)
        self.inode, self.size = status.st_ino, status.st_size

    def read(self, offset: int, end: int, left: int) -> CatchUpPart:
        """Return whole batches, or a piece of one that is too long for a frame.

        Where no batch begins, bytes of a damaged file, they are returned as they are.
        """
        data = self.piece(offset, min(end, offset + left) if left else end)
        if left:
            return CatchUpPart(data, left - len(data))
        position = 0
        while position < len(data):
            if len(data) - position < BATCH_HEADER_BYTES and position and offset + len(data) < end:
                return CatchUpPart(data[:position], 0)
            length = _batch_bytes(data, position)
            if not length:
                break
            if position + length > len(data):
                if position:
                    return CatchUpPart(data[:position], 0)
                is_there = offset + length <= end
                return CatchUpPart(data, length - len(data) if is_there else 0)
            position += length
        return CatchUpPart(data, 0)

    def piece(self, offset: int, end: int) -> bytes:
        """Return the next bytes, at most those of one frame."""
        wanted = min(PIECE_BYTES, end - offset)
        try:
            data = os.pread(self._descriptor, wanted, offset)
        except OSError as error:
            raise unavailable(self._path, error) from error
        if len(data) < wanted:
            raise self._too_short(offset + wanted)
        return data

    def checksum(self, length: int) -> int:
        """Return the CRC-32 of the beginning."""
        try:
            found = checksum_of(self._descriptor, length)
        except OSError as error:
            raise unavailable(self._path, error) from error
        if found is None:
            raise self._too_short(length)
        return found

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)

    def _too_short(self, length: int) -> StoreUnavailable:
        return StoreUnavailable(f"{self._path} has less than {length} bytes, which were there", path=str(self._path))


class MasterFiles:
    """Implements `MasterStore`.

    Args:
        root: the store's directory.
        journals: the directories of its journals.
        system: the operating system's files.
    """

    def __init__(self, root: Path, journals: Mapping[Journal, Path], system: System = OS) -> None:
        self._journals = journals
        self._manifest_files = ManifestFiles(root, journals, system)
        self._lock = threading.Lock()

    def manifest(self) -> MasterManifest:
        """Return the manifest of what is there now."""
        with self._lock:
            facts = self._manifest_files.read(sync=False)
        return MasterManifest([each.entry for each in facts], [each.inode for each in facts])

    def checksum(self, journal: Journal, file_id: int, length: int) -> int | None:
        """Return the CRC-32 of the beginning of a file; None if it is gone, or shorter."""
        try:
            return self._manifest_files.checksum(journal, file_id, length)
        except OSError as error:
            raise unavailable(self._journals[journal] / data_file_name(file_id), error) from error

    def part_checksum(self, journal: Journal, file_id: int, offset: int, length: int) -> int | None:
        """Return the CRC-32 of a part of a file, read from the disk; None if it is gone, or shorter."""
        try:
            return self._manifest_files.part_checksum(journal, file_id, offset, length)
        except OSError as error:
            raise unavailable(self._journals[journal] / data_file_name(file_id), error) from error

    def is_sound(self, journal: Journal, file_id: int, length: int) -> bool:
        """Return True if a file is there, and its records have the checksums that are in them.

        Of the journal's last file only those up to a length count: behind them a batch may be half written. The others
        count as a whole, for the length may be that of a file whose last batch is damaged.
        """
        path = self._journals[journal] / data_file_name(file_id)
        if not path.exists():
            return False
        is_last = file_id == max(data_files(path.parent), default=0)
        walk = DataFileWalk(load(path), file_id)
        for _, end in walk.batches():
            if is_last and end >= length:
                break
        return not any(damage.offset < length or not is_last for damage in walk.damages)

    def open(self, journal: Journal, file_id: int) -> OpenedDataFile | None:
        """Open a file; None if it is gone."""
        path = self._journals[journal] / data_file_name(file_id)
        try:
            return OpenedDataFile(path)
        except OSError as error:
            if has_vanished(error):
                return None
            raise unavailable(path, error) from error


def _batch_bytes(data: bytes, position: int) -> int:
    """Return the length of the batch that begins at a position; 0 if none does, or its control record is cut off."""
    if len(data) - position < BATCH_HEADER_BYTES:
        return 0
    magic, length, _ = BATCH_HEADER.unpack_from(data, position)
    return BATCH_HEADER_BYTES + length if magic == BATCH_MAGIC and length > 0 else 0
