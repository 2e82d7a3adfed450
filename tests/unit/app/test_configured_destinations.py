"""The setting `destinations`."""

from typing import Any

import pytest

from pybroker.broker.app.config import Config
from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.errors import ConfigError


def test_each_is_read_once() -> None:
    config = Config(destinations=["queue://A", "topic://A", "queue://A"])
    assert config.destinations == (queue("A"), topic("A"))
    assert Config().destinations == ()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("queue://A", "it is a list: write for example"),
        ([1], "destination 1: "),
        (["queue://A", "B"], "destination 2: 'B' has no kind: write queue://B or topic://B"),
        (["queue://"], "destination 1: "),
        (["queue://A.>"], "no wildcards"),
        (["queue://A,B"], "no comma"),
        (["temp-queue://A"], "has no kind"),
        (["topic://ActiveMQ.Advisory.Queue"], "is the broker's own"),
        (["queue://PYBROKER.Scheduled"], "is the broker's own"),
        ([f"queue://{'A' * 1025}"], "1024"),
    ],
)
def test_what_is_no_destination_is_refused(value: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        Config(destinations=value)
    assert str(refused.value).startswith("destinations: ")


def test_they_are_no_more_than_clients_may_create() -> None:
    Config(destinations=["queue://A", "queue://B"], destinations_max=2)
    with pytest.raises(ConfigError, match="destinations are more than destinations_max"):
        Config(destinations=["queue://A", "queue://B"], destinations_max=1)
