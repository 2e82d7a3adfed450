# mypy: disable-error-code="comparison-overlap"
"""The decisions of an election, rule by rule; `tests/simulation` has them together."""

from dataclasses import replace
from typing import Any

import pytest

from pybroker.locks.election import decisions
from pybroker.locks.election.decisions import COUNTED_SHARE, decide, may_begin_file, may_take, may_tell, promises, start
from pybroker.locks.election.election_state import (
    BeginEpoch,
    ClientsQuiesced,
    ConfirmRecords,
    ElectionEvent,
    ElectionPolicy,
    ElectionRole,
    ElectionState,
    EpochBegun,
    FollowerConfirmed,
    FollowerJoined,
    FollowerLeaving,
    FollowerLost,
    FollowMaster,
    HangUp,
    JournalsReported,
    MasterHandedOver,
    MasterHeard,
    MasterResigned,
    OpenPorts,
    PromotionForced,
    QuiesceClients,
    ReadFailed,
    ReadRegister,
    RecordsSynced,
    RegisterChanged,
    RegisterRead,
    ReleaseRequested,
    ReportElection,
    StepDown,
    StopFollowing,
    StoreCondition,
    StoreExamined,
    SwapAnswered,
    SwapFailed,
    SwapRegister,
    TimePassed,
)
from pybroker.locks.election.record import (
    KAHADB,
    SCHEDULER,
    DurableEnd,
    ElectionRecord,
    ElectionSettings,
    MasterEntry,
    RecordedState,
)
from pybroker.locks.election.register import RegisterState, SwapResult

LEASE = 5.0
COUNTED = LEASE * COUNTED_SHARE
A = MasterEntry(name="a", store="s-a", run="r-a-1")
B = MasterEntry(name="b", store="s-b", run="r-b-1")
SOUND = StoreCondition(
    cluster="c",
    epoch=43,
    is_empty=False,
    is_sound=True,
    highest={KAHADB: 44, SCHEDULER: 9},
    ends={KAHADB: DurableEnd(44, 900), SCHEDULER: DurableEnd(9, 100)},
)
RECORD = ElectionRecord(
    cluster="c",
    name="orders",
    epoch=43,
    state=RecordedState.SERVING,
    master=A,
    in_sync=frozenset({"s-a", "s-b"}),
    reserved={KAHADB: 51, SCHEDULER: 12},
    durable={KAHADB: DurableEnd(44, 800), SCHEDULER: DurableEnd(9, 100)},
    settings=ElectionSettings(lease_ms=5000, min_in_sync=1),
    nonce="r-a-1-7",
    unknown={"upgrade": 1},
)


class Member:
    """A state, its clock, and what was decided last."""

    def __init__(self, me: MasterEntry = B, **policy: Any) -> None:
        self.now = 100.0
        self.state: ElectionState = start(me, ElectionPolicy(**policy), self.now)
        self.actions: tuple[Any, ...] = ()
        self.rule: Any = decide

    def on(self, event: ElectionEvent, *, after: float = 0.0) -> "Member":
        self.now += after
        self.state, self.actions = self.rule(self.state, event, self.now)
        return self

    def reads(self, revision: int, record: ElectionRecord | None) -> "Member":
        """Read the register for the first time or again."""
        if not self.state.is_reading:
            self.state = self.state._replace(is_reading=True)
        return self.on(RegisterRead(RegisterState(revision, record)))

    def sees(self, revision: int, record: ElectionRecord) -> "Member":
        return self.on(RegisterChanged(RegisterState(revision, record)))

    def wins(self) -> "Member":
        """Have the swap that was decided on succeed."""
        swap = self.swap
        return self.on(SwapAnswered(SwapResult(True, RegisterState(swap.revision + 1, swap.record))))

    def examined(self) -> "Member":
        """Have the own store examined, after a mastery."""
        return self.on(StoreExamined(SOUND))

    def confirms(
        self, sequence: int, *, store: str = "s-a", sent: float | None = None, promise: bool = True
    ) -> "Member":
        assert self.state.mastery is not None
        sent_at = self.now if sent is None else sent
        return self.on(FollowerConfirmed(store, 1, self.state.mastery.epoch, sequence, sent_at, promise))

    @property
    def swap(self) -> SwapRegister:
        (swap,) = [each for each in self.actions if isinstance(each, SwapRegister)]
        return swap

    def has(self, kind: type) -> bool:
        return any(isinstance(each, kind) for each in self.actions)

    @property
    def role(self) -> ElectionRole:
        return self.state.role


