"""Message groups: who owns them, and how they are remembered."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.groups import NAME_REMEMBERED_MAX, MessageGroups, first_of_group, without_flag
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, decode, to_message
from tests.compiled import interpreted

pytestmark = interpreted


def message(group_id: str, group_sequence: int = 0) -> Message:
    return cast("Message", SimpleNamespace(group_id=group_id, group_sequence=group_sequence))


def consumer() -> BrokerConsumer:
    return BrokerConsumer.__new__(BrokerConsumer)


@pytest.mark.parametrize("name", ["g", "g" * NAME_REMEMBERED_MAX, "g" * (NAME_REMEMBERED_MAX + 1), "\udcff" * 30_000])
def test_a_group_has_one_owner_until_that_ends_it(name: str) -> None:
    groups = MessageGroups()
    owner = consumer()
    assert groups.owner(message(name)) is None
    assert groups.deliver(message(name), owner)
    assert groups.owner(message(name)) is owner
    assert groups.owner(message(name + "x")) is None
    assert groups.count(owner) == 1
    groups.passed_over(message(name), 7)
    assert not groups.deliver(message(name, -1), owner)
    assert groups.owner(message(name)) is None
    assert groups.reopened == 7


def test_long_names_take_no_memory() -> None:
    groups = MessageGroups()
    owner = consumer()
    for number in range(10):
        groups.deliver(message(f"{number}" * 30_000), owner)
    assert groups.count(owner) == 10
    assert all(len(each) < 200 for each in groups._owners)


def text(kind: MessageType = MessageType.TEXT, *, first: bool = False, persistent: bool = True) -> Message:
    return to_message(
        OpenWireMessage(
            type=kind,
            message_id=OpenWireMessageId(None, ProducerId("c", 1, 1), 1),
            producer_id=ProducerId("c", 1, 1),
            destination=queue("Q"),
            content=b"hello",
            persistent=persistent,
            priority=7,
            expiration=99,
            group_id="g",
            group_sequence=3,
            group_first_for_consumer=first,
        )
    )


@pytest.mark.parametrize("first", [True, False])
def test_the_flag_is_one_byte_that_comes_and_goes(first: bool) -> None:
    message = text(first=first)
    flagged = first_of_group(message)
    assert decode(flagged.data) == replace(decode(message.data), group_first_for_consumer=True)
    back = without_flag(flagged)
    assert decode(back.data) == decode(message.data)
    for name in ("message_id", "destination", "data", "persistent", "priority", "expiration", "connection_id"):
        assert getattr(back, name) == getattr(message, name)
    assert (back.group_id, back.group_sequence, back.size) == (message.group_id, message.group_sequence, message.size)
    assert without_flag(message) is message


def test_what_has_no_flag_at_its_end_stays_as_it_is() -> None:
    blob = text(MessageType.BLOB)
    assert first_of_group(blob) is blob
    broken = replace(text(), data=text().data[:-1] + b"\x07")
    assert first_of_group(broken) is broken
