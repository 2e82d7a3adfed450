"""The lean path of a replay comes to what decoding each record comes to."""

from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.store.journal.commands import AddMessage, Command, RemoveMessage, Trace, decode, encode
from pybroker.store.journal.format import BATCH_HEADER_BYTES, RECORD_HEADER_BYTES, Location, encode_batch, encode_record
from pybroker.store.journal.malformed import MalformedRecord
from pybroker.store.journal.replay import Replay
from pybroker.store.journal.state import StoreState
from tests.unit.store.states import described

DESTINATIONS = st.sampled_from([queue("A"), queue("A"), queue("B"), topic("A"), queue("x" * 200)])
IDS = st.integers(0, 30).map(lambda number: f"ID:host-1:1:1:1:{number}") | st.sampled_from(["", "ÄÖ:7", "y" * 200])
ADDS = st.builds(
    AddMessage,
    DESTINATIONS,
    IDS,
    st.sampled_from([b"", b"x" * 90, b"x" * 150, b"x" * 20_000]),
    st.sampled_from([4, 4, 4, 0, 9]),
    st.booleans(),
    st.sampled_from([None, None, None, LocalTransactionId("ID:c:1", 1)]),
)
COMMANDS = st.lists(
    ADDS
    | ADDS
    | st.builds(RemoveMessage, DESTINATIONS, IDS, st.none(), st.none(), st.none())
    | st.just(Trace("remark")),
    max_size=30,
)
CHANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=2)
"""Bytes of a record's beginning to change, so that it does not make sense any more, or another one."""


def changed(payload: bytes, changes: list[tuple[int, int]]) -> bytes:
    """Return a payload with some bytes changed."""
    content = bytearray(payload)
    for offset, value in changes:
        if 0 < offset < len(content):  # the type stays one that is known
            content[offset] = value
    return bytes(content)


@given(COMMANDS, CHANGES, st.integers(0, 29), st.integers(0, 10_000))
@example([AddMessage(queue("A"), "ID:1:1", b"x" * 150), AddMessage(queue("A"), "ID:1:1", b"")], [], 0, 0)
def test_both_readings_agree(commands: list[Command], changes: list[tuple[int, int]], which: int, base: int) -> None:
    payloads = [encode(each) for each in commands]
    if which < len(payloads):
        payloads[which] = changed(payloads[which], changes)
    plain, damages = StoreState(), 0
    offset = base + BATCH_HEADER_BYTES
    for payload in payloads:
        try:
            plain.apply(decode(payload), Location(7, offset))
        except MalformedRecord:
            damages += 1
        offset += RECORD_HEADER_BYTES + len(payload)

    replay = Replay(Path(), StoreState())
    data = encode_batch([encode_record(payload) for payload in payloads], checksum=False)
    replay.apply(data, BATCH_HEADER_BYTES, len(data), 7, base)

    assert described(replay.state) == described(plain)
    assert list(replay.state.destinations) == list(plain.destinations)
    assert list(replay.state.sequences.items()) == list(plain.sequences.items())
    assert (replay.record_count, len(replay.damages)) == (len(payloads) - damages, damages)
