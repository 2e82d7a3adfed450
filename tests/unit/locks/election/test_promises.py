"""Promises of standbys not to stand, by which a master goes on while its lease cannot be renewed."""

from pybroker.locks.election import decisions
from pybroker.locks.election.decisions import may_tell
from pybroker.locks.election.election_state import FollowerJoined, FollowerLost, SwapFailed, TimePassed
from tests.unit.locks.election.test_decisions import COUNTED, TWO, serving


def test_promise_outlives_its_connection() -> None:
    """A standby that connects again must not end a master that cannot renew its lease meanwhile."""
    member = serving(TWO)
    sent = member.now
    for _ in range(5):
        sent = member.now
        member.now += 1.0
        member.confirms(10, sent=sent)
        member.on(SwapFailed()).on(TimePassed(), after=1.0)
    member.on(FollowerLost("s-a", 1), after=0.1).on(TimePassed(), after=0.1)
    assert decisions.is_graced(member.state, member.now)
    member.on(FollowerJoined("s-a", 2), after=0.1)
    assert may_tell(member.state, member.now)
    member.on(FollowerLost("s-a", 2), after=0.1)
    assert may_tell(member.state, sent + COUNTED - 0.01)
    assert not may_tell(member.state, sent + COUNTED), "and no longer than before"
