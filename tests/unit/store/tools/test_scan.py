"""Scanning a data file: records in sound batches, and those that can still be had from damaged ones."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.store.journal.commands import Trace, encode
from pybroker.store.journal.format import BATCH_HEADER_BYTES, BATCH_MAGIC, EOF_MARKER, encode_batch, encode_record
from pybroker.store.journal.tools.scan import Gap, Record, RecordIntegrity, Scan
from tests.unit.store.tools.journals import add, batch


def scanned(data: bytes) -> tuple[list[Record], list[Gap]]:
    items = list(Scan(data, 7))
    return [each for each in items if isinstance(each, Record)], [each for each in items if isinstance(each, Gap)]


BEFORE, AFTER = batch(add(1)), batch(add(9))
MIDDLE = batch(add(2), add(3), add(4))
FILE = BEFORE + MIDDLE + AFTER + EOF_MARKER
RECORDS = [encode(add(number)) for number in (2, 3, 4)]
START = len(BEFORE)
FIRST = START + BATCH_HEADER_BYTES
SECOND = FIRST + len(encode_record(RECORDS[0]))


def changed(data: bytes, offset: int, *values: int) -> bytes:
    return data[:offset] + bytes(values) + data[offset + len(values) :]


def inner_id(data: bytes, record: int) -> int:
    """Return the position of a message's own id: behind the record's id and the producer's id."""
    first = data.index(b"ID:test", record)
    return data.index(b"ID:test", data.index(b"ID:test", first + 1) + 1)


def test_sound_batches_give_their_records_and_no_gap() -> None:
    scan = Scan(FILE, 7)
    items = list(scan)
    assert [each.payload for each in items if isinstance(each, Record)] == [
        encode(add(number)) for number in (1, 2, 3, 4, 9)
    ]
    assert {each.integrity for each in items if isinstance(each, Record)} == {RecordIntegrity.SOUND}
    assert (scan.batch_count, scan.unchecked_count, scan.end) == (3, 0, len(FILE) - len(EOF_MARKER))


@pytest.mark.parametrize(
    ("offset", "values"),
    [(START, (1,)), (START + 4, (9,)), (START + 7, (0,)), (START + 16, (0, 0, 0, 1)), (START + 16, (127,))],
    ids=["size", "type", "magic", "length too short", "length too long"],
)
def test_the_checksum_proves_records_of_a_damaged_header(offset: int, values: tuple[int, ...]) -> None:
    records, (gap,) = scanned(changed(FILE, offset, *values))

    rescued = [record for record in records if record.integrity is not RecordIntegrity.SOUND]
    assert [record.payload for record in rescued] == RECORDS
    assert {record.integrity for record in rescued} == {RecordIntegrity.PROVEN}
    assert (gap.damage.offset, gap.lost_bytes, gap.is_torn) == (START, 0, False)
    assert [record.payload for record in records] == [encode(add(number)) for number in (1, 2, 3, 4, 9)]


def test_with_a_damaged_checksum_nothing_is_proven() -> None:
    records, _ = scanned(changed(FILE, START + 27, FILE[START + 27] ^ 1))
    assert [record.integrity for record in records] == [
        RecordIntegrity.SOUND,
        RecordIntegrity.UNPROVEN,
        RecordIntegrity.UNPROVEN,
        RecordIntegrity.UNPROVEN,
        RecordIntegrity.SOUND,
    ]


def test_a_record_whose_parts_disagree_is_left_out() -> None:
    records, (gap,) = scanned(changed(FILE, inner_id(FILE, SECOND) + 3, 0x58))
    assert [record.payload for record in records if record.integrity is RecordIntegrity.UNPROVEN] == [
        RECORDS[0],
        RECORDS[2],
    ]
    assert gap.lost_bytes == len(encode_record(RECORDS[1]))


@pytest.mark.parametrize("offset", [SECOND, SECOND + 3, SECOND + 4], ids=["size", "size's end", "type"])
def test_behind_a_damaged_record_header_the_next_record_is_found(offset: int) -> None:
    records, (gap,) = scanned(changed(FILE, offset, FILE[offset] ^ 0x41))
    found = [record.payload for record in records if record.integrity is RecordIntegrity.UNPROVEN]
    assert found == [RECORDS[0], RECORDS[2]]
    assert gap.lost_bytes == len(encode_record(RECORDS[1]))


def test_zeros_leave_what_is_around_them() -> None:
    zeroed = changed(FILE, START, *bytes(SECOND - START))
    records, (gap,) = scanned(zeroed)
    assert [record.payload for record in records][1:3] == RECORDS[1:]
    assert not gap.beginning.strip(b"\0")


def test_a_record_inside_a_damaged_message_is_ignored() -> None:
    inside = encode_record(encode(Trace("planted")))
    data = BEFORE + batch(add(2, body=b"x" * 40 + inside), add(3)) + EOF_MARKER
    assert inside in data
    records, _ = scanned(changed(data, inner_id(data, len(BEFORE)) + 3, 0x58))
    assert [record.payload for record in records] == [encode(add(1)), encode(add(3))]


