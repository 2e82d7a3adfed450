"""The selectors of one connection are limited together."""

import pytest

from pybroker.broker.core.selector.quota import CHARACTERS_MAX
from pybroker.broker.core.selector.selector import TEXT_MAX
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.errors import InvalidSelector, ResourceLimit
from pybroker.broker.domain.subscription import ConsumerRequest


def request(selector: str) -> ConsumerRequest:
    return ConsumerRequest(destination=queue("Q"), selector=selector)


def test_a_closed_consumer_makes_space_for_another_selector(world):
    connection = world.client().connection
    consumers = [
        connection.subscribe(request(f"a = {number}".ljust(TEXT_MAX)), print)
        for number in range(CHARACTERS_MAX // TEXT_MAX)
    ]
    with pytest.raises(ResourceLimit):
        connection.subscribe(request("b = 1"), print)
    world.client().connection.subscribe(request("b = 1"), print)  # another connection has its own
    consumers[0].close()
    connection.subscribe(request("b = 1"), print)


def test_a_refused_consumer_is_not_counted(world):
    connection = world.client().connection
    for number in range(2 * CHARACTERS_MAX // TEXT_MAX):
        with pytest.raises(InvalidSelector):
            connection.subscribe(request(f"a = = {number}".ljust(TEXT_MAX)), print)
    connection.subscribe(request("b = 1"), print)
