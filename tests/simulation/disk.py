"""A disk of the simulated world: what is written is in a real directory, what would outlive a power failure beside it.

Everything that reads, reads the real directory, which is best in memory (`/dev/shm`): so no reader has to know of the
simulation. What changes it comes in through `SimSystem`, the `os` of one process. Each call takes time, before it does
anything and after, and that is where processes are frozen and killed, and where others come in between.

```text
pwritev  -> the real file, in one piece or two        -> unsynced writes of the file
fdatasync, fsync of a file                            -> the file's durable bytes
open(O_CREAT), replace, unlink, link                  -> unsynced changes of names
fsync of a directory                                  -> durable names
power failure: of a file's unsynced writes some are lost, some are torn at a sector, in any order;
               of the changes of names those behind some point are lost
```
"""

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.simulation.world import EPOCH_MS, Process, World

SECTOR_BYTES = 512


class Change(NamedTuple):
    """A write that is not synced, or with `data` None a cut."""

    offset: int
    data: bytes | None


class Content:
    """The part of a file that a power failure leaves."""

    def __init__(self) -> None:
        self.durable = bytearray()
        self.unsynced: list[Change] = []

    def make_durable(self, count: int) -> None:
        """Make the first changes durable."""
        for change in self.unsynced[:count]:
            self.apply(change)
        del self.unsynced[:count]

    def apply(self, change: Change) -> None:
        offset, data = change
        if data is None:
            if offset < len(self.durable):
                del self.durable[offset:]
            else:
                self.durable.extend(bytes(offset - len(self.durable)))
            return
        if offset > len(self.durable):
            self.durable.extend(bytes(offset - len(self.durable)))
        self.durable[offset : offset + len(data)] = data


class SimDisk:
    """A directory shared by all processes."""

    def __init__(self, world: World, root: Path) -> None:
        self.world = world
        self.root = root
        self.latency = world.random.choice((20e-6, 200e-6, 2e-3))
        """Typical seconds of a sync."""
        self.space: int | None = None
        """Bytes that can be written before the disk is full; None: any number."""
        self.contents: dict[int, Content] = {}
        """Contents by inode number."""
        self.names: dict[Path, Content] = {}
        """Durable ones."""
        self.renamed: list[tuple[Path, Path | None, Content | None]] = []
        """Changes of names that are not durable: the directory entry, where it came from, what it names now."""

    def content_of(self, inode: int) -> Content:
        if inode not in self.contents:
            self.contents[inode] = Content()
        return self.contents[inode]

    def make_names_durable(self, directory: Path | None, count: int | None = None) -> None:
        """Make changes of names in a directory durable, or (None) so many of any."""
        changes = self.renamed if count is None else self.renamed[:count]
        kept = []
        for change in changes:
            path, source, content = change
            if directory is not None and path.parent != directory:
                kept.append(change)
                continue
            if source is not None:
                self.names.pop(source, None)
            if content is None:
                self.names.pop(path, None)
            else:
                self.names[path] = content
        self.renamed = kept

    def fail_power(self) -> None:
        """Leave what is durable, and of the rest what chance leaves. All processes are dead."""
        random = self.world.random
        assert all(process.is_dead for process in self.world.processes), "a disk lost power, and a process did not"
        self.make_names_durable(None, random.randint(0, len(self.renamed)))
        for content in self.contents.values():
            for change in content.unsynced:
                fate = random.random()
                if fate < 0.4:
                    content.apply(change)
                elif fate < 0.7 and change.data is not None:
                    cut = random.choice(_borders(change.offset, len(change.data)))
                    content.apply(Change(change.offset, change.data[:cut]))
            content.unsynced.clear()
        self._restore()

    def _restore(self) -> None:
        """Make the real directory what is durable; files that no process of this world wrote stay."""
        written = {path for path in self.root.rglob("*") if path.is_file() and path.stat().st_ino in self.contents}
        for path in written:
            path.unlink()
        names, self.names, self.contents = self.names, {}, {}
        for path, content in names.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.durable)
            self.touch(path)
            self.contents[path.stat().st_ino] = content
            self.names[path] = content

    def touch(self, file: Path | int) -> None:
        """Give a file the time of this world, to the nanosecond: readers compare it."""
        now = EPOCH_MS * 1_000_000 + round(self.world.now * 1e9)
        os.utime(file, ns=(now, now))

    def take_space(self, byte_count: int) -> None:
        if self.space is not None:
            if self.space < byte_count:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.space -= byte_count


