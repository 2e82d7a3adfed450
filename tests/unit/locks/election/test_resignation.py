"""A master whose store has failed resigns, and one that is asked to hands over: others need not wait for the lease."""

from dataclasses import replace

from pybroker.locks.election.decisions import may_tell
from pybroker.locks.election.election_state import (
    BeginEpoch,
    ClientsQuiesced,
    ElectionRole,
    EpochBegun,
    FollowerJoined,
    MasterHandedOver,
    MasterResigned,
    ReadFailed,
    ReadRegister,
    RecordsSynced,
    ReleaseRequested,
    StepDown,
    SwapAnswered,
    SwapFailed,
    SwapRegister,
    TimePassed,
)
from pybroker.locks.election.record import RecordedState
from pybroker.locks.election.register import RegisterState, SwapResult
from tests.unit.locks.election.test_decisions import (
    LEASE,
    RECORD,
    TWO,
    A,
    Member,
    follower,
    promoting,
    serving,
    standing,
)


def test_master_that_resigns_releases_the_cluster_and_lets_others_stand_first() -> None:
    member = serving(TWO).on(MasterResigned("its store has failed"))
    assert member.has(StepDown)
    assert not may_tell(member.state, member.now)
    assert member.swap.record.state is RecordedState.RELEASED
    assert member.swap.record.in_sync == TWO.in_sync
    member.wins().examined()
    assert member.on(TimePassed(), after=LEASE / 2).role is ElectionRole.FOLLOWING
    assert member.on(TimePassed(), after=LEASE / 2).role is ElectionRole.STANDING


def test_master_that_never_opened_its_ports_leaves_the_cluster_to_those_that_were_in_sync_before() -> None:
    """Its port may be taken: the former master, which has everything, must be able to take over again."""
    member = promoting()
    assert member.state.record is not None
    assert A.store not in member.state.record.in_sync
    member.on(MasterResigned("its port is taken"))
    assert member.swap.record.state is RecordedState.RELEASED
    assert member.swap.record.in_sync == RECORD.in_sync


def test_master_that_has_served_does_not_take_the_former_one_for_in_sync() -> None:
    member = promoting().on(EpochBegun(1)).on(RecordsSynced(1))
    assert member.role is ElectionRole.SERVING
    assert member.on(MasterResigned("its store has failed")).swap.record.in_sync == {"s-b"}


def test_former_master_does_not_stand_before_its_store_was_examined() -> None:
    """Its store has grown since: by what was known before, it lacked what it had confirmed itself."""
    member = serving().on(MasterResigned("its store has failed")).wins()
    assert member.on(TimePassed(), after=2 * LEASE).role is ElectionRole.FOLLOWING
    assert member.examined().on(TimePassed()).role is ElectionRole.STANDING


def test_master_that_resigns_during_a_swap_releases_the_cluster_after_it() -> None:
    member = serving(TWO).on(TimePassed(), after=LEASE / 3)
    renewal = member.swap
    assert not member.on(MasterResigned("its store has failed")).has(SwapRegister)
    assert member.has(StepDown)
    member.on(SwapAnswered(SwapResult(True, RegisterState(renewal.revision + 1, renewal.record))))
    assert member.swap.record.state is RecordedState.RELEASED
    assert member.swap.record.in_sync == TWO.in_sync


def test_master_that_cannot_serve_hands_the_set_back_though_the_answer_to_its_election_is_late() -> None:
    """It saw by the watch that it was elected. The others waited without an end, as none of them was in sync."""
    member = standing()
    election = member.swap
    member.sees(election.revision + 1, election.record)
    assert member.role is ElectionRole.PROMOTING
    assert not member.on(MasterResigned("its disk is read-only")).has(SwapRegister)
    member.on(SwapAnswered(SwapResult(True, RegisterState(election.revision + 1, election.record))))
    assert member.swap.record.state is RecordedState.RELEASED
    assert member.swap.record.in_sync == RECORD.in_sync
    assert not member.wins().on(TimePassed(), after=LEASE / 2).has(SwapRegister)


