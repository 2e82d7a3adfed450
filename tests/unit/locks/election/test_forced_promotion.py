# mypy: disable-error-code="comparison-overlap"
"""A promotion that an operator forces: when it is refused, what it asks the register for, and how it ends."""

from dataclasses import replace

import pytest

from pybroker.locks.election.decisions import DAMAGED_LEASES, confirmable
from pybroker.locks.election.election_state import (
    BeginEpoch,
    ElectionRole,
    EpochBegun,
    FollowerJoined,
    FollowMaster,
    MasterHeard,
    OpenPorts,
    PromotionForced,
    RecordsSynced,
    ReportElection,
    StopFollowing,
    SwapAnswered,
    SwapFailed,
    SwapRegister,
    TimePassed,
)
from pybroker.locks.election.forced_promotion import QUIET_LEASES, LackingStore, lacking_store, quiet_seconds_left
from pybroker.locks.election.record import KAHADB, SCHEDULER, DurableEnd, ElectionSettings, MasterEntry, RecordedState
from pybroker.locks.election.register import RegisterState, SwapResult
from tests.unit.locks.election.test_decisions import LEASE, RECORD, SOUND, Member, follower

REVISION = 7
A_ALONE = replace(
    RECORD, in_sync=frozenset({"s-a"}), durable={KAHADB: DurableEnd(51, 5), SCHEDULER: DurableEnd(9, 200)}
)
QUIET = QUIET_LEASES * LEASE


def forced(member: Member, revision: int = REVISION) -> Member:
    """Wait until nobody else can take part any more, and have the operator's word arrive."""
    return member.on(PromotionForced(revision), after=QUIET)


def refusal(member: Member) -> str:
    found = lacking_store(member.state)
    return found if isinstance(found, str) else ""


def sentences(member: Member) -> str:
    return "; ".join(each.sentence for each in member.actions if isinstance(each, ReportElection))


def test_outsider_never_stands_by_itself() -> None:
    member = follower(A_ALONE)
    for _ in range(50):
        assert not member.on(TimePassed(), after=LEASE).has(SwapRegister)
    assert refusal(member) == ""


def test_forced_store_asks_once_over_the_content_that_was_shown() -> None:
    member = forced(follower(A_ALONE))
    assert member.role is ElectionRole.STANDING
    assert member.has(StopFollowing)
    assert member.swap.revision == REVISION
    asked = member.swap.record
    assert asked.in_sync == {"s-b"}, "no other store has what is confirmed from here on"
    assert asked.durable == SOUND.ends, "what was confirmed after its end is lost"
    assert asked.epoch == 52, "above every number that was reserved"
    assert asked.state is RecordedState.SERVING
    assert asked.master.run == "r-b-1"
    assert "an operator accepts that what this store lacks is lost" in sentences(member)


def test_forced_store_becomes_master_and_serves() -> None:
    member = forced(follower(A_ALONE)).wins()
    assert member.has(BeginEpoch)
    assert member.role is ElectionRole.PROMOTING
    member.on(EpochBegun(10)).on(RecordsSynced(10))
    assert member.has(OpenPorts)
    assert member.state.accepted_revision == 0


def test_forced_store_resumes_after_a_crash_right_after_the_swap() -> None:
    """The register says that it is the master, alone in sync; what others had confirmed does not keep it."""
    asked = forced(follower(A_ALONE)).swap.record
    again = follower(asked, replace(SOUND, epoch=52)).on(TimePassed())
    assert again.swap.record.master.store == "s-b"


def test_minimum_holds_for_a_forced_store() -> None:
    two = replace(A_ALONE, settings=ElectionSettings(lease_ms=5000, min_in_sync=2))
    member = forced(follower(two)).wins().on(EpochBegun(10)).on(RecordsSynced(10))
    assert member.role is ElectionRole.PROMOTING
    assert member.state.mastery is not None
    assert confirmable(member.state, member.state.mastery) == 0
    member.on(FollowerJoined("s-c", 1)).confirms(10, store="s-c").on(TimePassed())
    assert member.swap.record.in_sync == {"s-b", "s-c"}
    assert member.wins().role is ElectionRole.SERVING


@pytest.mark.parametrize("seconds", [0.0, QUIET - 0.1])
def test_word_that_comes_while_others_may_take_part_is_refused(seconds: float) -> None:
    member = follower(A_ALONE).on(PromotionForced(REVISION), after=seconds)
    assert member.role is ElectionRole.FOLLOWING
    assert not member.has(SwapRegister)
    assert "not promoted at an operator's word: the register has changed: a or another" in sentences(member)
    assert quiet_seconds_left(member.state, member.now) == pytest.approx(QUIET - seconds)


def test_promise_to_a_master_counts_as_its_life() -> None:
    member = follower(A_ALONE).on(MasterHeard(43), after=QUIET)
    assert not member.on(PromotionForced(REVISION)).has(SwapRegister)
    assert quiet_seconds_left(member.state, member.now) == QUIET