def follower(record: ElectionRecord = RECORD, condition: StoreCondition = SOUND, **policy: Any) -> Member:
    """Return a member b that follows a."""
    return Member(B, **policy).on(StoreExamined(condition)).reads(7, record)


def standing(record: ElectionRecord = RECORD, **policy: Any) -> Member:
    """Return a member b that has just asked to be master."""
    return follower(record, **policy).on(TimePassed(), after=LEASE)


def promoting(record: ElectionRecord = RECORD, **policy: Any) -> Member:
    """Return a master b that has told nothing yet."""
    return standing(record, **policy).wins()


def serving(record: ElectionRecord = RECORD, **policy: Any) -> Member:
    """Return a master b with open ports, whose first record is 10, and with a in the in-sync set if `min` is 2."""
    member = promoting(record, **policy).on(EpochBegun(10)).on(FollowerJoined("s-a", 1))
    if "s-a" in decisions.required_stores(member.state):
        member.confirms(10)
    return member.on(RecordsSynced(10))


TWO = replace(RECORD, settings=ElectionSettings(lease_ms=5000, min_in_sync=2))
THREE = replace(RECORD, in_sync=frozenset({"s-a", "s-b", "s-c"}))


# ---------------------------------------------------------------- reading and following


def test_run_reads_before_anything_else() -> None:
    member = Member().on(StoreExamined(SOUND)).sees(9, RECORD)
    assert member.state.known is None, "a watch alone proves nothing"
    assert member.on(TimePassed()).actions == (ReadRegister(),)
    assert member.on(TimePassed(), after=60).actions == (), "one read at a time"
    assert member.on(ReadFailed()).on(TimePassed()).actions == (ReadRegister(),)


def test_member_follows_the_master_that_the_register_names() -> None:
    member = follower()
    assert member.actions == (StopFollowing(), FollowMaster(A, 43))
    assert may_take(member.state, 43)
    assert not may_take(member.state, 42)


def test_member_reads_again_after_a_third_of_a_lease() -> None:
    member = follower().on(TimePassed())
    member.on(RegisterRead(RegisterState(7, RECORD)))
    assert not member.on(TimePassed(), after=LEASE / 3 - 0.1).has(ReadRegister)
    assert member.on(TimePassed(), after=0.2).has(ReadRegister)


def test_older_content_of_a_watch_changes_nothing() -> None:
    member = follower()
    before = member.state
    assert member.sees(6, replace(RECORD, epoch=41)).state == before
    assert member.sees(7, replace(RECORD, epoch=41)).state == before


def test_renewal_does_not_make_a_follower_dial() -> None:
    assert follower().sees(8, RECORD).actions == ()


def test_next_master_is_followed() -> None:
    third = MasterEntry(name="c", store="s-c", run="r-c-1")
    member = follower().sees(8, replace(RECORD, master=third, epoch=52))
    assert member.actions == (StopFollowing(), FollowMaster(third, 52))


# ---------------------------------------------------------------- standing


def test_member_stands_after_a_lease_without_a_change() -> None:
    member = follower()
    assert not member.on(TimePassed(), after=LEASE - 0.01).has(SwapRegister)
    member.on(TimePassed(), after=0.01)
    assert member.role is ElectionRole.STANDING
    assert member.has(StopFollowing)
    assert member.swap == SwapRegister(
        7,
        replace(
            RECORD,
            epoch=52,
            master=B,
            in_sync=frozenset({"s-b"}),
            reserved={KAHADB: 60, SCHEDULER: 21},
            nonce="r-b-1-1",
        ),
    )


def test_every_change_begins_the_lease_again() -> None:
    member = follower()
    for revision in range(8, 20):
        member.on(TimePassed(), after=LEASE * 0.9).sees(revision, RECORD)
        assert not member.has(SwapRegister)
    assert member.role is ElectionRole.FOLLOWING


def test_new_master_keeps_the_former_one_in_sync_where_the_minimum_demands_it() -> None:
    assert standing(TWO).swap.record.in_sync == {"s-a", "s-b"}
    three_of_two = replace(TWO, in_sync=frozenset({"s-a", "s-b", "s-c"}))
    assert standing(three_of_two).swap.record.in_sync == {"s-b", "s-c"}


