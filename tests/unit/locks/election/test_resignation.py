"""A master whose store has failed resigns, so that another member need not wait for the end of its lease."""

from pybroker.locks.election.decisions import may_tell
from pybroker.locks.election.election_state import ElectionRole, MasterResigned, StepDown, SwapRegister, TimePassed
from pybroker.locks.election.record import RecordedState
from tests.unit.locks.election.test_decisions import LEASE, TWO, serving


def test_master_that_resigns_releases_the_cluster_and_lets_others_stand_first() -> None:
    member = serving(TWO).on(MasterResigned("its store has failed"))
    assert member.has(StepDown)
    assert not may_tell(member.state, member.now)
    assert member.swap.record.state is RecordedState.RELEASED
    assert member.swap.record.in_sync == TWO.in_sync
    member.wins()
    assert member.on(TimePassed(), after=LEASE / 2).role is ElectionRole.FOLLOWING
    assert member.on(TimePassed(), after=LEASE / 2).role is ElectionRole.STANDING


def test_master_that_resigns_during_a_swap_leaves_the_cluster_to_the_lease() -> None:
    member = serving().on(TimePassed(), after=LEASE / 3)
    assert member.has(SwapRegister)
    assert not member.on(MasterResigned("its store has failed")).has(SwapRegister)
    assert member.has(StepDown)
