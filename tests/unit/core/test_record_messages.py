"""The messages of records: of a key that comes again, they are made from the bytes of its first one."""

from dataclasses import fields

import pytest

from pybroker.broker.core.record_messages import HEADS_MAX, RecordMessages
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import decode, view
from pybroker.broker.domain.reserved_queues import BRIDGED_RECORDS, RETAINED_RECORDS, SESSION_RECORDS, ReservedQueue

NOW = 1_700_000_000_000


def values(message: Message) -> dict[str, object]:
    return {each.name: getattr(message, each.name) for each in fields(Message) if each.name != "decoded"}


@pytest.mark.parametrize("reserved", [BRIDGED_RECORDS, RETAINED_RECORDS, SESSION_RECORDS], ids=lambda each: each.prefix)
@pytest.mark.parametrize("key", ["k", "1 queue://Ä.€ ID:host-1:1:1:1", "\U0001f600" * 200])
@pytest.mark.parametrize("body", [b"", b"x", bytes(70_000)], ids=len)
def test_repeated_record_is_as_the_first_one(reserved: ReservedQueue, key: str, body: bytes) -> None:
    messages = RecordMessages(reserved)
    first = messages.message(key, NOW * 1000, NOW, body, is_repeated=False)
    for _ in range(2):
        again = messages.message(key, NOW * 1000, NOW, body, is_repeated=True)
        assert values(again) == values(first)
        assert decode(again.data) == view(first)


def test_repeated_record_has_its_own_number_time_and_body() -> None:
    messages = RecordMessages(BRIDGED_RECORDS)
    messages.message("k", 1, NOW, b"first", is_repeated=True)
    made = messages.message("k", 2, NOW + 1, b"second", is_repeated=True)
    found = decode(made.data)
    assert found.message_id is not None
    assert (found.message_id.producer_sequence_id, found.timestamp, found.content) == (2, NOW + 1, b"second")
    assert made.message_id == "bridged:k:1:1:2"


def test_kept_heads_are_bounded() -> None:
    messages = RecordMessages(BRIDGED_RECORDS)
    for number in range(HEADS_MAX + 2):
        messages.message(str(number), 1, NOW, b"", is_repeated=True)
    assert len(messages._heads) == 2