def test_numbers_above_the_reserved_ones_are_passed_over() -> None:
    """An ActiveMQ that had the store may have written files that the register does not know."""
    condition = replace(
        SOUND, highest={KAHADB: 70, SCHEDULER: 3}, ends={KAHADB: DurableEnd(70, 1), SCHEDULER: DurableEnd(9, 100)}
    )
    record = follower(condition=condition).on(TimePassed(), after=LEASE).swap.record
    assert record.epoch == 71
    assert record.reserved == {KAHADB: 79, SCHEDULER: 21}


@pytest.mark.parametrize(
    ("record", "condition", "policy"),
    [
        (replace(RECORD, in_sync=frozenset({"s-a"})), SOUND, {}),
        (RECORD, replace(SOUND, ends={KAHADB: DurableEnd(44, 799), SCHEDULER: DurableEnd(9, 100)}), {}),
        (RECORD, replace(SOUND, ends={KAHADB: DurableEnd(45, 0), SCHEDULER: DurableEnd(8, 9999)}), {}),
        (RECORD, replace(SOUND, ends={KAHADB: DurableEnd(45, 0)}), {}),
        (RECORD, replace(SOUND, is_sound=False), {}),
        (RECORD, SOUND, {"may_stand": False}),
    ],
    ids=["not in sync", "too short", "scheduler too short", "no scheduler", "incomplete", "never promoted"],
)
def test_member_without_everything_never_stands(record: ElectionRecord, condition: StoreCondition, policy: Any) -> None:
    released = replace(record, state=RecordedState.RELEASED)
    for each in (record, released):
        member = follower(each, condition, **policy)
        for _ in range(5):
            assert not member.on(TimePassed(), after=LEASE).has(SwapRegister)


def test_member_that_is_not_examined_does_not_stand() -> None:
    assert not Member().reads(7, RECORD).on(TimePassed(), after=LEASE).has(SwapRegister)


def test_released_cluster_is_taken_over_at_once() -> None:
    assert follower(replace(RECORD, state=RecordedState.RELEASED)).on(TimePassed()).role is ElectionRole.STANDING


def test_cluster_released_for_another_is_taken_over_after_a_lease() -> None:
    record = replace(RECORD, state=RecordedState.RELEASED, in_sync=frozenset({"s-a", "s-b", "s-c"}))
    member = follower(replace(record, successor="s-c")).on(TimePassed())
    assert member.role is ElectionRole.FOLLOWING
    assert member.on(TimePassed(), after=LEASE).role is ElectionRole.STANDING
    called = follower(replace(record, successor="s-b")).on(TimePassed())
    assert called.swap.record.successor == ""
    assert called.swap.record.state is RecordedState.SERVING


def test_restarted_master_resumes_at_once() -> None:
    """The lock on its directory proves that the former run has ended."""
    again = replace(A, run="r-a-2")
    member = Member(again).on(StoreExamined(SOUND)).reads(7, RECORD)
    assert not member.has(FollowMaster)
    assert member.on(TimePassed()).swap.record.in_sync == {"s-a", "s-b"}


def test_standing_member_does_not_follow_or_promise() -> None:
    member = standing()
    assert not may_take(member.state, 43)
    assert not promises(member.state, 43)
    assert member.on(MasterHeard(43)).state.seen_at < member.now


def test_standing_member_that_was_too_late_follows() -> None:
    third = MasterEntry(name="c", store="s-c", run="r-c-1")
    member = standing(THREE)
    other = replace(THREE, master=third, epoch=52)
    member.on(SwapAnswered(SwapResult(False, RegisterState(8, other))))
    assert member.role is ElectionRole.FOLLOWING
    assert member.actions == (StopFollowing(), FollowMaster(third, 52))


def test_standing_member_that_lost_to_a_renewal_follows_again() -> None:
    member = standing().on(SwapAnswered(SwapResult(False, RegisterState(8, replace(RECORD, nonce="r-a-1-8")))))
    assert member.role is ElectionRole.FOLLOWING
    assert member.has(FollowMaster), "the same epoch, to which it had closed the connection"


# ---------------------------------------------------------------- outcomes that are unknown


def test_lost_answer_is_recognised_by_its_nonce() -> None:
    member = standing()
    asked, sent = member.swap.record, member.now
    member.on(SwapFailed(), after=1.25)
    assert member.role is ElectionRole.STANDING
    assert member.state.is_reading
    member.reads(8, asked)
    assert member.role is ElectionRole.PROMOTING
    assert member.actions[-1] == BeginEpoch(52, asked.reserved)
    assert member.state.mastery is not None
    assert member.state.mastery.deadline == sent + COUNTED, "counted from when it was sent"