class SimSystem:
    """The operating system's files, as one process sees them (a `System`)."""

    def __init__(self, disk: SimDisk, process: Process) -> None:
        self._disk = disk
        self._process = process
        self._open: dict[int, str | Path] = {}
        self._contents: dict[int, Content] = {}
        """Contents by descriptor, of files that were written to."""
        self.failing: Callable[[str], None] = _succeed
        """Called with the name of an operation before it changes anything; what it raises fails the operation."""
        process.on_death.append(self._close_all)

    # ------------------------------------------------------------ descriptors

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        if not flags & os.O_CREAT:
            self._step(1e-6)
            return self._opened(os.open(path, flags, mode), path)
        path = Path(path)
        self._begin("create", 0.2)
        is_new = not path.exists()
        descriptor = self._opened(os.open(path, flags, mode), path)
        if is_new:
            content = self._disk.contents[os.fstat(descriptor).st_ino] = self._contents[descriptor] = Content()
            self._disk.renamed.append((path, None, content))
            self._disk.touch(path)
        elif flags & os.O_TRUNC:
            self._content(descriptor).unsynced.append(Change(0, None))
        self._end(f"create {path.name}")
        return descriptor

    def close(self, descriptor: int) -> None:
        if descriptor in self._open:  # else the process is dead, and it is closed
            del self._open[descriptor]
            self._contents.pop(descriptor, None)
            os.close(descriptor)

    def _opened(self, descriptor: int, path: str | Path) -> int:
        self._open[descriptor] = path
        return descriptor

    def _content(self, descriptor: int) -> Content:
        if (content := self._contents.get(descriptor)) is None:
            content = self._contents[descriptor] = self._disk.content_of(os.fstat(descriptor).st_ino)
        return content

    def _close_all(self) -> None:
        for descriptor in list(self._open):
            self.close(descriptor)

    # ------------------------------------------------------------ bytes

    def pwritev(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        data = b"".join(buffers)
        self._begin("write", 0.1)
        self._disk.take_space(len(data))
        random = self._disk.world.random
        cut = random.choice(_borders(offset, len(data))) if random.random() < 0.1 else 0
        if cut:
            self._put(descriptor, data[:cut], offset)
            self._step(20e-6)  # a reader may see half a write; and a kill may leave it
        self._put(descriptor, data[cut:], offset + cut)
        self._end(f"write {len(data)} bytes at {offset} of {self._name(descriptor)}")
        return len(data)

    def pwrite(self, descriptor: int, data: bytes | memoryview, offset: int) -> int:
        return self.pwritev(descriptor, (data,), offset)

    def ftruncate(self, descriptor: int, length: int) -> None:
        self._begin("truncate", 0.1)
        os.ftruncate(descriptor, length)
        self._content(descriptor).unsynced.append(Change(length, None))
        self._disk.touch(descriptor)
        self._end(f"cut {self._name(descriptor)} at {length}")

    def posix_fallocate(self, descriptor: int, offset: int, length: int) -> None:
        self._begin("allocate", 0.1)
        self._disk.take_space(length)
        os.posix_fallocate(descriptor, offset, length)
        self._end(f"allocate {length} bytes of {self._name(descriptor)}")

    def posix_fadvise(self, descriptor: int, offset: int, length: int, advice: int) -> None:
        """Make nothing durable."""

    def _put(self, descriptor: int, data: bytes, offset: int) -> None:
        os.pwrite(descriptor, data, offset)
        self._content(descriptor).unsynced.append(Change(offset, data))
        self._disk.touch(descriptor)

    def fdatasync(self, descriptor: int) -> None:
        """Make durable what was written before the call."""
        content = self._content(descriptor)
        count = len(content.unsynced)
        try:
            self._begin("sync", 1)
        except OSError:
            del content.unsynced[:count]  # the kernel drops what it could not write, and forgets that it did
            raise
        content.make_durable(min(count, len(content.unsynced)))
        self._end(f"sync {self._name(descriptor)}")

    def fsync(self, descriptor: int) -> None:
        path = Path(self._open[descriptor])
        if not path.is_dir():
            self.fdatasync(descriptor)
            return
        self._begin("sync", 1)
        self._disk.make_names_durable(path)
        self._end(f"sync {path.name}")

    # ------------------------------------------------------------ names

    def makedirs(self, name: Path, *, exist_ok: bool) -> None:
        self._step(1e-6)
        name.mkdir(parents=True, exist_ok=exist_ok)

    def replace(self, source: Path, target: Path) -> None:
        self._begin("rename", 0.1)
        content = self._disk.content_of(source.stat().st_ino)
        source.replace(target)
        self._disk.renamed.append((target, source, content))
        self._end(f"rename {source.name} to {target.name}")

    def unlink(self, path: Path) -> None:
        self._begin("remove", 0.1)
        path.unlink()
        self._disk.renamed.append((path, None, None))
        self._end(f"remove {path.name}")

    def link(self, source: Path, target: Path) -> None:
        self._begin("link", 0.1)
        content = self._disk.content_of(source.stat().st_ino)
        target.hardlink_to(source)
        self._disk.renamed.append((target, None, content))
        self._end(f"link {target.name}")

    def stat(self, path: str, *, dir_fd: int) -> os.stat_result:
        self._step(1e-6)
        return os.stat(path, dir_fd=dir_fd)

    def statvfs(self, path: Path) -> Any:
        space = self._disk.space
        return os.statvfs_result((4096, 1, 0, 0, 1 << 40 if space is None else space, 0, 0, 0, 0, 255))

    # ------------------------------------------------------------ time

    def _begin(self, operation: str, share: float) -> None:
        self._step(share * self._disk.latency)
        self.failing(operation)

    def _end(self, text: str) -> None:
        self._disk.world.record(self._process.name, text)
        self._step(5e-6)

    def _step(self, typical: float) -> None:
        self._process.wait(self._disk.world.duration(typical))

    def _name(self, descriptor: int) -> str:
        return Path(self._open[descriptor]).name


def _borders(offset: int, length: int) -> Sequence[int]:
    """Return where a write may be torn: at the borders of sectors, each of which is written whole or not."""
    return range(0, 1) if length <= (first := -offset % SECTOR_BYTES) else (0, *range(first, length, SECTOR_BYTES))


def make_root(seed: int) -> Path:
    """Return an empty directory, in memory where there is one."""
    base = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")
    root = base / f"pybroker-simulation-{os.getpid()}-{seed}"
    with suppress(FileNotFoundError):
        shutil.rmtree(root)
    root.mkdir()
    return root


def _succeed(_: str) -> None:
    """Let an operation succeed."""