def test_word_about_an_older_content_is_refused() -> None:
    member = follower(A_ALONE).sees(REVISION + 1, A_ALONE)
    assert not forced(member).has(SwapRegister)
    assert not forced(follower(A_ALONE), REVISION + 1).has(SwapRegister)


def test_every_store_that_may_stand_does_so_before() -> None:
    assert QUIET_LEASES > DAMAGED_LEASES


def test_master_that_renews_meanwhile_stays() -> None:
    member = forced(follower(A_ALONE))
    present = RegisterState(REVISION + 1, A_ALONE)
    member.on(SwapAnswered(SwapResult(False, present)))
    assert member.role is ElectionRole.FOLLOWING
    assert member.has(FollowMaster)
    assert member.state.accepted_revision == 0
    assert not member.on(TimePassed(), after=10 * LEASE).has(SwapRegister), "the word was about another content"


def test_swap_without_an_answer_is_repeated_over_the_same_content_only() -> None:
    member = forced(follower(A_ALONE)).on(SwapFailed())
    assert member.role is ElectionRole.STANDING
    member.on(TimePassed(), after=1.0)
    assert member.swap.revision == REVISION
    member.on(SwapFailed()).sees(REVISION + 1, A_ALONE)
    assert member.role is ElectionRole.FOLLOWING
    assert not member.on(TimePassed(), after=10 * LEASE).has(SwapRegister)


def test_swap_whose_answer_was_lost_is_recognised() -> None:
    member = forced(follower(A_ALONE))
    asked = member.swap.record
    member.on(SwapFailed()).reads(REVISION + 1, asked)
    assert member.has(BeginEpoch)


def test_second_word_while_the_first_is_not_answered() -> None:
    member = forced(follower(A_ALONE)).on(SwapFailed())
    assert "was asked for that already" in refusal(member)


@pytest.mark.parametrize(
    ("member", "sentence"),
    [
        (Member(), "the election store was not read yet"),
        (follower(), "this store is in sync: this member becomes master by itself"),
        (follower().on(TimePassed(), after=LEASE), "this store is in sync: this member becomes master by itself"),
        (
            follower(A_ALONE, replace(SOUND, cluster="", is_empty=True, ends={})),
            "this store has nothing of cluster orders",
        ),
        (follower(A_ALONE, replace(SOUND, is_empty=True, ends={})), "nothing was copied into it yet"),
        (follower(A_ALONE, may_stand=False), "replicate_promote is off"),
        (follower(A_ALONE, replace(SOUND, cluster="other")), "the register is not that of this store's cluster"),
        (follower(replace(RECORD, in_sync=frozenset({"s-b"}))).on(TimePassed(), after=LEASE).wins(), "is the master"),
    ],
)
def test_members_that_are_not_promoted(member: Member, sentence: str) -> None:
    assert sentence in refusal(member)
    assert not forced(member).has(BeginEpoch)
    assert member.state.accepted_revision == 0


def test_register_without_a_record() -> None:
    member = Member().reads(0, None)
    member.state = member.state._replace(store=replace(SOUND, cluster=""))
    assert "names no cluster yet" in refusal(member)
    assert forced(member, 0).state.accepted_revision == 0


@pytest.mark.parametrize(
    ("record", "condition"),
    [
        (RECORD, replace(SOUND, is_sound=False, ends={})),  # a catch-up that passes through states of no master
        (RECORD, replace(SOUND, ends={KAHADB: DurableEnd(44, 700)})),  # a backup under its old id
        (replace(RECORD, in_sync=frozenset({"s-b"})), replace(SOUND, ends={KAHADB: DurableEnd(44, 700)})),
    ],
)
def test_store_in_sync_that_lacks_something_may_be_promoted(record: object, condition: object) -> None:
    member = follower(record, condition)  # type: ignore[arg-type]
    assert isinstance(lacking_store(member.state), LackingStore)
    asked = forced(member).swap.record
    assert asked.in_sync == {"s-b"}
    assert asked.durable == member.state.store.ends  # type: ignore[union-attr]


def test_released_cluster_may_be_taken_by_force() -> None:
    """The former master has ended in order, and its machine is lost before it was started again."""
    member = forced(follower(replace(A_ALONE, state=RecordedState.RELEASED, successor="s-c")))
    assert member.swap.record.successor == ""


def test_former_master_follows_the_forced_one() -> None:
    """It had what is lost, and its process was started again."""
    b = MasterEntry(name="b", store="s-b", run="r-b-1")
    asked = forced(follower(A_ALONE)).swap.record
    member = Member(replace(b, name="a", store="s-a", run="r-a-2")).on(TimePassed())
    member.reads(REVISION + 1, asked)
    assert member.actions[-1] == FollowMaster(asked.master, 52)
    assert not member.on(TimePassed(), after=10 * LEASE).has(SwapRegister)
