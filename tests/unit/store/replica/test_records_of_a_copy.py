"""One record of a copy, for a master whose own disk does not give it back: whole, from a sound batch, or nothing."""

from pathlib import Path

import pytest

from pybroker.store.journal.format import EOF_MARKER, encode_batch, encode_record
from pybroker.store.replica.records import sound_record

RECORDS = [[encode_record(b"%d-%d" % (batch, number) * 30) for number in range(4)] for batch in range(3)]
CONTENT = b"".join(encode_batch(records) for records in RECORDS)
OFFSETS = [(CONTENT.index(record), record) for records in RECORDS for record in records]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "db-1.log"
    path.write_bytes(CONTENT + EOF_MARKER)
    return path


def test_each_record_is_found(path: Path) -> None:
    assert [sound_record(path, offset) for offset, _ in OFFSETS] == [record for _, record in OFFSETS]


def test_nothing_is_found_where_no_record_begins(path: Path) -> None:
    places = {offset for offset, _ in OFFSETS}
    assert not any(sound_record(path, offset) for offset in range(len(CONTENT) + 20) if offset not in places)


@pytest.mark.parametrize("part", range(3))
def test_records_of_a_damaged_batch_are_not_given(path: Path, part: int) -> None:
    offset, record = OFFSETS[4 * part + 1]
    content = bytearray(CONTENT)
    content[offset + len(record) - 1] ^= 1
    path.write_bytes(content)
    found = [bool(sound_record(path, each)) for each, _ in OFFSETS]
    assert found == [index // 4 != part for index in range(len(OFFSETS))]


def test_nothing_is_found_behind_a_damaged_length(path: Path) -> None:
    content = bytearray(CONTENT)
    content[0] ^= 1
    path.write_bytes(content)
    assert not any(sound_record(path, offset) for offset, _ in OFFSETS)
