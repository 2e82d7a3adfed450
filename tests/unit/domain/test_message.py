"""Messages: when they are dead, and that each is itself."""

import sys
from dataclasses import replace

import pytest

from pybroker.broker.domain.destination import parse, queue
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
    assert fresh.payload_size == SIZE_OVERHEAD == 1024
    assert fresh.size == SIZE_OVERHEAD + len(fresh.data)
    assert fresh.connection_id == ""
    assert fresh.decoded is None


def test_a_message_equals_only_itself() -> None:
    """Two deliveries of the same id are two messages: sets and dictionaries of them go by identity."""
    first, second = message(), message()

    assert first != second
    assert len({first, second, first}) == 2


LONG_ID = "ID:" + "i" * 60_000
WIDE_GROUP = "g" * 60_000 + "\U0001f600"


def test_size_counts_long_texts_as_the_process_holds_them() -> None:
    """A text of one wide character and 60,000 others takes four bytes for each, and the limit counts them."""
    long = Message(
        message_id=LONG_ID,
        destination=parse("queue://Q"),
        data=b"d" * 130_000,
        persistent=False,
        connection_id="c",
        group_id=WIDE_GROUP,
    )

    texts = sys.getsizeof(LONG_ID) + sys.getsizeof(WIDE_GROUP)
    assert texts > 60_000 + 4 * 60_000
    assert SIZE_OVERHEAD + 130_000 + texts <= long.size <= SIZE_OVERHEAD + 130_000 + texts + 100
    assert long.payload_size == SIZE_OVERHEAD


def test_size_of_a_copy_is_that_of_its_own_data() -> None:
    copy = replace(message(), data=b"d" * 500)

    assert copy.size == SIZE_OVERHEAD + 500
