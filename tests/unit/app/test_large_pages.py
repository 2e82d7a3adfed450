"""Memory in large pages: which blocks are worth moving, when they are moved, and that the kernel does it."""

import ctypes
import mmap
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.broker.app import large_pages
from pybroker.broker.app.large_pages import LargePages, full_blocks, is_nearly_full, private_areas, supported_bytes

MIB = 1 << 20
BLOCK = 2 * MIB
PAGE = os.sysconf("SC_PAGE_SIZE")
SECONDS = 60.0

MAPS = """\
55d0c0000000-55d0c0001000 r--p 00000000 fe:00 26933 /usr/bin/python3.11
55d0c1000000-55d0c1900000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000400000 rw-p 00000000 00:00 0
7f0000400000-7f0000500000 r-xp 00000000 00:00 0
7f0000600000-7f0000700000 rw-s 00000000 00:00 0
7f0000800000-7f0000900000 rw-p 00443000 fe:00 26933 /usr/lib/libpython 3.11.so
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]
"""


@pytest.fixture
def memory() -> Iterator[tuple[mmap.mmap, int]]:
    """Map four blocks, none of whose pages is there yet; yield them with the address of the first aligned one."""
    with mmap.mmap(-1, 5 * BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as area:
        view = (ctypes.c_char * len(area)).from_buffer(area)
        begin = ctypes.addressof(view)
        del view
        yield area, begin


def touch(area: mmap.mmap, begin: int, address: int, count: int) -> None:
    """Have the first pages of a block in memory."""
    for offset in range(address - begin, address - begin + count * PAGE, PAGE):
        area[offset] = 1


def aligned(begin: int) -> int:
    return -(-begin // BLOCK) * BLOCK


def test_only_the_allocators_areas_are_looked_at() -> None:
    assert list(private_areas(MAPS.splitlines())) == [
        (0x55D0C1000000, 0x55D0C1900000),
        (0x7F0000000000, 0x7F0000400000),
    ]


@pytest.mark.parametrize(("present", "expected"), [(512, True), (448, True), (447, False), (1, False), (0, False)])
def test_a_block_is_worth_it_when_hardly_a_page_is_missing(present: int, expected: bool) -> None:
    there, missing = (1 << 63 | 1 << 55).to_bytes(8, sys.byteorder), (1 << 62).to_bytes(8, sys.byteorder)
    assert is_nearly_full(missing * (512 - present) + there * present) is expected


def test_unknown_kernel_figures_do_not_count_as_full() -> None:
    assert not is_nearly_full(b"")


def test_full_blocks_are_found_in_real_memory(memory: tuple[mmap.mmap, int]) -> None:
    area, begin = memory
    first = aligned(begin)
    pages = BLOCK // PAGE
    touch(area, begin, first, pages)
    touch(area, begin, first + BLOCK, pages // 2)
    touch(area, begin, first + 2 * BLOCK, pages)
    found = list(full_blocks([(begin, begin + len(area))], BLOCK))
    assert found == [first, first + 2 * BLOCK]
    assert list(full_blocks([(first + PAGE, first + BLOCK)], BLOCK)) == [], "no whole block"


@pytest.mark.skipif(
    not supported_bytes(), reason="this kernel makes no large pages on request, or is configured not to"
)
def test_the_kernel_moves_a_block_and_nothing_else_changes(memory: tuple[mmap.mmap, int]) -> None:
    area, begin = memory
    if supported_bytes() != BLOCK:
        pytest.skip("this machine's large pages are larger")
    first = aligned(begin)
    touch(area, begin, first, BLOCK // PAGE)
    before = area[:]
    for _ in range(100):
        large_pages._collapse(first, BLOCK)
        assert area[:] == before
        if huge_bytes(first):
            assert huge_bytes(first) == BLOCK
            return
    pytest.skip("this machine's memory has no 2 MB in one piece")


def huge_bytes(address: int) -> int:
    """Return how much of the area at an address is in large pages."""
    is_wanted = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            begin, _, end = words[0].partition("-")
            is_wanted = int(begin, 16) <= address < int(end, 16)
        elif is_wanted and words[0] == "AnonHugePages:":
            return int(words[1]) * 1024
    return 0


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_pages, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(large_pages, "REST_SECONDS", 0.0)


@pytest.mark.usefixtures("hurried")
def test_blocks_are_moved_after_growth_only(monkeypatch: pytest.MonkeyPatch) -> None:
    resident, looked, moved = [100 * MIB], threading.Semaphore(0), threading.Semaphore(0)
    addresses: list[int] = []

    def resident_bytes() -> int:
        looked.release()
        return resident[0]

    def collapse(address: int, length: int) -> None:
        assert length == BLOCK
        addresses.append(address)
        moved.release()

    def see(count: int) -> None:
        while looked.acquire(blocking=False):
            pass  # looks of before, which may be many on a loaded machine
        for _ in range(count):
            assert looked.acquire(timeout=SECONDS)

    monkeypatch.setattr(large_pages, "resident_bytes", resident_bytes)
    monkeypatch.setattr(large_pages, "full_blocks", lambda areas, block: iter([7 * block] if list(areas) else []))
    pages = LargePages(BLOCK, collapse)
    try:
        see(5)
        resident[0] += large_pages.GROWN_BYTES - 1
        see(5)
        assert not addresses, "not enough"
        resident[0] = 50 * MIB
        see(5)
        resident[0] += large_pages.GROWN_BYTES
        assert moved.acquire(timeout=SECONDS), "what it had shrunk to is what counts"
        see(5)
        assert addresses == [7 * BLOCK], "once"
    finally:
        pages.close()
    pages.close()
    assert not any(thread.name == "large-pages" for thread in threading.enumerate())


@pytest.mark.usefixtures("hurried")
def test_moving_memory_ends_within_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    sizes = iter([0, 10 * large_pages.GROWN_BYTES])
    addresses: list[int] = []

    def collapse(address: int, length: int) -> None:
        addresses.append(address)
        begun.set()
        assert go_on.wait(SECONDS)

    monkeypatch.setattr(large_pages, "resident_bytes", lambda: next(sizes))
    monkeypatch.setattr(large_pages, "full_blocks", lambda areas, block: iter(range(0, 100 * block, block)))
    pages = LargePages(BLOCK, collapse)
    assert begun.wait(SECONDS)
    pages._ending.set()
    go_on.set()
    pages.close()
    assert addresses == [0]


@pytest.mark.usefixtures("hurried")
def test_unreadable_page_map_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> Iterator[int]:
        raise PermissionError(13, "Permission denied", "/proc/self/pagemap")

    caplog.set_level("INFO")
    sizes = iter([0, 10 * large_pages.GROWN_BYTES])
    monkeypatch.setattr(large_pages, "resident_bytes", lambda: next(sizes))
    monkeypatch.setattr(large_pages, "full_blocks", fail)
    pages = LargePages(BLOCK)
    pages._thread.join(SECONDS)
    pages.close()
    assert caplog.messages == ["memory stays in small pages: [Errno 13] Permission denied: '/proc/self/pagemap'"]


@pytest.mark.parametrize(
    ("enabled", "size", "is_used"),
    [("always [madvise] never", "2097152", True), ("always madvise [never]", "2097152", False), (None, None, False)],
)
def test_an_administrators_no_counts(tmp_path: Path, enabled: str | None, size: str | None, is_used: bool) -> None:
    if is_used and not supported_bytes():
        pytest.skip("this kernel makes no large pages when asked")
    for name, text in (("enabled", enabled), ("hpage_pmd_size", size)):
        if text is not None:
            (tmp_path / name).write_text(f"{text}\n")
    assert bool(supported_bytes(tmp_path)) is is_used


def test_where_there_are_none_nothing_runs() -> None:
    pages = LargePages(0)
    assert not pages._thread.is_alive()
    pages.close()
