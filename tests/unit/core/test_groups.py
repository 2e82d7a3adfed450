"""Message groups: who owns them, and how they are remembered."""

from types import SimpleNamespace
from typing import cast

import pytest

from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.groups import NAME_REMEMBERED_MAX, MessageGroups
from pybroker.broker.domain.message import Message
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