def test_old_revision_does_not_resolve_an_outcome() -> None:
    member = standing().on(SwapFailed(), after=1.25).reads(7, RECORD)
    assert member.role is ElectionRole.STANDING
    assert member.state.attempts
    assert member.on(TimePassed()).swap.record.nonce == "r-b-1-2"
    assert len(member.state.attempts) == 2


def test_any_of_several_attempts_may_come_true() -> None:
    member = standing()
    first, sent = member.swap.record, member.now
    member.on(SwapFailed(), after=1.0).reads(7, RECORD).on(TimePassed()).sees(8, first)
    assert member.role is ElectionRole.PROMOTING
    assert member.state.mastery is not None
    assert member.state.mastery.deadline == sent + COUNTED


def test_set_that_was_asked_for_is_required_with_the_one_that_stands() -> None:
    member = serving(TWO)
    member.on(FollowerJoined("s-c", 1)).confirms(10, store="s-c", sent=member.now)
    member.on(TimePassed())
    assert member.swap.record.in_sync == {"s-a", "s-b", "s-c"}
    assert decisions.required_stores(member.state) == {"s-a", "s-b", "s-c"}
    assert not member.on(RecordsSynced(11)).confirms(11).has(ConfirmRecords), "c is required before it is in the set"
    assert member.confirms(11, store="s-c").actions == (ConfirmRecords(11),)


def test_removal_counts_when_the_swap_has_succeeded() -> None:
    member = serving(replace(THREE, settings=ElectionSettings(lease_ms=5000, min_in_sync=2)))
    assert decisions.required_stores(member.state) == {"s-b", "s-c"}
    member = serving(TWO)
    member.on(FollowerJoined("s-c", 1)).confirms(10, store="s-c").on(TimePassed()).wins()
    member.on(RecordsSynced(11)).confirms(11, store="s-c", sent=member.now)
    member.on(TimePassed(), after=1.9).wins().confirms(11, store="s-c")
    member.on(TimePassed(), after=0.2)
    assert member.swap.record.in_sync == {"s-b", "s-c"}
    asked = member.swap
    assert decisions.required_stores(member.state) == {"s-a", "s-b", "s-c"}
    member.on(SwapFailed()).on(RecordsSynced(12)).confirms(12, store="s-c")
    assert not member.has(ConfirmRecords), "unknown counts both ways"
    member.reads(asked.revision + 1, asked.record)
    assert ConfirmRecords(12) in member.actions


# ---------------------------------------------------------------- serving


def test_ports_open_with_the_first_confirmed_record() -> None:
    member = promoting(TWO)
    assert member.role is ElectionRole.PROMOTING
    member.on(EpochBegun(10)).on(RecordsSynced(10))
    assert member.role is ElectionRole.PROMOTING
    member.on(FollowerJoined("s-a", 1)).confirms(9)
    assert member.role is ElectionRole.PROMOTING
    member.confirms(10)
    assert member.role is ElectionRole.SERVING
    assert member.actions[-2:] == (OpenPorts(), ConfirmRecords(10))


def test_nothing_is_confirmed_with_fewer_in_sync_than_demanded() -> None:
    """A cluster that was just created has one store in sync, whatever the minimum."""
    record = replace(TWO, master=replace(B, run="r-b-0"), in_sync=frozenset({"s-b"}))
    member = follower(record).on(TimePassed()).wins().on(EpochBegun(10)).on(RecordsSynced(10))
    assert member.role is ElectionRole.PROMOTING
    member.on(FollowerJoined("s-a", 1)).confirms(10).on(TimePassed())
    assert member.swap.record.in_sync == {"s-a", "s-b"}
    assert member.wins().has(OpenPorts)


def test_confirmation_is_that_of_the_slowest_required_member() -> None:
    member = serving(TWO)
    member.on(RecordsSynced(20)).confirms(15)
    assert member.actions == (ConfirmRecords(15),)
    assert member.confirms(30).actions == (ConfirmRecords(20),)
    assert member.confirms(30).actions == ()


def test_confirmation_of_another_connection_or_epoch_does_not_count() -> None:
    member = serving(TWO).on(RecordsSynced(20))
    for connection, epoch in ((2, 52), (1, 43)):
        assert member.on(FollowerConfirmed("s-a", connection, epoch, 20, member.now, True)).actions == ()
    member.on(FollowerJoined("s-a", 2))
    assert member.confirms(20).actions == (), "the former connection's"


