"""The record of a register: its JSON, its limits, and what of other versions it keeps."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.errors import MalformedData
from pybroker.locks.election.record import (
    NUMBER_MAX,
    RECORD_BYTES_MAX,
    DurableEnd,
    ElectionRecord,
    ElectionSettings,
    MasterEntry,
    RecordedState,
)

EXAMPLE = """
{"format": 1, "cluster": "6f1c", "name": "orders",
 "epoch": 43, "state": "serving",
 "master": {"name": "a", "store": "s-91", "life": "l-7d", "replicate": "a.example:61617", "clients": ["tcp://a:61616"]},
 "insync": ["s-91", "s-c4"], "reserved": {"kahadb": 51, "scheduler": 12},
 "durable": {"kahadb": [44, 1234567], "scheduler": [9, 4321]},
 "settings": {"lease_ms": 5000, "min": 1}, "nonce": "n-1", "upgrade": 1}
"""
"""The specification's example."""

RECORD = ElectionRecord(
    cluster="6f1c",
    name="orders",
    epoch=43,
    state=RecordedState.SERVING,
    master=MasterEntry(name="a", store="s-91", run="l-7d", replicate="a.example:61617", clients=("tcp://a:61616",)),
    in_sync=frozenset({"s-91", "s-c4"}),
    reserved={"kahadb": 51, "scheduler": 12},
    durable={"kahadb": DurableEnd(44, 1234567), "scheduler": DurableEnd(9, 4321)},
    settings=ElectionSettings(lease_ms=5000, min_in_sync=1),
    nonce="n-1",
    unknown={"upgrade": 1},
)


def example(**changes: Any) -> bytes:
    """Return the example with other fields; `...` takes a field away."""
    found = json.loads(EXAMPLE) | changes
    return json.dumps({name: value for name, value in found.items() if value is not ...}).encode()


def test_example_of_the_specification_is_read() -> None:
    assert ElectionRecord.decode(EXAMPLE.encode()) == RECORD


def test_example_of_the_specification_is_written() -> None:
    assert json.loads(RECORD.encode()) == json.loads(EXAMPLE)


def test_unknown_fields_are_kept_at_every_level() -> None:
    found = json.loads(EXAMPLE)
    for level in (found, found["master"], found["settings"]):
        level["later"] = {"deep": [None, 1.5, "é"]}
    found["reserved"]["third"] = 7
    found["durable"]["third"] = [7, 8]
    record = ElectionRecord.decode(json.dumps(found).encode())
    changed = replace(record, epoch=44, master=replace(record.master, run="next"))
    again = json.loads(changed.encode())
    found["epoch"], found["master"]["life"] = 44, "next"
    assert again == found


def test_successor_is_written_where_there_is_one() -> None:
    assert b'"for"' not in RECORD.encode()
    released = replace(RECORD, state=RecordedState.RELEASED, successor="s-c4")
    assert json.loads(released.encode())["for"] == "s-c4"
    assert ElectionRecord.decode(released.encode()) == released


WRONG: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"{",
    "no UTF-8": b'{"format": "\xff"}',
    "no object": b"[1]",
    "null": b"null",
    "nested too deeply": b"[" * RECORD_BYTES_MAX,
    "objects nested too deeply": b'{"a":' * (RECORD_BYTES_MAX // 5),
    "integer of thousands of digits": b'{"format":' + b"9" * 4080 + b"}",
    "not a number": b'{"format": NaN}',
    "infinite": b'{"format": -Infinity}',
    "too long": b'{"x": "' + b"x" * RECORD_BYTES_MAX + b'"}',
    "no format": example(format=...),
    "later format": example(format=2),
    "format as a text": example(format="1"),
    "format as a truth": example(format=True),
    "no epoch": example(epoch=...),
    "epoch below 0": example(epoch=-1),
    "epoch too great": example(epoch=NUMBER_MAX + 1),
    "epoch with a fraction": example(epoch=1.5),
    "epoch null": example(epoch=None),
    "unknown state": example(state="sleeping"),
    "state as a number": example(state=1),
    "no master": example(master=...),
    "master as a text": example(master="a"),
    "master without store": example(master={"name": "a", "life": "l"}),
    "master without run": example(master={"name": "a", "store": "s"}),
    "clients as a text": example(master={"name": "a", "store": "s", "life": "l", "clients": "tcp"}),
    "clients as numbers": example(master={"name": "a", "store": "s", "life": "l", "clients": [1]}),
    "insync as a text": example(insync="s-91"),
    "insync as an object": example(insync={"s-91": 1}),
    "insync of lists": example(insync=[["s-91"]]),
    "reserved as a list": example(reserved=[1]),
    "reserved below 0": example(reserved={"kahadb": -1}),
    "durable without offset": example(durable={"kahadb": [1]}),
    "durable with three numbers": example(durable={"kahadb": [1, 2, 3]}),
    "durable as a number": example(durable={"kahadb": 1}),
    "lease of nothing": example(settings={"lease_ms": 0, "min": 1}),
    "lease of days": example(settings={"lease_ms": 10**9, "min": 1}),
    "min of nothing": example(settings={"lease_ms": 5000, "min": 0}),
    "no settings": example(settings=...),
    "no nonce": example(nonce=...),
    "successor as a number": example(**{"for": 1}),
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_wrong_content_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedData, match="record"):
        ElectionRecord.decode(data)


def test_record_of_the_greatest_length_is_read_and_one_more_is_not() -> None:
    length = len(replace(RECORD, nonce="").encode())
    longest = replace(RECORD, nonce="x" * (RECORD_BYTES_MAX - length))
    assert len(longest.encode()) == RECORD_BYTES_MAX
    assert ElectionRecord.decode(longest.encode()) == longest
    with pytest.raises(MalformedData, match="longer than"):
        replace(longest, nonce=f"{longest.nonce}x").encode()


@given(st.binary(max_size=RECORD_BYTES_MAX + 10))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        record = ElectionRecord.decode(data)
    except MalformedData:
        return
    assert ElectionRecord.decode(record.encode()) == record


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(json.loads(EXAMPLE))), _JSON)
def test_any_value_of_a_field_is_read_or_refused(name: str, value: object) -> None:
    try:
        record = ElectionRecord.decode(example(**{name: value}))
    except MalformedData:
        return
    assert ElectionRecord.decode(record.encode()) == record
