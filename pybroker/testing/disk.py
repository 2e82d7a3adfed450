"""Simulates a full disk for one broker process: writes that need space fail with ENOSPC while a marker file exists.

A full file system would need a mount, and so privileges that few test machines give. Instead the broker's calls of
`os.pwrite`, `os.pwritev` and `os.posix_fallocate` are intercepted, which write everything durable. Free space is
counted as by the file system: the blocks that the store's files have freed since the disk was filled; overwriting needs
none. Unlike on a real disk, a write that does not fit is not done in part, and other processes are not affected.

RLIMIT_FSIZE does not fit: it fails with EFBIG, limits each file instead of all, and does not count freed space.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

Buffer = bytes | bytearray | memoryview

_BLOCK_BYTES = 512
"""The unit of `st_blocks`, independent of the file system's blocks."""


def used_bytes(directory: Path) -> int:
    """Return the bytes that the files below a directory occupy, without holes."""
    return sum(_taken(Path(parent, name)) for parent, _, names in os.walk(directory) for name in names)


class FullDisk:
    """The disk of one store, which is full while the file `mark` exists and holds the number of its bytes."""

    def __init__(self, store: Path, mark: Path) -> None:
        self._store = store
        self._mark = mark

    def install(self) -> None:
        """Intercept this process' writes to the store, from now to its end."""
        pwrite, pwritev, posix_fallocate = os.pwrite, os.pwritev, os.posix_fallocate

        def checked_pwrite(descriptor: int, data: Buffer, offset: int, /) -> int:
            self.check(descriptor, offset, _length(data))
            return pwrite(descriptor, data, offset)

        def checked_pwritev(descriptor: int, buffers: Sequence[Buffer], offset: int, flags: int = 0, /) -> int:
            self.check(descriptor, offset, sum(map(_length, buffers)))
            return pwritev(descriptor, buffers, offset, flags)

        def checked_posix_fallocate(descriptor: int, offset: int, length: int, /) -> None:
            self.check(descriptor, offset, length)
            posix_fallocate(descriptor, offset, length)

        for function in (checked_pwrite, checked_pwritev, checked_posix_fallocate):
            setattr(os, function.__name__.removeprefix("checked_"), function)

    def check(self, descriptor: int, offset: int, byte_count: int) -> None:
        """Raise `OSError` (ENOSPC) if there is no space for a write."""
        try:
            capacity = int(self._mark.read_bytes())
        except FileNotFoundError:
            return
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if not path.is_relative_to(self._store) or _is_overwriting(descriptor, offset, byte_count):
            return
        if used_bytes(self._store) + byte_count > capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def _length(data: Buffer) -> int:
    return memoryview(data).nbytes


def _taken(path: Path) -> int:
    try:
        return path.lstat().st_blocks * _BLOCK_BYTES
    except FileNotFoundError:  # removed since it was listed
        return 0


def _is_overwriting(descriptor: int, offset: int, byte_count: int) -> bool:
    """Return True if a region is inside the file and has no holes."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_HOLE) >= offset + byte_count
    except OSError as error:
        if error.errno == errno.ENXIO:  # behind the end
            return False
        raise