def test_renewal_is_sent_after_a_quarter_of_a_lease_and_counts_from_then() -> None:
    member = serving()
    assert member.on(TimePassed(), after=LEASE / 4 - 0.1).actions == ()
    member.on(
        JournalsReported({KAHADB: 52, SCHEDULER: 13}, {KAHADB: DurableEnd(52, 77), SCHEDULER: DurableEnd(9, 100)})
    )
    sent = member.on(TimePassed(), after=0.1).now
    assert member.swap.record.durable[KAHADB] == DurableEnd(52, 77)
    assert member.swap.record.unknown == {"upgrade": 1}
    member.now += 1.0
    member.wins()
    assert member.state.mastery is not None
    assert member.state.mastery.deadline == sent + COUNTED
    assert may_tell(member.state, sent + COUNTED - 0.01)


def test_numbers_are_reserved_at_once_when_few_are_left() -> None:
    member = serving()
    assert may_begin_file(member.state, KAHADB, 60)
    assert not may_begin_file(member.state, KAHADB, 61)
    member.on(JournalsReported({KAHADB: 56, SCHEDULER: 13}, {}))
    assert member.on(TimePassed()).actions == ()
    member.on(JournalsReported({KAHADB: 57, SCHEDULER: 13}, {}))
    member.on(TimePassed())
    assert member.swap.record.reserved == {KAHADB: 65, SCHEDULER: 21}
    assert not may_begin_file(member.state, KAHADB, 61)
    assert may_begin_file(member.wins().state, KAHADB, 61)


def test_silent_follower_leaves_where_enough_are_left() -> None:
    member = serving(TWO)
    assert member.on(TimePassed(), after=2.1).swap.record.in_sync == {"s-a", "s-b"}, "a renewal: the minimum stays"
    member = serving(THREE)
    assert member.on(TimePassed(), after=1.9).swap.record.in_sync == {"s-b", "s-c"}
    assert member.wins().on(TimePassed(), after=0.2).swap.record.in_sync == {"s-b"}


def test_follower_that_stops_in_order_leaves_without_a_pause() -> None:
    member = serving(replace(THREE, in_sync=frozenset({"s-a", "s-b", "s-c"}), settings=TWO.settings))
    member.on(FollowerJoined("s-c", 1)).on(FollowerLeaving("s-c", 1))
    assert not member.has(SwapRegister), "the minimum stays"
    member = serving(TWO)
    member.on(FollowerJoined("s-c", 1)).confirms(10, store="s-c").on(TimePassed()).wins()
    assert member.on(FollowerLeaving("s-c", 1)).swap.record.in_sync == {"s-a", "s-b"}
    member.wins().confirms(99, store="s-c")
    assert not member.on(TimePassed()).has(SwapRegister), "it does not come back by itself"


def test_follower_joins_the_set_with_everything_that_may_be_confirmed() -> None:
    member = serving().on(RecordsSynced(20))
    assert not member.confirms(19).on(TimePassed()).has(SwapRegister)
    assert member.confirms(20).on(TimePassed()).swap.record.in_sync == {"s-a", "s-b"}


def test_silent_connection_is_hung_up_on() -> None:
    member = serving(TWO).on(TimePassed(), after=3.9)
    assert not member.has(HangUp)
    assert HangUp("s-a", 1, "nothing came for 4 s") in member.on(TimePassed(), after=0.2).actions


def test_lost_connection_counts_for_nothing() -> None:
    member = serving(TWO).on(RecordsSynced(20))
    member.on(FollowerLost("s-a", 9))
    assert member.state.mastery is not None
    assert member.state.mastery.followers
    member.on(FollowerLost("s-a", 1))
    assert member.confirms(20).actions == ()


def test_copy_of_the_masters_store_is_refused() -> None:
    member = serving().on(FollowerJoined("s-b", 5))
    ((store, connection, reason),) = member.actions
    assert (store, connection) == ("s-b", 5)
    assert "copy" in reason


# ---------------------------------------------------------------- the fence and grace


def test_master_steps_down_when_its_lease_is_over() -> None:
    member = serving(TWO, gives_grace=False)
    sent = member.state.mastery.renewed_at if member.state.mastery else 0.0
    assert may_tell(member.state, sent + COUNTED - 0.01)
    assert not may_tell(member.state, sent + COUNTED)
    member.on(RecordsSynced(11), after=COUNTED)
    assert member.role is ElectionRole.FOLLOWING
    assert member.has(StepDown)
    assert not member.has(ConfirmRecords)