# ---------------------------------------------------------------- torn or changed


@pytest.mark.parametrize("length", [5, 20, 40, 300])
def test_a_last_batch_cut_short_is_torn_and_gives_nothing(length: int) -> None:
    records, (gap,) = scanned(FILE[: START + length])
    assert gap.is_torn
    assert [record.payload for record in records] == [encode(add(1))]


def test_a_last_batch_with_a_hole_is_torn() -> None:
    data = bytearray(BEFORE + batch(add(2, text="x" * 3000)) + EOF_MARKER)
    hole = -(-(START + 600) // 512) * 512
    data[hole : hole + 512] = bytes(512)
    _, (gap,) = scanned(bytes(data))
    assert gap.is_torn


def test_a_last_batch_that_is_all_there_was_changed() -> None:
    last = len(FILE) - len(EOF_MARKER) - len(AFTER)
    for offset in range(last, len(FILE) - len(EOF_MARKER)):
        if offset >= last + 20 and offset < last + BATCH_HEADER_BYTES:
            continue  # a change in the checksum may switch it off
        records, gaps = scanned(changed(FILE, offset, FILE[offset] ^ 0x55))
        assert [gap.is_torn for gap in gaps] == [False], offset
        assert [record.payload for record in records[:4]] == [encode(add(number)) for number in (1, 2, 3, 4)]


def test_zeros_at_a_records_end_belong_to_the_record() -> None:
    """Used bytes are what is not zero; but an add ends with one."""
    data = changed(BEFORE + AFTER, START + 7, 0) + EOF_MARKER + bytes(4096) + EOF_MARKER
    records, (gap,) = scanned(data)
    assert [record.payload for record in records] == [encode(add(1)), encode(add(9))]
    assert not gap.is_torn


def test_a_negative_checksum_is_reported() -> None:
    data = (
        BEFORE + BATCH_MAGIC + struct.pack(">iq", len(encode_record(b"\0\0")), -1) + encode_record(b"\0\0") + EOF_MARKER
    )
    scan = Scan(data, 7)
    assert len(list(scan)) == 2
    assert scan.odd_checksums == [START]


def test_batches_without_checksum_are_counted() -> None:
    scan = Scan(BEFORE + batch(add(5), checksum=False) + EOF_MARKER, 7)
    assert len(list(scan)) == 2
    assert (scan.batch_count, scan.unchecked_count) == (2, 1)


# ---------------------------------------------------------------- anything


def test_one_changed_byte_never_costs_a_record_without_a_word() -> None:
    """Whatever byte it is: each record is there as it was, or a gap covers it; and what is proven is true."""
    originals = {record.location: record.payload for record in scanned(FILE)[0]}
    dice = random.Random(4)
    for offset in range(len(FILE) - len(EOF_MARKER)):
        records, gaps = scanned(changed(FILE, offset, FILE[offset] ^ dice.randint(1, 255)))
        found = {record.location: record for record in records}
        for location, payload in originals.items():
            record = found.get(location)
            covered = any(gap.damage.offset <= location.offset < gap.damage.offset + gap.damage.length for gap in gaps)
            assert covered or (record is not None and record.payload == payload), offset
        for record in records:
            if record.integrity is not RecordIntegrity.UNPROVEN and START + 20 <= offset < FIRST:
                continue  # a changed checksum may be zero
            if record.integrity is not RecordIntegrity.UNPROVEN:
                assert originals.get(record.location) == record.payload, offset


@given(st.binary(max_size=600))
def test_noise_is_scanned_to_an_end(noise: bytes) -> None:
    for data in (noise, BEFORE[:24] + noise, BEFORE + noise + AFTER, BATCH_MAGIC + noise + AFTER + EOF_MARKER):
        records, gaps = scanned(data)
        assert sum(record.size for record in records) <= len(data)
        assert all(0 <= gap.lost_bytes <= gap.damage.length for gap in gaps)


@given(st.data())
def test_stretches_of_noise_in_a_batch_cost_what_they_hit(data: st.DataObject) -> None:
    start = data.draw(st.integers(START, len(FILE) - len(EOF_MARKER) - len(AFTER) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=len(FILE) - len(EOF_MARKER) - len(AFTER) - start))
    records, _ = scanned(FILE[:start] + noise + FILE[start + len(noise) :])
    payloads = [record.payload for record in records]
    assert payloads[0] == encode(add(1))
    assert payloads[-1] == encode(add(9))


def test_records_that_are_no_commands_are_given_as_they_are() -> None:
    data = encode_batch([encode_record(b"\x63\x00"), encode_record(b"")]) + EOF_MARKER
    records, gaps = scanned(data)
    assert [record.payload for record in records] == [b"\x63\x00", b""]
    assert not gaps
