"""A full disk refuses what takes space, and nothing else; its accounts are the file system's."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.testing.disk import FullDisk, used_bytes

BLOCK = 4096


class Disk:
    """A store with one file of one block and a hole behind it, on a disk that can be filled."""

    def __init__(self, directory: Path) -> None:
        self.store = directory / "store"
        self.store.mkdir()
        self.mark = directory / "mark"
        self.full = FullDisk(self.store, self.mark)
        self.descriptor = os.open(self.store / "file", os.O_RDWR | os.O_CREAT)
        os.pwrite(self.descriptor, bytes(BLOCK), 0)
        os.fsync(self.descriptor)
        os.ftruncate(self.descriptor, 100 * BLOCK)

    def fill(self) -> None:
        self.mark.write_text(str(used_bytes(self.store)))

    def refuses(self, offset: int, byte_count: int) -> bool:
        try:
            self.full.check(self.descriptor, offset, byte_count)
        except OSError as error:
            if (error.errno, error.filename) != (errno.ENOSPC, str(self.store / "file")):
                raise
            return True
        return False


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path.resolve())
    yield disk
    os.close(disk.descriptor)


def test_a_disk_that_is_not_full_takes_everything(disk: Disk) -> None:
    assert not disk.refuses(0, 1 << 40)


def test_a_full_one_takes_what_is_overwritten(disk: Disk) -> None:
    disk.fill()
    assert not disk.refuses(0, BLOCK)
    assert not disk.refuses(BLOCK - 1, 1)


def test_a_full_one_refuses_holes_and_what_is_behind_the_end(disk: Disk) -> None:
    disk.fill()
    assert disk.refuses(0, BLOCK + 1)
    assert disk.refuses(50 * BLOCK, 1)
    assert disk.refuses(100 * BLOCK, 1)


def test_freed_space_can_be_used_again(disk: Disk) -> None:
    other = disk.store / "other"
    with other.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, 4 * BLOCK)
    disk.fill()
    assert disk.refuses(50 * BLOCK, 1)
    other.unlink()
    assert not disk.refuses(50 * BLOCK, 4 * BLOCK)
    assert disk.refuses(50 * BLOCK, 4 * BLOCK + 1)


def test_other_directories_are_not_affected(disk: Disk) -> None:
    disk.fill()
    with (disk.store.parent / "elsewhere").open("wb") as stream:
        disk.full.check(stream.fileno(), 0, 1 << 30)


def test_a_hole_uses_no_space(disk: Disk) -> None:
    assert used_bytes(disk.store) < 50 * BLOCK


def test_once_installed_the_calls_of_the_process_are_checked(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pwrite", "pwritev", "posix_fallocate"):
        monkeypatch.setattr(os, name, getattr(os, name))
    disk.full.install()
    assert os.pwrite(disk.descriptor, b"ab", 10 * BLOCK) == 2
    assert os.pwritev(disk.descriptor, [b"a", b"bc"], 20 * BLOCK) == 3
    os.posix_fallocate(disk.descriptor, 30 * BLOCK, 1)
    disk.fill()
    for call in (
        lambda: os.pwrite(disk.descriptor, b"a", 50 * BLOCK),
        lambda: os.pwritev(disk.descriptor, [b"a"], 50 * BLOCK),
        lambda: os.posix_fallocate(disk.descriptor, 50 * BLOCK, 1),
    ):
        with pytest.raises(OSError, match="No space left"):
            call()
    assert os.pwrite(disk.descriptor, b"ab", 0) == 2
