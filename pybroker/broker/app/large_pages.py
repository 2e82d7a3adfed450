"""Large pages for what a large backlog takes, so that a killed master's lock is free at once.

The lock of a killed process is free when the kernel closes its files, and that comes after giving back its memory, page
by page. What the broker knows of a million messages lies in some 230 MB: nearly 60,000 pages of 4 KB, for which the
standby waits 25 ms. Of 2 MB it is a hundred. So whenever the process has grown, a thread asks the kernel to put what
lies in small pages into large ones (`MADV_COLLAPSE`), one block at a time and with a rest behind it, since whoever
touches a block waits while it moves. Nothing else changes for the process.

Only blocks that are nearly full are moved, so that hardly more memory is taken. Where an administrator wants no large
pages (`/sys/kernel/mm/transparent_hugepage/enabled` says `never`), or the kernel is older than 6.1, all stays as it is.

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

LOOK_SECONDS: Final = 1.0
GROWN_BYTES: Final = 32 * 1024 * 1024
"""Growth that is worth a look at all blocks: in small pages it makes a take-over some three milliseconds longer."""
REST_SECONDS: Final = 0.03
"""Between two blocks. To move one took 7 ms, measured in a virtual machine; meanwhile who needs new memory waits."""
MISSING_SHARE: Final = 8
"""At most one in so many of a block's pages may be missing: the large page has memory for them all."""

_MADV_COLLAPSE: Final = 25
_ENTRY_BYTES: Final = 8
"""Of a page in `/proc/self/pagemap`: a native integer, whose highest bit says that the page is in memory."""
_FLAGS_AT: Final = _ENTRY_BYTES - 1 if sys.byteorder == "little" else 0
_ABSENT: Final = bytes(range(0x80))
_SETTINGS: Final = Path("/sys/kernel/mm/transparent_hugepage")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

_log = logging.getLogger(__name__)
_libc = ctypes.CDLL(None)


class LargePages:
    """Keeps this process's memory in large pages, until it is closed."""

    def __init__(self, block_bytes: int, collapse: Callable[[int, int], None] | None = None) -> None:
        """Begin.

        Args:
            block_bytes: how large they are; with 0 nothing is done.
            collapse: puts a block, given by address and length, into one page; None asks the kernel to.
        """
        self._block_bytes = block_bytes
        self._collapse = collapse or _collapse
        self._settled_bytes = resident_bytes() if block_bytes else 0  # without large pages there may be no `/proc`
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="large-pages", daemon=True)
        if block_bytes:
            self._thread.start()

    def close(self) -> None:
        """End; waits for one block at most. Harmless when repeated."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join()

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        try:
            while not self._ending.wait(LOOK_SECONDS):
                self._look()
        except OSError as error:
            _log.info("memory stays in small pages: %s", error)

    def _look(self) -> None:
        """Move the blocks if the process has grown since they last were."""
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
    """Return how large a large page is; 0 where the kernel makes none when asked, or is told not to."""
    try:
        if "[never]" in (settings / "enabled").read_text(encoding="ascii"):
            return 0
        block_bytes = int((settings / "hpage_pmd_size").read_text(encoding="ascii"))
    except OSError:  # no such kernel
        return 0
    # A request for nothing: whether it is known is what a kernel looks at first.
    return block_bytes if _libc.madvise(None, ctypes.c_size_t(0), _MADV_COLLAPSE) == 0 else 0


def resident_bytes() -> int:
    """Return how much of its memory this process has resident."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES


def private_areas(maps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of what memory allocators have, from the lines of `/proc/self/maps`."""
    for line in maps:
        addresses, permissions, _, _, inode, *name = line.split()
        if permissions == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
            begin, _, end = addresses.partition("-")
            yield int(begin, 16), int(end, 16)


def full_blocks(areas: Iterable[tuple[int, int]], block_bytes: int) -> Iterator[int]:
    """Yield the addresses of the blocks in some areas nearly all of whose pages are in memory when it is their turn.

    Raises:
        OSError: the kernel does not tell.
    """
    length = block_bytes // _PAGE_BYTES * _ENTRY_BYTES
    with Path("/proc/self/pagemap").open("rb", buffering=0) as page_map:
        for begin, end in areas:
            for address in range(-(-begin // block_bytes) * block_bytes, end - block_bytes + 1, block_bytes):
                page_map.seek(address // _PAGE_BYTES * _ENTRY_BYTES)
                if is_nearly_full(page_map.read(length)):
                    yield address


def is_nearly_full(entries: bytes) -> bool:
    """Tell whether hardly a page of a block is missing, from its part of the page map."""
    flags = entries[_FLAGS_AT::_ENTRY_BYTES]
    present = len(flags.translate(None, delete=_ABSENT))
    return present * MISSING_SHARE >= len(flags) * (MISSING_SHARE - 1) > 0


def _collapse(address: int, length: int) -> None:
    """Have a block moved. The kernel may have no large page left: then it stays, until the process has grown again."""
    _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(length), _MADV_COLLAPSE)
