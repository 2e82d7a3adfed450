"""A full disk, for one broker process: writes that would take room fail with ENOSPC as long as a file says so.

A file system that is really full takes a mount, which takes a privilege that few test machines give. So the broker's
own calls are intercepted: `os.pwrite`, `os.pwritev` and `os.posix_fallocate`, through which it writes everything that
must last. The accounts are the file system's: room is what the store's files have given back, in blocks, since the
disk was filled; overwriting what a file has takes none. Unlike a real disk, a write that does not fit is not done in
part, and other processes are not affected.

RLIMIT_FSIZE would not do: it says EFBIG, limits each file instead of all, and room that is given back does not count.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

Buffer = bytes | bytearray | memoryview

_BLOCK_BYTES = 512
"""What `st_blocks` counts, whatever the file system's own blocks are."""


def used_bytes(directory: Path) -> int:
    """Return the room that the files below a directory take; a hole takes none."""
    return sum(_taken(Path(parent, name)) for parent, _, names in os.walk(directory) for name in names)


class FullDisk:
    """The disk of one store, which is full while the file `mark` is there and says how many bytes the disk has."""

    def __init__(self, store: Path, mark: Path) -> None:
        self._store = store
        self._mark = mark

    def install(self) -> None:
        """Have this process' writes into the store go through here, from now to its end."""
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
        """Raise `OSError` (ENOSPC) if there is no room to write so much there."""
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
    """Tell whether all of a region has its room already: it lies in the file, and in none of its holes."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_HOLE) >= offset + byte_count
    except OSError as error:
        if error.errno == errno.ENXIO:  # behind the end
            return False
        raise