def test_release_that_has_failed_is_asked_for_again() -> None:
    """Also by a master whose store cannot be examined any more: others wait for the set that it hands back."""
    member = promoting().on(MasterResigned("its disk is read-only"))
    release = member.swap
    member.on(SwapFailed()).on(ReadFailed()).on(TimePassed(), after=LEASE / 8)
    assert member.swap.revision == release.revision
    assert member.swap.record.state is RecordedState.RELEASED
    assert member.swap.record.in_sync == RECORD.in_sync


def test_release_that_is_seen_late_is_not_taken_for_the_election() -> None:
    """Seed 8122 of the scenario `election`: it served its former epoch again, while another member could stand."""
    member = serving().on(MasterResigned("its store has failed"))
    release = member.swap
    member.on(SwapFailed()).examined().on(TimePassed(), after=LEASE / 8)
    asked = member.swap
    assert asked.record.state is RecordedState.RELEASED
    assert asked.revision == release.revision
    member.on(SwapFailed()).reads(release.revision + 1, release.record)
    assert member.role is ElectionRole.FOLLOWING
    assert member.state.mastery is None
    assert not member.has(BeginEpoch)
    assert not member.on(TimePassed()).has(SwapRegister)


def test_release_that_others_have_answered_with_a_master_is_not_asked_for() -> None:
    member = promoting().on(MasterResigned("its disk is read-only"))
    member.sees(member.swap.revision + 1, replace(RECORD, epoch=70)).on(SwapFailed())
    assert not member.on(TimePassed(), after=LEASE / 8).has(SwapRegister)


# ---------------------------------------------------------------- handing over


def released_to(member: Member, store: str) -> Member:
    """Have a serving master release the cluster to a store, with everything confirmed."""
    member.on(ReleaseRequested(store)).on(ClientsQuiesced(10))
    assert member.swap.record.state is RecordedState.RELEASED
    return member


def test_cluster_is_released_to_the_chosen_member() -> None:
    assert released_to(serving(TWO), "s-a").swap.record.successor == "s-a"


def test_cluster_is_released_to_any_member_if_the_chosen_one_has_left_the_set() -> None:
    """Otherwise nobody would stand before a lease was over."""
    member = serving(TWO).on(ReleaseRequested("s-a"))
    assert member.role is ElectionRole.HANDING_OVER
    known = member.state.known
    assert known is not None
    assert known.record is not None
    without = replace(known.record, in_sync=frozenset({"s-b", "s-c"}))
    member.state = member.state._replace(known=RegisterState(known.revision + 1, without))
    member.on(FollowerJoined("s-c", 1)).confirms(10, store="s-c").on(ClientsQuiesced(10))
    assert member.swap.record.state is RecordedState.RELEASED
    assert member.swap.record.successor == ""


def test_cluster_that_another_master_releases_may_be_taken_at_once_by_one_that_released_it_before() -> None:
    """A member leaves its own release to others for a lease, and not theirs: switchovers may follow one another."""
    member = released_to(serving(TWO), "s-a").wins().examined()
    record = member.state.record
    assert record is not None
    assert member.on(TimePassed(), after=LEASE / 8).role is ElectionRole.FOLLOWING
    revision = 100
    theirs = replace(record, epoch=60, master=A, state=RecordedState.SERVING, successor="", in_sync=TWO.in_sync)
    member.sees(revision, theirs)
    member.sees(revision + 1, replace(theirs, state=RecordedState.RELEASED, successor="s-b"))
    assert member.on(TimePassed()).role is ElectionRole.STANDING


def test_member_that_hears_of_the_handing_over_reads_the_register() -> None:
    assert follower().on(MasterHandedOver()).has(ReadRegister)
    assert not serving(TWO).on(MasterHandedOver()).has(ReadRegister)
