"""Which member a replicated master may hand over to."""

import pytest

from pybroker.broker.app.replica_switchover import Successor, successor
from pybroker.broker.domain.replica.ports import FollowerProgress

B = FollowerProgress("s-b", "b", 1, True, 10, 0, 0)
C = FollowerProgress("s-c", "c", 2, True, 10, 0, 0)


def choose(to: str, *followers: FollowerProgress, in_sync: str = "abc") -> Successor:
    return successor(to, "a", frozenset(f"s-{each}" for each in in_sync), followers)


def test_chosen_member_in_sync_takes_over() -> None:
    assert choose("b", B, C) == Successor(store="s-b")
    assert choose("c", B, C) == Successor(store="s-c")


def test_any_member_may_take_over_if_none_is_chosen() -> None:
    assert choose("", B, C, in_sync="ac") == Successor()


def test_newer_connection_of_a_member_counts() -> None:
    assert choose("b", B._replace(is_live=False, left_bytes=5), B._replace(connection=3)) == Successor(store="s-b")


@pytest.mark.parametrize(
    ("to", "followers", "in_sync", "refusal"),
    [
        ("a", [B], "ab", "a is the master already"),
        ("b", [], "a", "b is not connected"),
        ("b", [C], "ac", "b is not connected; c could take over"),
        ("b", [B], "a", "b is not in sync yet"),
        ("b", [B._replace(is_live=False, left_bytes=1234)], "ab", "b is not in sync: 1,234 bytes are left of its copy"),
        ("b", [B._replace(is_live=False, left_bytes=0)], "ab", "b is not in sync yet"),
        ("b", [B._replace(may_stand=False)], "ab", "b only has a copy: its replicate_promote is no"),
        ("", [], "a", "no other member is connected"),
        ("", [B, C._replace(may_stand=False)], "ac", "b is not in sync yet; c only has a copy: its replicate_promote"),
    ],
)
def test_switchover_is_refused_with_the_reason(
    to: str, followers: list[FollowerProgress], in_sync: str, refusal: str
) -> None:
    found = choose(to, *followers, in_sync=in_sync)
    assert found.refusal.startswith(refusal)
    assert found.store == ""
