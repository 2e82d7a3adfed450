"""Large pages of memory for a large backlog, so that a killed master's lock is released sooner.

The kernel closes the files of a killed process, and so releases its lock, after it has freed its memory, page by page.
A million messages take some 230 MB: nearly 60,000 pages of 4 KB, for which the standby waits 25 ms, but only a hundred
pages of 2 MB. So whenever the process has grown, a thread requests that the kernel moves small pages into large ones
(`MADV_COLLAPSE`), one block at a time and with pauses, since threads that access a block wait while it is moved.

Only blocks that are nearly full are moved, so that little more memory is used. Nothing is done if an administrator
disabled large pages (`never` in `/sys/kernel/mm/transparent_hugepage/enabled`), or the kernel is older than 6.1.

Source: madvise(2); the kernel's `admin-guide/mm/transhuge` and `admin-guide/mm/pagemap`.
"""

import ctypes
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

POLL_SECONDS: Final = 1.0
GROWN_BYTES: Final = 32 * 1024 * 1024
"""The growth after which all blocks are checked: in small pages it delays a take-over by some 3 ms."""
REST_SECONDS: Final = 0.03
"""The pause between two blocks. Moving one took 7 ms in a virtual machine, and allocations wait for it."""
MISSING_SHARE: Final = 8
"""The limit to missing pages of a block, one in so many, because a large page takes memory for all of them."""

_MADV_COLLAPSE: Final = 25
_ENTRY_BYTES: Final = 8
"""The size of an entry in `/proc/self/pagemap`, an integer whose highest bit is set if the page is in memory."""
_FLAGS_AT: Final = _ENTRY_BYTES - 1 if sys.byteorder == "little" else 0
_ABSENT: Final = bytes(range(0x80))
_SETTINGS: Final = Path("/sys/kernel/mm/transparent_hugepage")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

_log = logging.getLogger(__name__)
_libc = ctypes.CDLL(None)


class LargePages:
    """Keeps this process's memory in large pages, until it is closed."""

    def __init__(self, block_bytes: int, collapse: Callable[[int, int], None] | None = None) -> None:
        """Start the thread, if there are large pages.

        Args:
            block_bytes: the size of a large page; 0 for none.
            collapse: moves a block, given by address and length, into one page; None for the kernel's function.
        """
        self._block_bytes = block_bytes
        self._collapse = collapse or _collapse
        self._settled_bytes = resident_bytes() if block_bytes else 0  # without large pages there may be no `/proc`
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="large-pages", daemon=True)
        if block_bytes:
            self._thread.start()

    def close(self) -> None:
        """Stop the thread; waits for one block at most. Harmless when repeated."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join()

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        try:
            while not self._ending.wait(POLL_SECONDS):
                self._poll()
        except OSError as error:
            _log.info("memory stays in small pages: %s", error)

    def _poll(self) -> None:
        """Move the blocks, if the process has grown since the last time."""
        resident = resident_bytes()
        self._settled_bytes = min(self._settled_bytes, resident)
        if resident - self._settled_bytes < GROWN_BYTES:
            return
        self._settled_bytes = resident
        areas = list(private_areas(Path("/proc/self/maps").read_text(encoding="ascii").splitlines()))
        for address in full_blocks(areas, self._block_bytes):
            self._collapse(address, self._block_bytes)
            if self._ending.wait(REST_SECONDS):
                return


def supported_bytes(settings: Path = _SETTINGS) -> int:
    """Return the size of a large page; 0 if the kernel does not support them, or they are disabled."""
    try:
        if "[never]" in (settings / "enabled").read_text(encoding="ascii"):
            return 0
        block_bytes = int((settings / "hpage_pmd_size").read_text(encoding="ascii"))
    except OSError:  # no such kernel
        return 0
    # A request for no bytes fails only if the kernel does not know it.
    return block_bytes if _libc.madvise(None, ctypes.c_size_t(0), _MADV_COLLAPSE) == 0 else 0


def resident_bytes() -> int:
    """Return the resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES


def private_areas(maps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the allocators' memory, from the lines of `/proc/self/maps`."""
    for line in maps:
        addresses, permissions, _, _, inode, *name = line.split()
        if permissions == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
            begin, _, end = addresses.partition("-")
            yield int(begin, 16), int(end, 16)


def full_blocks(areas: Iterable[tuple[int, int]], block_bytes: int) -> Iterator[int]:
    """Yield the addresses of blocks with nearly all pages in memory.

    Raises:
        OSError: the page map cannot be read.
    """
    length = block_bytes // _PAGE_BYTES * _ENTRY_BYTES
    with Path("/proc/self/pagemap").open("rb", buffering=0) as page_map:
        for begin, end in areas:
            for address in range(-(-begin // block_bytes) * block_bytes, end - block_bytes + 1, block_bytes):
                page_map.seek(address // _PAGE_BYTES * _ENTRY_BYTES)
                if is_nearly_full(page_map.read(length)):
                    yield address


def is_nearly_full(entries: bytes) -> bool:
    """Return True if nearly all pages of a block are in memory, by its part of the page map."""
    flags = entries[_FLAGS_AT::_ENTRY_BYTES]
    present = len(flags.translate(None, delete=_ABSENT))
    return present * MISSING_SHARE >= len(flags) * (MISSING_SHARE - 1) > 0


def _collapse(address: int, length: int) -> None:
    """Move a block. Without a free large page it stays, until the process has grown again."""
    _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(length), _MADV_COLLAPSE)