@pytest.mark.parametrize("promise", [True, False])
def test_master_goes_on_while_every_required_member_promises(promise: bool) -> None:
    member = serving(TWO)
    for _ in range(5):
        sent = member.now
        member.now += 1.0
        if member.role is ElectionRole.SERVING:
            member.confirms(10, sent=sent, promise=promise)
        member.on(SwapFailed()).on(TimePassed(), after=1.0)
    assert (member.role is ElectionRole.SERVING) is promise
    assert decisions.is_graced(member.state, member.now) is promise
    if promise:
        assert not may_tell(member.state, sent + COUNTED), "counted from when the ping was sent"


def test_master_without_others_goes_on_by_itself() -> None:
    member = serving()
    assert decisions.required_stores(member.state) == {"s-b"}
    assert may_tell(member.state, member.now + 3600)
    assert decisions.is_graced(member.state, member.now + 3600)
    assert not decisions.is_graced(member.state, member.now)
    assert not may_tell(member.state._replace(policy=ElectionPolicy(gives_grace=False)), member.now + 3600)


def test_promise_after_a_freeze_does_not_revive_a_master() -> None:
    member = serving(TWO)
    member.now += 2 * LEASE
    member.confirms(10)
    assert member.role is ElectionRole.FOLLOWING
    assert member.has(StepDown)


def test_master_that_told_nothing_yet_may_renew_for_a_lease() -> None:
    member = promoting(gives_grace=False).on(EpochBegun(10), after=COUNTED).on(RecordsSynced(10))
    assert member.role is ElectionRole.PROMOTING
    member.on(TimePassed()).wins()
    assert member.role is ElectionRole.SERVING
    late = promoting(gives_grace=False).on(TimePassed(), after=LEASE + 0.1)
    assert late.has(StepDown)


def test_follower_that_hears_its_master_promises_a_lease() -> None:
    member = follower()
    assert promises(member.state, 43)
    for _ in range(5):
        member.on(MasterHeard(43), after=LEASE * 0.9)
    assert member.on(TimePassed(), after=LEASE * 0.9).role is ElectionRole.FOLLOWING
    assert member.on(TimePassed(), after=LEASE * 0.1).role is ElectionRole.STANDING
    silent = follower().on(MasterHeard(42), after=LEASE * 0.9).on(TimePassed(), after=LEASE * 0.1)
    assert silent.role is ElectionRole.STANDING, "another epoch's frame is no reason"


def test_follower_without_grace_promises_nothing() -> None:
    member = follower(gives_grace=False)
    assert not promises(member.state, 43)
    assert member.on(MasterHeard(43), after=LEASE).on(TimePassed()).role is ElectionRole.STANDING


def follows_while_asked(state: ElectionState, event: ElectionEvent, now: float) -> Any:
    """Decide, but a member whose swap had no answer goes back to its master, and is master if the swap comes true."""
    if isinstance(event, RegisterChanged) and state.attempts:
        state = state._replace(role=ElectionRole.STANDING)
    after = decide(state, event, now)
    if isinstance(event, SwapFailed) and after.state.role is ElectionRole.STANDING:
        return after._replace(state=after.state._replace(role=ElectionRole.FOLLOWING))
    return after


@pytest.mark.parametrize("rule", [decide, follows_while_asked])
def test_member_that_may_become_master_must_not_promise(rule: Any) -> None:
    """The history that rule 3.4.3 is for: a swap comes true after its writer has promised the master not to stand.

    Both answers of the register are late: the one to b, who became master, and the swap of c, who saw b say nothing.
    """
    record = replace(RECORD, in_sync=frozenset({"s-a", "s-b", "s-c"}))
    b, c = follower(record), Member(MasterEntry(name="c", store="s-c", run="r-c-1"))
    c.on(StoreExamined(SOUND)).reads(7, record)
    asked = b.on(TimePassed(), after=LEASE).swap.record
    c.now = b.now
    c.sees(8, asked)
    overtaken = c.on(TimePassed(), after=LEASE).swap.record
    assert overtaken.in_sync == {"s-c"}
    b.on(SwapFailed(), after=1.25)
    c.now += 1.25
    c.rule = rule
    c.on(SwapFailed())

    b.now = c.now
    b.sees(8, asked).on(EpochBegun(10)).on(RecordsSynced(10)).on(FollowerJoined("s-c", 1))
    if promises(c.state, 52):
        c.on(MasterHeard(52), after=0.1)
        b.now += 0.2
        b.confirms(10, store="s-c", sent=b.now - 0.15)

    c.now = b.now
    c.sees(9, overtaken).on(EpochBegun(20)).on(RecordsSynced(20))
    both_serve = c.role is ElectionRole.SERVING and b.role is ElectionRole.SERVING and may_tell(b.state, c.now)
    assert c.role is ElectionRole.SERVING
    assert both_serve is (rule is follows_while_asked)


