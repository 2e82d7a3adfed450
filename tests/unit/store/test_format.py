"""The layout of batches and records, against bytes written out by hand."""

import zlib

import pytest

from pybroker.store.journal.format import (
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    EOF_MARKER,
    OFFSET_MAX,
    RECORD_HEADER_BYTES,
    Location,
    batch_header,
    data_file_id,
    data_file_name,
    encode_batch,
    encode_record,
)


def test_a_record_counts_its_own_header() -> None:
    assert encode_record(b"abc") == bytes.fromhex("00000008 01") + b"abc"
    assert len(encode_record(b"")) == RECORD_HEADER_BYTES


def test_a_control_record_has_28_bytes() -> None:
    header = batch_header(0x01020304, 0x05060708)

    assert header == bytes.fromhex("0000001c 02") + b"WRITE BATCH" + bytes.fromhex("01020304 0000000005060708")
    assert len(header) == BATCH_HEADER_BYTES
    assert header.startswith(BATCH_MAGIC)


def test_a_batch_checksums_exactly_its_records() -> None:
    records = [encode_record(b"one"), encode_record(b"two")]

    batch = encode_batch(records)

    assert batch[BATCH_HEADER_BYTES:] == b"".join(records)
    assert batch[:BATCH_HEADER_BYTES] == batch_header(16, zlib.adler32(b"".join(records)))


def test_a_batch_without_checksum_has_zero_there() -> None:
    assert encode_batch([encode_record(b"x")], checksum=False)[20:28] == bytes(8)


def test_the_eof_marker_spells_qma4() -> None:
    assert bytes.fromhex("2d714d6134") == EOF_MARKER


def test_locations_order_as_written() -> None:
    assert Location(2, 9) < Location(2, 10) < Location(10, 0)
    assert str(Location(3, 70)) == "3:70"


@pytest.mark.parametrize("file_id", [1, 9, 10, 123456, OFFSET_MAX])
def test_a_data_files_name_gives_its_id_back(file_id: int) -> None:
    assert data_file_id(data_file_name(file_id)) == file_id


@pytest.mark.parametrize(
    "name",
    ["db.data", "db-.log", "db-x.log", "db--1.log", "db-1.log.bak", "xdb-1.log", "db-٣.log", "db-2147483648.log"],
)
def test_other_names_are_no_data_files(name: str) -> None:
    assert data_file_id(name) is None
