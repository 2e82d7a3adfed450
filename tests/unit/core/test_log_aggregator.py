"""Lines of the log about what happens to many messages: few, and none of them lost."""

import logging

import pytest

from pybroker.broker.core import log_aggregator as module
from pybroker.broker.core.log_aggregator import LogAggregator
from tests.unit.core.conftest import World

_log = logging.getLogger(__name__)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def test_many_occurrences_are_one_line_and_a_count(log: pytest.LogCaptureFixture) -> None:
    aggregator = LogAggregator(_log)
    for number in range(744):
        aggregator.record("dead-lettered", f"ID:{number}", "from queue://A to queue://B", "why")
    assert log.messages == ["dead-lettered ID:0 from queue://A to queue://B: why"]
    aggregator.report()
    assert log.messages[1:] == ["dead-lettered 743 more from queue://A to queue://B, the last one ID:743: why"]


def test_what_goes_on_is_one_line_each_report(log: pytest.LogCaptureFixture) -> None:
    aggregator = LogAggregator(_log)
    for _ in range(3):
        for number in range(10):
            aggregator.record("dropped", f"ID:{number}", "from queue://A", "why")
        aggregator.report()
    assert [line.split(" from")[0] for line in log.messages] == [
        "dropped ID:0",
        "dropped 9 more",
        "dropped 10 more",
        "dropped 10 more",
    ]


def test_after_a_quiet_period_the_first_is_logged_at_once(log: pytest.LogCaptureFixture) -> None:
    aggregator = LogAggregator(_log)
    for _ in range(2):
        aggregator.record("dropped", "ID:1", "from queue://A", "why")
        aggregator.report()
    aggregator.report()
    assert log.messages == ["dropped ID:1 from queue://A: why"] * 2


def test_destinations_without_number_share_a_count(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_KEYS_MAX", 2)
    aggregator = LogAggregator(_log)
    for number in range(50):
        aggregator.record("dropped", "ID:1", f"from queue://{number}", "why")
    aggregator.report()
    assert log.messages[2:] == [
        "dropped ID:1 from queue://2: why",
        "dropped 47 more at other destinations, the last one ID:1: why",
    ]


def test_expired_messages_of_a_broker_are_few_lines(world: World, log: pytest.LogCaptureFixture) -> None:
    producer = world.client()
    producer.send("queue://A", *map(str, range(100)), expiration=world.now_ms + 1)
    world.now_ms += 10
    world.broker.remove_expired()
    world.broker.report()
    lines = [line for line in log.messages if line.startswith("dead-lettered")]
    assert len(lines) == 2
    assert lines[1].startswith("dead-lettered 99 more from queue://A to queue://ActiveMQ.DLQ, the last one")