# ---------------------------------------------------------------- stepping down and handing over


def test_master_steps_down_for_the_one_in_the_register() -> None:
    third = MasterEntry(name="c", store="s-c", run="r-c-1")
    member = serving(THREE).sees(20, replace(THREE, master=third, epoch=70))
    assert member.role is ElectionRole.FOLLOWING
    assert [type(each) for each in member.actions[-2:]] == [StopFollowing, FollowMaster]
    assert member.has(StepDown)


def test_switchover_waits_for_confirmations_and_names_the_successor() -> None:
    member = serving(TWO).on(RecordsSynced(12)).on(ReleaseRequested("s-a"))
    assert member.role is ElectionRole.HANDING_OVER
    assert member.has(QuiesceClients)
    assert not member.on(ClientsQuiesced(12)).has(SwapRegister)
    member.confirms(12).on(TimePassed())
    released = member.swap.record
    assert (released.state, released.successor, released.in_sync) == (RecordedState.RELEASED, "s-a", TWO.in_sync)
    assert member.role is ElectionRole.FOLLOWING
    assert member.has(StepDown), "at once: it may take effect though its answer is lost"
    member.on(SwapAnswered(SwapResult(True, RegisterState(20, released)))).examined()
    assert not member.on(TimePassed()).has(SwapRegister), "others first"
    assert member.on(TimePassed(), after=LEASE).has(SwapRegister)


def test_orderly_stop_is_taken_over_by_any_but_the_same_run() -> None:
    member = serving().on(ReleaseRequested()).on(ClientsQuiesced(10))
    released = member.swap.record
    assert released.successor == ""
    member.on(SwapAnswered(SwapResult(True, RegisterState(20, released)))).examined()
    assert not member.on(TimePassed()).has(SwapRegister)
    again = Member(replace(B, run="r-b-2")).on(StoreExamined(SOUND)).reads(20, released)
    assert again.on(TimePassed()).has(SwapRegister)


@pytest.mark.parametrize("successor", ["s-b", "s-x"])
def test_switchover_to_a_member_that_is_not_in_sync_is_refused(successor: str) -> None:
    member = serving(TWO).on(ReleaseRequested(successor))
    assert member.role is ElectionRole.SERVING
    assert "not in sync" in member.actions[0].sentence


# ---------------------------------------------------------------- registers that contradict


@pytest.mark.parametrize(
    ("revision", "record", "sentence"),
    [
        (9, replace(RECORD, cluster="other"), "another cluster"),
        (9, replace(RECORD, epoch=42), "restored"),
        (5, RECORD, "older than it was"),
        (0, None, "older than it was"),
    ],
)
def test_register_that_contradicts_blocks(revision: int, record: ElectionRecord | None, sentence: str) -> None:
    for member in (follower(), serving(TWO)):
        if member.role is ElectionRole.SERVING:
            revision += 10 * (revision > 7)
        member.on(SwapFailed())
        assert member.state.is_reading
        member.on(RegisterRead(RegisterState(revision, record)))
        assert member.role is ElectionRole.BLOCKED
        texts = [each.sentence for each in member.actions if isinstance(each, ReportElection)]
        assert sentence in texts[-1]
        assert "docs/replication.md" in texts[-1]
        assert not member.on(TimePassed(), after=3 * LEASE).has(SwapRegister)


def test_record_that_is_gone_blocks_a_restarted_member() -> None:
    assert Member().on(StoreExamined(SOUND)).reads(0, None).role is ElectionRole.BLOCKED


def test_blocked_member_follows_again_when_the_register_is_right() -> None:
    member = follower().on(SwapFailed()).on(RegisterRead(RegisterState(5, RECORD)))
    assert member.role is ElectionRole.BLOCKED
    member.reads(8, RECORD)
    assert member.role is ElectionRole.FOLLOWING
    assert member.has(FollowMaster)


def test_store_with_messages_of_no_cluster_joins_none() -> None:
    condition = replace(SOUND, cluster="", epoch=0)
    foreign = replace(RECORD, in_sync=frozenset({"s-a"}))
    assert Member().on(StoreExamined(condition)).reads(7, foreign).role is ElectionRole.BLOCKED
    empty = replace(condition, is_empty=True)
    assert Member().on(StoreExamined(empty)).reads(7, foreign).role is ElectionRole.FOLLOWING


