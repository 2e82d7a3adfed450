"""The rule of loops and hops for messages and demand."""

import pytest

from pybroker.broker.domain.network.hops import may_pass


@pytest.mark.parametrize(
    ("path", "ttl", "expected"),
    [
        ((), 1, True),
        ((), 0, False),
        (("a",), 1, False),
        (("a",), 2, True),
        (("a", "b"), 2, False),
        (("a", "b", "c"), -1, True),
    ],
)
def test_a_path_as_long_as_the_limit_ends_the_way(path: tuple[str, ...], ttl: int, expected: bool) -> None:
    assert may_pass(path, "target", ttl) is expected


@pytest.mark.parametrize("ttl", [-1, 5])
def test_nothing_returns_to_a_broker_of_its_path(ttl: int) -> None:
    assert not may_pass(("a", "target"), "target", ttl)
