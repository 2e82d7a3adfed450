# mypy: disable-error-code="override"
"""Disks for tests: one that is small, and one whose operations fail as configured."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from pybroker.store.journal.files import JournalFiles


class SmallDisk(JournalFiles):
    """A disk with so much space, which is what all files of the directory together may have. For files without holes.

    A write that does not fit is done as far as it fits, and then fails.
    """

    def __init__(self, directory: Path, capacity: int, number: int = errno.ENOSPC) -> None:
        super().__init__(directory)
        self.capacity = capacity
        self.refusals = 0
        self._number = number

    def free(self) -> int:
        return self.capacity - sum(map(_size, self.directory.iterdir()))

    def create(self, file_id: int, preallocate_bytes: int = 0, *, is_claim: bool = False) -> int:
        if self.free() <= 0:
            self._refuse(self.path(file_id))
        return super().create(file_id, preallocate_bytes, is_claim=is_claim)

    def write(self, descriptor: int, buffers: Sequence[bytes], offset: int) -> None:
        data = b"".join(buffers)
        size, free = os.fstat(descriptor).st_size, self.free()
        if offset + len(data) - size <= free:
            super().write(descriptor, buffers, offset)
            return
        os.pwrite(descriptor, data[: max(0, size + free - offset)], offset)
        self._refuse(self.directory)

    def replace(self, file_id: int, content: Sequence[bytes | memoryview], *fence: Callable[[], None]) -> None:
        if sum(map(len, content)) > self.free():
            self._refuse(self.path(file_id))
        super().replace(file_id, content, *fence)

    def allocate(self, path: Path, byte_count: int) -> None:
        if byte_count > self.free():
            self._refuse(path)
        super().allocate(path, byte_count)

    def free_bytes(self) -> int:
        return max(0, self.free())

    def _refuse(self, path: Path) -> None:
        self.refusals += 1
        raise OSError(self._number, os.strerror(self._number), str(path))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:  # another thread has removed it since it was listed
        return 0
