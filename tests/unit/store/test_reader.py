"""Walks through data files: the records, the damage, and the end of the walk."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.store.journal.format import (
    BATCH_HEADER_BYTES,
    EOF_MARKER,
    RECORD_HEADER_BYTES,
    Location,
    encode_batch,
    encode_record,
)
from pybroker.store.journal.reader import Damage, DataFileWalk, data_files, load


def batch(*payloads: bytes, checksum: bool = True) -> bytes:
    return encode_batch([encode_record(payload) for payload in payloads], checksum=checksum)


def walked(data: bytes, start: int = 0) -> tuple[list[bytes], list[Damage], int]:
    walk = DataFileWalk(data, 1, start=start)
    payloads = [payload for _, payload in walk]
    return payloads, walk.damages, walk.end


ONE, TWO, THREE = batch(b"one"), batch(b"two", b"zwei"), batch(b"three")


def test_records_come_in_order_with_their_locations() -> None:
    walk = DataFileWalk(ONE + TWO + EOF_MARKER, 7)

    assert list(walk) == [
        (Location(7, 28), b"one"),
        (Location(7, 64), b"two"),
        (Location(7, 72), b"zwei"),
    ]
    assert (walk.damages, walk.end) == ([], len(ONE + TWO))


def test_nothing_is_read_behind_an_eof_marker() -> None:
    assert walked(ONE + EOF_MARKER + TWO) == ([b"one"], [], len(ONE))
    assert walked(EOF_MARKER + ONE) == ([], [], 0)


@pytest.mark.parametrize("rest", [b"", b"\0", b"\0" * 5, b"\0" * 100_000, EOF_MARKER[:3], b"\0" * 4096 + EOF_MARKER])
def test_a_file_may_end_without_marker_or_in_preallocated_space(rest: bytes) -> None:
    assert walked(ONE + rest) == ([b"one"], [], len(ONE))


def test_chunks_of_preallocated_zeros_may_begin_with_a_marker() -> None:
    assert walked(ONE + (b"\0" * 1000 + EOF_MARKER) * 3 + b"\0" * 1000) == ([b"one"], [], len(ONE))


def test_a_batch_without_checksum_is_taken_on_its_sizes() -> None:
    unchecked = bytearray(batch(b"payload", checksum=False))
    unchecked[-1] ^= 1

    assert walked(bytes(unchecked)) == ([b"payloae"], [], len(unchecked))


@pytest.mark.parametrize("length", ["00000000", "ffffffff"])
def test_a_batch_without_records_is_never_written_on_purpose(length: str) -> None:
    empty = ONE[:16] + bytes.fromhex(length) + bytes(8)

    payloads, damages, _ = walked(empty + THREE)

    assert payloads == [b"three"]
    assert [(each.length, each.reason) for each in damages] == [(len(empty), "a batch without records")]


def test_a_flipped_payload_costs_its_batch_and_no_other() -> None:
    damaged = bytearray(ONE + TWO + THREE + EOF_MARKER)
    damaged[len(ONE) + BATCH_HEADER_BYTES + 6] ^= 0x40

    payloads, damages, end = walked(bytes(damaged))

    assert payloads == [b"one", b"three"]
    assert damages == [Damage(1, len(ONE), len(TWO), "a batch's checksum does not fit its bytes")]
    assert end == len(ONE + TWO + THREE)


@pytest.mark.parametrize("offset", range(16))
def test_an_overwritten_control_record_loses_only_its_batch(offset: int) -> None:
    damaged = bytearray(ONE + TWO + THREE + EOF_MARKER)
    damaged[len(ONE) + offset] ^= 0xFF

    payloads, damages, _ = walked(bytes(damaged))

    assert payloads == [b"one", b"three"]
    assert [(each.offset, each.length, each.at_end) for each in damages] == [(len(ONE), len(TWO), False)]


def test_a_zeroed_batch_costs_itself_and_no_other() -> None:
    payloads, damages, _ = walked(ONE + bytes(len(TWO)) + THREE + EOF_MARKER)

    assert payloads == [b"one", b"three"]
    assert [(each.offset, each.length, each.at_end) for each in damages] == [(len(ONE), len(TWO), False)]


@pytest.mark.parametrize("length", range(1, len(TWO)))
def test_a_torn_batch_is_dropped_whole_and_overwritten_next(length: int) -> None:
    """The file may end there, or zeros may follow, as in a preallocated one."""
    for rest in (b"", bytes(100), bytes(100) + EOF_MARKER):
        payloads, damages, end = walked(ONE + TWO[:length] + rest)

        assert payloads == [b"one"]
        assert end == len(ONE)
        assert all(each.at_end and each.offset == len(ONE) for each in damages)
        assert len(damages) == (TWO[:length].strip(b"\0") != b"")


def test_a_damaged_last_batch_before_a_marker_is_at_the_end() -> None:
    damaged = bytearray(ONE + TWO + EOF_MARKER + THREE)
    damaged[len(ONE + TWO) - 1] ^= 1

    payloads, damages, end = walked(bytes(damaged))

    assert (payloads, end) == ([b"one"], len(ONE))
    assert [(each.length, each.at_end) for each in damages] == [(len(TWO), True)]


def test_a_batch_inside_a_message_is_not_mistaken_for_one() -> None:
    """Someone may send a copy of a journal; damage around it must not let it in."""
    carrier = bytearray(batch(b"x" + batch(b"forged")))
    carrier[BATCH_HEADER_BYTES + 5] ^= 1

    assert walked(bytes(carrier) + THREE)[0] == [b"three"]
    assert walked(bytes(carrier) + EOF_MARKER)[0] == []


def test_a_length_that_the_checksum_contradicts_is_not_believed() -> None:
    same_size = [batch(name) for name in (b"one", b"two", b"six")]
    damaged = bytearray(b"".join(same_size) + EOF_MARKER)
    damaged[19] = len(same_size[0]) - BATCH_HEADER_BYTES + len(same_size[1])  # to where the third begins

    payloads, damages, _ = walked(bytes(damaged))

    assert payloads == [b"two", b"six"]
    assert [(each.offset, each.length) for each in damages] == [(0, len(same_size[0]))]


@pytest.mark.parametrize(
    "body",
    [
        bytes.fromhex("00000004 01") + b"abc",  # smaller than a header
        bytes.fromhex("00000009 01") + b"abc",  # beyond the batch
        bytes.fromhex("00000007 01") + b"abc",  # one byte left over
        bytes.fromhex("00000008 02") + b"abc",  # not a user record
        bytes.fromhex("80000008 01") + b"abc",  # negative
    ],
)
def test_records_must_fill_their_batch_without_checksum_too(body: bytes) -> None:
    payloads, damages, _ = walked(encode_batch([body], checksum=False) + THREE)

    assert payloads == [b"three"]
    assert [each.reason for each in damages] == ["the sizes or types of a batch's records do not fit"]


def test_a_walk_can_go_on_where_an_earlier_one_ended() -> None:
    _, _, end = walked(ONE + EOF_MARKER)

    assert walked(ONE + TWO + EOF_MARKER, start=end) == ([b"two", b"zwei"], [], len(ONE + TWO))


def test_damage_reads_as_a_line_for_the_log() -> None:
    assert str(Damage(3, 40, 9, "torn")) == "db-3.log: offset 40: torn; 9 bytes skipped"


def test_the_captured_torn_tail_ends_where_its_last_batch_began(sample: Callable[[str], Any]) -> None:
    path = sample("08-torn-tail").kahadb / "db-3.log"
    walk = DataFileWalk(load(path), 3)

    location, payload = list(walk)[-1]

    assert walk.damages[0].at_end
    assert walk.end == walk.damages[0].offset == location.offset + RECORD_HEADER_BYTES + len(payload)
    assert walk.end < path.stat().st_size


def test_data_files_are_sorted_by_number(tmp_path: Path) -> None:
    for name in ("db-10.log", "db-9.log", "db.data", "lock", "db-2.log.bak"):
        (tmp_path / name).touch()

    assert list(data_files(tmp_path).items()) == [(9, tmp_path / "db-9.log"), (10, tmp_path / "db-10.log")]


def test_a_directory_or_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="absent cannot be read: No such file"):
        data_files(tmp_path / "absent")
    (tmp_path / "db-1.log").mkdir()
    with pytest.raises(StoreUnavailable, match=r"db-1\.log cannot be read: Is a directory"):
        load(tmp_path / "db-1.log")


def test_a_read_error_in_a_large_file_reports_its_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mapped, such a file would kill the process at the bytes that the disk cannot read."""
    path = tmp_path / "db-1.log"
    path.write_bytes(ONE)
    os.truncate(path, 128 << 20)
    with path.open("r+b") as file:
        file.seek(100 << 20)
        file.write(b"x")
    reads = os.preadv

    def fail_there(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        if offset >= 100 << 20:
            raise OSError(errno.EIO, "Input/output error")
        return reads(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", fail_there)
    with pytest.raises(StoreUnavailable, match=rf"db-1\.log cannot be read: Input/output error at offset {100 << 20}"):
        load(path)


def test_large_file_is_not_mapped(tmp_path: Path) -> None:
    path = tmp_path / "db-1.log"
    path.write_bytes(ONE)
    os.truncate(path, 128 << 20)
    data = load(path)
    os.truncate(path, 0)  # of a mapping the next access would be a SIGBUS
    assert data[: len(ONE)] == ONE