def test_first_member_creates_the_cluster() -> None:
    condition = replace(SOUND, cluster="", epoch=0)
    member = Member().on(StoreExamined(condition)).reads(0, None).on(TimePassed())
    swap = member.swap
    assert swap.revision == 0
    assert swap.record.state is RecordedState.RELEASED
    assert (swap.record.epoch, swap.record.in_sync) == (44, {"s-b"})
    member.wins()
    assert member.role is ElectionRole.FOLLOWING
    member.on(StoreExamined(replace(condition, cluster=swap.record.cluster))).on(TimePassed())
    assert member.swap.record.epoch == 45


def test_empty_store_lets_others_create_the_cluster() -> None:
    condition = replace(SOUND, cluster="", epoch=0, is_empty=True, highest={KAHADB: 0}, ends={KAHADB: DurableEnd(0, 0)})
    member = Member().on(StoreExamined(condition)).reads(0, None)
    assert not member.on(TimePassed(), after=2.9).has(SwapRegister)
    member.on(ReadFailed())
    assert member.on(TimePassed(), after=0.2).swap.revision == 0


# ---------------------------------------------------------------- the table


STATES = {
    ElectionRole.FOLLOWING: follower,
    ElectionRole.STANDING: standing,
    ElectionRole.PROMOTING: promoting,
    ElectionRole.SERVING: lambda: serving(TWO),
    ElectionRole.HANDING_OVER: lambda: serving(TWO).on(ReleaseRequested()),
    ElectionRole.BLOCKED: lambda: follower().reads(9, replace(RECORD, cluster="other")),
}

EVENTS: list[ElectionEvent] = [
    TimePassed(),
    StoreExamined(SOUND),
    RegisterRead(RegisterState(30, RECORD)),
    ReadFailed(),
    RegisterChanged(RegisterState(30, RECORD)),
    SwapAnswered(SwapResult(False, RegisterState(30, RECORD))),
    SwapFailed(),
    MasterHeard(43),
    MasterHandedOver(),
    PromotionForced(30),
    EpochBegun(11),
    RecordsSynced(12),
    JournalsReported({KAHADB: 52}, {}),
    FollowerJoined("s-c", 3),
    FollowerConfirmed("s-a", 1, 52, 12, 100.0, True),
    FollowerLeaving("s-a", 1),
    FollowerLost("s-a", 1),
    ReleaseRequested(),
    MasterResigned("its store has failed"),
    ClientsQuiesced(10),
]

AS_MASTER = {
    EpochBegun,
    RecordsSynced,
    JournalsReported,
    FollowerJoined,
    FollowerConfirmed,
    FollowerLeaving,
    FollowerLost,
    MasterResigned,
}
ALWAYS = {TimePassed, StoreExamined, RegisterRead, ReadFailed, RegisterChanged, SwapAnswered, SwapFailed}
EFFECTIVE = {
    ElectionRole.FOLLOWING: ALWAYS | {MasterHeard, MasterHandedOver, PromotionForced},
    ElectionRole.STANDING: ALWAYS,
    ElectionRole.PROMOTING: ALWAYS | AS_MASTER,
    ElectionRole.SERVING: ALWAYS | AS_MASTER | {ReleaseRequested},
    ElectionRole.HANDING_OVER: ALWAYS | AS_MASTER | {ClientsQuiesced},
    ElectionRole.BLOCKED: ALWAYS,
}
"""What has an effect in a role; all else is too late."""


def test_table_of_events_is_complete() -> None:
    others = {MasterHeard, MasterHandedOver, PromotionForced, ReleaseRequested, ClientsQuiesced}
    assert {type(event) for event in EVENTS} == ALWAYS | AS_MASTER | others
    assert {role: {*handlers} for role, handlers in decisions._TABLE.items()} == EFFECTIVE


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("role", ElectionRole, ids=lambda role: role.name)
def test_event_in_a_role_is_decided_without_side_effects(role: ElectionRole, event: ElectionEvent) -> None:
    member = STATES[role]()
    assert member.role is role
    before = repr(member.state)
    first = decide(member.state, event, member.now + 0.1)
    assert repr(member.state) == before
    assert decide(member.state, event, member.now + 0.1) == first
    if type(event) not in EFFECTIVE[role]:
        assert first == (member.state, ())
    assert (first.state.mastery is not None) == (first.state.role in decisions._MASTERS)
