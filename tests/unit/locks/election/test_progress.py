"""A member in sync that confirms nothing but pings, or everything late: clients must not wait for it all the time."""

from pybroker.locks.election.decisions import LATE_TIMEOUTS
from pybroker.locks.election.election_state import FollowerJoined, FollowerLost, RecordsSynced, SwapRegister, TimePassed
from tests.unit.locks.election.test_decisions import TWO as AT_LEAST_TWO
from tests.unit.locks.election.test_decisions import Member, serving

TIMEOUT = 2.0


def rejoined(member: Member) -> Member:
    """Have the follower of a master connect again after a record that it has not."""
    return member.on(FollowerLost("s-a", 1)).on(FollowerJoined("s-a", 1)).on(RecordsSynced(11))


def in_sync() -> Member:
    """Return a master with a follower that is in sync, and whose departure is allowed."""
    member = serving().confirms(10).on(TimePassed())
    assert member.swap.record.in_sync == {"s-a", "s-b"}
    return member.wins().on(TimePassed())


def ping_for(member: Member, seconds: float, sequence: int) -> list[SwapRegister]:
    """Let time pass in which the follower answers pings; return the swaps that were decided on."""
    swaps = []
    for _ in range(round(seconds / 0.25)):
        member.on(TimePassed(), after=0.25)
        if member.has(SwapRegister):
            swaps.append(member.swap)
            member.wins()
        member.confirms(sequence)
    return swaps


def test_member_that_catches_up_leaves_the_set_after_the_time_out() -> None:
    swaps = ping_for(rejoined(in_sync()), TIMEOUT + 1, 0)
    assert swaps[-1].record.in_sync == {"s-b"}


def test_member_that_has_confirmed_everything_stays() -> None:
    swaps = ping_for(rejoined(in_sync()), TIMEOUT + 1, 11)
    assert all(swap.record.in_sync == {"s-a", "s-b"} for swap in swaps)


def test_too_few_are_left_without_the_member_that_catches_up() -> None:
    swaps = ping_for(rejoined(serving(AT_LEAST_TWO)), TIMEOUT + 1, 0)
    assert all(swap.record.in_sync == {"s-a", "s-b"} for swap in swaps)


def writing(member: Member, seconds: float, behind_max: int) -> list[SwapRegister]:
    """Write four records a second, and have two confirmed, or more lest too many wait; return the swaps."""
    swaps = []
    for count in range(1, 1 + round(seconds / 0.25)):
        member.on(RecordsSynced(10 + count), after=0.25).on(TimePassed())
        if member.has(SwapRegister):
            swaps.append(member.swap)
            member.wins()
        member.confirms(10 + max(count // 2, count - behind_max))
    return swaps


def test_member_that_falls_behind_more_and_more_leaves_the_set() -> None:
    """It confirms something all the time, as a standby behind a slow link does."""
    late_after = LATE_TIMEOUTS * TIMEOUT
    assert all(swap.record.in_sync == {"s-a", "s-b"} for swap in writing(in_sync(), late_after, 1_000))
    assert writing(in_sync(), 4 * late_after, 1_000)[-1].record.in_sync == {"s-b"}


def test_member_that_is_always_a_little_late_stays() -> None:
    late_after = LATE_TIMEOUTS * TIMEOUT
    swaps = writing(in_sync(), 4 * late_after, round(late_after / 2 / 0.25))
    assert all(swap.record.in_sync == {"s-a", "s-b"} for swap in swaps)
