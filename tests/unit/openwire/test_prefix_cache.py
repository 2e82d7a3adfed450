"""Messages like one before: whatever comes after whatever, the answer is that of `routing`."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, routing, to_message
from pybroker.broker.domain.openwire.prefix_cache import PrefixCache
from pybroker.broker.domain.openwire.values import encode_map
from pybroker.broker.domain.transaction import LocalTransactionId


def message(sequence: int = 1, producer: int = 1, **fields: object) -> Message:
    producer_id = ProducerId("ID:host-1-1:1", 1, producer)
    made = OpenWireMessage(
        type=MessageType.TEXT,
        message_id=OpenWireMessageId(None, producer_id, sequence),
        producer_id=producer_id,
        destination=queue("Q"),
        content=b"text",
        persistent=True,
    )
    return to_message(replace(made, **fields))  # type: ignore[arg-type]


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "producer": st.integers(1, 2),
        "destination": st.sampled_from([queue("Q"), queue("R")]),
        "transaction_id": st.just(LocalTransactionId("ID:host-1-1:1", 7)),
        "group_id": st.sampled_from(["a", "b"]),
        "group_sequence": st.integers(0, 2),
        "correlation_id": st.sampled_from(["x", "yy"]),
        "reply_to": st.just(queue("ANSWERS")),
        "jms_type": st.just("kind"),
        "priority": st.sampled_from([0, 4, 9, 100, -1]),
        "expiration": st.sampled_from([0, 1_700_000_000_000]),
        "persistent": st.booleans(),
        "content": st.sampled_from([None, b"", b"longer than before"]),
        "marshalled_properties": st.sampled_from([None, encode_map({"n": 1})]),
        "type": st.sampled_from([MessageType.BYTES, MessageType.MAP]),
        "user_id": st.just("me"),
        "redelivery_counter": st.just(3),
    },
)


def same(found: Message, expected: Message) -> bool:
    names = [name for field in fields(Message) if (name := field.name) != "decoded"]
    return all(getattr(found, name) == getattr(expected, name) for name in names)


@given(st.lists(FIELDS, max_size=12))
def test_prefix_cache_agrees_with_routing(many: list[dict[str, object]]) -> None:
    cache = PrefixCache()
    for sequence, changes in enumerate(many, 1):
        made = message(sequence, **changes)  # type: ignore[arg-type]
        expected = routing(made.data)
        assert same(cache.route(made.data, expected.message_id), expected)


@given(st.integers(0, 1 << 16), st.integers(1, 255), st.integers(0, 1 << 16))
def test_mutated_prefix_agrees_with_routing(at: int, flip: int, cut: int) -> None:
    cache = PrefixCache()
    first = message(1)
    cache.route(first.data, first.message_id)
    changed = bytearray(message(2).data)
    changed[at % len(changed)] ^= flip
    for data in (bytes(changed), bytes(changed[: cut % len(changed)])):
        try:
            expected = routing(data)
        except MalformedOpenWire:
            with pytest.raises(MalformedOpenWire):
                cache.route(data, "any")
        else:
            assert same(cache.route(data, expected.message_id), expected)


def test_a_run_of_messages_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bytes] = []
    monkeypatch.setattr(
        "pybroker.broker.domain.openwire.prefix_cache.routing", lambda data: calls.append(data) or routing(data)
    )
    cache = PrefixCache()
    for sequence in range(1, 100):
        made = message(sequence, content=b"x" * sequence)
        found = cache.route(made.data, made.message_id)
        assert (found.size, found.payload_size) == (made.size, made.payload_size)
    assert len(calls) == 1


def test_the_id_is_the_stores_own_string() -> None:
    cache = PrefixCache()
    for sequence in (1, 2):
        made = message(sequence)
        message_id = f"ID:host-1-1:1:1:1:{sequence}"
        assert cache.route(made.data, message_id).message_id is message_id
