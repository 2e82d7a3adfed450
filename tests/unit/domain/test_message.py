"""Messages: when they are dead, and that each is itself."""

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.message import PRIORITY_DEFAULT, SIZE_OVERHEAD, Message


def message(expiration: int = 0) -> Message:
    return Message(message_id="ID:h:1:1:1", destination=queue("Q"), data=b"", persistent=True, expiration=expiration)


@pytest.mark.parametrize(
    ("expiration", "now_ms", "expired"),
    [
        pytest.param(0, 10**15, False, id="never"),
        pytest.param(1000, 999, False, id="before"),
        pytest.param(1000, 1000, False, id="at-its-time"),
        pytest.param(1000, 1001, True, id="after"),
        pytest.param(-1, 1000, False, id="negative-is-never"),
    ],
)
def test_expiration(expiration: int, now_ms: int, expired: bool) -> None:
    assert message(expiration).is_expired(now_ms) is expired


def test_defaults_are_jmss() -> None:
    fresh = message()

    assert fresh.priority == PRIORITY_DEFAULT == 4
    assert fresh.size == SIZE_OVERHEAD == 1024
    assert fresh.connection_id == ""
    assert fresh.decoded is None


def test_a_message_equals_only_itself() -> None:
    """Two deliveries of the same id are two messages: sets and dictionaries of them go by identity."""
    first, second = message(), message()

    assert first != second
    assert len({first, second, first}) == 2
