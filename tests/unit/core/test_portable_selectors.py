"""A durable subscription whose selector ActiveMQ refuses is a warning, once."""

import logging

import pytest

from pybroker.broker.domain.errors import InvalidSelector
from tests.unit.core.conftest import World

REFUSED = ("NOT price > 5", "NOT s IN ('a')", "größe = 1", "price > 1.5f")
ACCEPTED = ("price > 5", "NOT (price > 5)", "s NOT IN ('a')", "price IS NOT NULL", "")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


@pytest.mark.parametrize("selector", REFUSED)
def test_first_selector_that_activemq_refuses_is_logged(
    world: World, caplog: pytest.LogCaptureFixture, selector: str
) -> None:
    client = world.client("c")
    for name in ("first", "second"):
        client.subscribe("topic://T", subscription_name=name, selector=selector)
    (warning,) = warnings(caplog)
    assert warning.startswith("the durable subscription c:first has a selector that ActiveMQ refuses: ")
    assert "`pybroker handback` lists all of them" in warning


def test_what_keeps_no_activemq_from_starting_is_not_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    client = world.client("c")
    for number, selector in enumerate(ACCEPTED):
        client.subscribe("topic://T", subscription_name=f"s{number}", selector=selector or None)
    client.subscribe("queue://Q", selector=REFUSED[0])
    client.subscribe("topic://T", selector=REFUSED[0])
    with pytest.raises(InvalidSelector):
        client.subscribe("topic://T", subscription_name="invalid", selector="NOT price >")
    assert warnings(caplog) == []


def test_another_selector_of_a_subscription_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    client = world.client("c")
    inbox = client.subscribe("topic://T", subscription_name="s", selector=ACCEPTED[0])
    inbox.consumer.close()
    client.subscribe("topic://T", subscription_name="s", selector=REFUSED[0])
    assert len(warnings(caplog)) == 1
