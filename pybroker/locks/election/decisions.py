"""The decisions of an election: who stands, who serves, what is confirmed. Pure: no I/O, no clock, no thread.

```text
            stands: released, own former run, or a lease without a change     swap succeeded
FOLLOWING ----------------------------------------------------------> STANDING -------------> PROMOTING
    ^                                                                     |                       | first record
    |   another was quicker                                               |                       v confirmed
    +<--------------------------------------------------------------------+                    SERVING
    ^                                                                                             | asked to release
    |   fenced by the own clock, another master in the register, released                         v
    +<----------------------------------------------------------------------------------- HANDING_OVER
```

From every role a register that contradicts what the member knows leads to BLOCKED, until it no longer does.

`decide` changes nothing: it returns another state, and the actions for the caller to perform in their order. The rules
are those of the specification of replication, 3.3 to 3.5, 5 and 6, whose numbers the comments name. `may_tell` is the
fence: the caller asks it after each commit, and before output leaves.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pybroker.locks.election.election_state import (
    NEVER,
    BeginEpoch,
    ClientsQuiesced,
    ConfirmRecords,
    ElectionAction,
    ElectionDecision,
    ElectionEvent,
    ElectionPolicy,
    ElectionRole,
    ElectionState,
    EpochBegun,
    FollowerConfirmed,
    FollowerJoined,
    FollowerLeaving,
    FollowerLost,
    FollowerState,
    FollowMaster,
    HangUp,
    JournalsReported,
    MasterHandedOver,
    MasterHeard,
    MasterResigned,
    Mastery,
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
    ReportInSync,
    StepDown,
    StopFollowing,
    StoreCondition,
    StoreExamined,
    SwapAnswered,
    SwapFailed,
    SwapRegister,
    TimePassed,
)
from pybroker.locks.election.forced_promotion import is_accepted, lacking_store, quiet_seconds_left
from pybroker.locks.election.record import (
    KAHADB,
    DurableEnd,
    ElectionRecord,
    MasterEntry,
    RecordedState,
)
from pybroker.locks.election.register import RegisterState
from pybroker.locks.election.resignation import is_own_term, owed_release

COUNTED_SHARE = 5 / 6
"""Share of a lease that a master relies on: safe while no clock runs 1.2 times as fast as another (rule 2)."""

RENEW_SHARE = 1 / 4
"""Share of a lease between two renewals, and the time-out of a call to the register."""

READ_SHARE = 1 / 3
"""Share of a lease between two reads of a member that is not the master."""

LATE_TIMEOUTS = 5
"""Times the replica time-out for which one record may wait for a member that does confirm others."""

DAMAGED_LEASES = 3
"""Leases for which a damaged store in sync leaves its place to a sound one: that may never come back."""

_MASTERS = frozenset({ElectionRole.PROMOTING, ElectionRole.SERVING, ElectionRole.HANDING_OVER})

Actions = tuple[ElectionAction, ...]


def start(me: MasterEntry, policy: ElectionPolicy, now: float) -> ElectionState:
    """Return the state of a run that begins. It knows nothing of the register (rule 8)."""
    return ElectionState(me=me, policy=policy, started_at=now)


def decide(state: ElectionState, event: ElectionEvent, now: float) -> ElectionDecision:
    """Return the decision for an event. An event that comes too late for the role has no effect."""
    if state.mastery is not None and not may_tell(state, now) and _must_step_down(state, now):
        # Before anything else: a promise that arrives after a freeze must not revive a master that counts on nothing.
        state, actions = _step_down(state, now, "its lease is over")
        after = _TABLE[state.role].get(type(event), _ignore)(state, event, now)
        return ElectionDecision(after.state, (*actions, *after.actions))
    return _TABLE[state.role].get(type(event), _ignore)(state, event, now)


# ---------------------------------------------------------------- the fence


def may_tell(state: ElectionState, now: float) -> bool:
    """Return True if a master may confirm and deliver: its lease counts, or every required follower's promise does."""
    mastery = state.mastery
    if mastery is None:
        return False
    if now < mastery.deadline:
        return True
    return state.policy.gives_grace and now < graced_until(state)


def is_graced(state: ElectionState, now: float) -> bool:
    """Return True if a master goes on by its followers' promises alone: no renewal was answered for too long."""
    return state.mastery is not None and now >= state.mastery.deadline and may_tell(state, now)


def graced_until(state: ElectionState) -> float:
    """Return until when the promises of all other required members count; without others there is no end (3.5)."""
    mastery = state.mastery
    assert mastery is not None, "only a master is promised anything"
    promised = [promised_at(mastery, store) for store in required_stores(state) if store != state.me.store]
    return min(promised) + counted_seconds(state) if promised else float("inf")


def promised_at(mastery: Mastery, store: str) -> float:
    """Return from when the latest promise of a member counts, whose connection may have ended since.

    A member that is started again does not break it: it waits for a whole lease from its first read on.
    """
    follower, former = mastery.followers.get(store), mastery.promised.get(store, NEVER)
    return former if follower is None else max(former, follower.promised_at)


def required_stores(state: ElectionState) -> frozenset[str]:
    """Return the stores that must confirm: those of the set that stands, and of each that may come true (rule 1)."""
    record = state.record
    assert record is not None, "a master has read its own record"
    return record.in_sync.union(*state.requested)


def counted_seconds(state: ElectionState) -> float:
    """Return how long a master relies on a renewal or a promise."""
    return _lease(state) * COUNTED_SHARE


def promises(state: ElectionState, epoch: int) -> bool:
    """Return True if a follower that takes a frame of this epoch promises not to stand for a lease."""
    return state.policy.gives_grace and may_take(state, epoch)


def may_take(state: ElectionState, epoch: int) -> bool:
    """Return True if frames of this epoch may be written to the own store (rule 8)."""
    record = state.record
    return state.role is ElectionRole.FOLLOWING and record is not None and record.epoch == epoch


def may_begin_file(state: ElectionState, journal: str, number: int) -> bool:
    """Return True if a master may begin the data file with this number: it is reserved in the register."""
    record = state.record
    return state.role in _MASTERS and record is not None and number <= record.reserved.get(journal, 0)


def _lease(state: ElectionState) -> float:
    record = state.record
    return 0.0 if record is None else record.settings.lease_ms / 1000


def _must_step_down(state: ElectionState, now: float) -> bool:
    """A master that has told nothing yet may renew for a lease, if the answer to its swap was late."""
    assert state.mastery is not None
    return state.role is not ElectionRole.PROMOTING or now - state.mastery.begun_at > _lease(state)


# ---------------------------------------------------------------- the register


def _on_read(state: ElectionState, event: RegisterRead, now: float) -> ElectionDecision:
    after = state.read_after
    state = state._replace(is_reading=False)
    if event.content.revision < after:
        return _block(state, now, "the register is older than it was: it was lost or restored")
    return _note(state, event.content, now)


def _on_read_failed(state: ElectionState, event: ReadFailed, now: float) -> ElectionDecision:
    return ElectionDecision(state._replace(is_reading=False))


def _on_changed(state: ElectionState, event: RegisterChanged, now: float) -> ElectionDecision:
    if event.content.record is None or state.known is None:
        return ElectionDecision(state)  # only a read that began after the start counts
    return _note(state, event.content, now)


def _on_swapped(state: ElectionState, event: SwapAnswered, now: float) -> ElectionDecision:
    state = state._replace(is_swapping=False)
    if state.known is not None and event.result.present.revision < state.known.revision:
        return _read(state, now)  # late, or the register was lost: a read shows which
    noted = _note(state, event.result.present, now)
    release = _release(noted.state, now)
    return ElectionDecision(release.state, (*noted.actions, *release.actions))


def _on_swap_failed(state: ElectionState, event: SwapFailed, now: float) -> ElectionDecision:
    """The outcome is unknown, and counts both ways until a newer revision is seen (rule 1)."""
    return _read(state._replace(is_swapping=False), now)


def _read(state: ElectionState, now: float) -> ElectionDecision:
    if state.is_reading:
        return ElectionDecision(state)
    known = 0 if state.known is None else state.known.revision
    return ElectionDecision(state._replace(is_reading=True, read_at=now, read_after=known), (ReadRegister(),))


def _note(state: ElectionState, content: RegisterState, now: float) -> ElectionDecision:
    """Take a newer content over; an older one, or the same, proves nothing."""
    if state.known is not None and content.revision <= state.known.revision:
        return ElectionDecision(state)
    if sentence := _contradiction(state, content):
        return _block(state._replace(known=content), now, sentence)
    record, former = content.record, state.record
    sent_at = None if record is None else state.attempts.get(record.nonce)
    state = state._replace(known=content, seen_at=now, attempts={}, requested=(), accepted_revision=0)
    if not is_own_term(state):
        state = state._replace(owed=None)
    if state.role is ElectionRole.BLOCKED:
        state, former = state._replace(role=ElectionRole.FOLLOWING), None
    if record is None:
        return ElectionDecision(state)
    if record.master.run == state.me.run:
        return _note_own(state, record, sent_at, now)
    actions: Actions = ()
    if state.mastery is not None:
        state, actions = _step_down(state, now, f"{record.master.name} is master by the register, epoch {record.epoch}")
    elif state.role is ElectionRole.STANDING:
        state = state._replace(role=ElectionRole.FOLLOWING)
        former = None
    if former is None or former.epoch != record.epoch:
        actions = (*actions, *_follow(state, record))
    return ElectionDecision(state, actions)


def _note_own(state: ElectionState, record: ElectionRecord, sent_at: float | None, now: float) -> ElectionDecision:
    mastery = state.mastery
    if mastery is not None:
        if sent_at is not None:  # a renewal counts from when it was sent (rule 2)
            mastery = mastery._replace(deadline=max(mastery.deadline, renewal_deadline(state, sent_at, now)))
        return _advance(state._replace(mastery=mastery), now)
    is_election = record.state is RecordedState.SERVING  # and not the own release, seen late
    if state.role is ElectionRole.STANDING and is_election and sent_at is not None:
        return _become_master(state, record, sent_at, now)
    return ElectionDecision(state._replace(role=ElectionRole.FOLLOWING))


def renewal_deadline(state: ElectionState, sent_at: float, now: float) -> float:
    """Return until when a renewal counts."""
    return sent_at + counted_seconds(state)


def _contradiction(state: ElectionState, content: RegisterState) -> str:
    """Return why a content cannot be that of this member's cluster (rule 9); empty if it can."""
    store, record = state.store, content.record
    if store is None or not store.cluster:
        if record is not None and store is not None and not store.is_empty and state.me.store not in record.in_sync:
            return f"this store has messages that cluster {record.name} does not know"
        return ""
    if record is None:
        return "the register has no record any more: it was lost"
    if record.cluster != store.cluster:
        return f"the register is that of another cluster of the name {record.name}"
    if record.epoch < store.epoch:
        return f"the register has epoch {record.epoch} and this store {store.epoch}: it was restored"
    return ""


def _block(state: ElectionState, now: float, sentence: str) -> ElectionDecision:
    actions: Actions = ()
    if state.mastery is not None:
        state, actions = _step_down(state, now, sentence)
    if state.role is not ElectionRole.BLOCKED:
        remedy = "see docs/replication.md, When the record does not fit"
        actions = (*actions, StopFollowing(), ReportElection(f"{sentence}: {remedy}", is_problem=True))
    return ElectionDecision(state._replace(role=ElectionRole.BLOCKED), actions)


def _follow(state: ElectionState, record: ElectionRecord) -> Actions:
    if record.master.store == state.me.store:
        return (StopFollowing(),)
    return (StopFollowing(), FollowMaster(record.master, record.epoch))


# ---------------------------------------------------------------- standing


def _on_examined(state: ElectionState, event: StoreExamined, now: float) -> ElectionDecision:
    state = state._replace(store=event.condition)
    if state.known is not None and (sentence := _contradiction(state, state.known)):
        return _block(state, now, sentence)
    return ElectionDecision(state)


def _on_time_outside(state: ElectionState, event: TimePassed, now: float) -> ElectionDecision:
    """Read now and then, and stand when it is due."""
    actions: Actions = ()
    if state.known is None or now - state.read_at >= _lease(state) * READ_SHARE:
        state, actions = _read(state, now)
    release = _release(state, now)
    state, actions = release.state, (*actions, *release.actions)
    if state.known is None or state.is_swapping or state.store is None or state.role is ElectionRole.BLOCKED:
        return ElectionDecision(state, actions)
    record = state.record
    if record is None:
        after = _create(state, state.store, now)
    elif sentence := reason_to_stand(state, record, now):
        after = _stand(state, record, sentence, now)
    else:
        return ElectionDecision(state, actions)
    return ElectionDecision(after.state, (*actions, *after.actions))


def _create(state: ElectionState, store: StoreCondition, now: float) -> ElectionDecision:
    """Create the cluster with the own store as the in-sync set (8.1); an empty one lets others go first."""
    if store.cluster or (store.is_empty and now - state.started_at < state.policy.first_start_wait):
        return ElectionDecision(state)
    record = ElectionRecord(
        cluster=state.me.run,
        name=state.policy.cluster_name,
        epoch=max([0, *store.highest.values()]),
        state=RecordedState.RELEASED,
        master=state.me,
        in_sync=frozenset({state.me.store}),
        reserved=store.highest,
        durable=store.ends,
        settings=state.policy.first_settings,
        nonce="",
    )
    after = _swap(state, record, now)
    return ElectionDecision(after.state, (ReportElection("there is no cluster yet: creating it"), *after.actions))


def reason_to_stand(state: ElectionState, record: ElectionRecord, now: float) -> str:
    """Return why a member stands now; empty if it may not (rules 3 and 4)."""
    if is_accepted(state):
        return "an operator accepts that what this store lacks is lost"
    store, policy = state.store, state.policy
    if store is None or not policy.may_stand or not is_candidate(state, record):
        return ""
    if not store.is_sound and len(record.in_sync) > 1:
        return ""
    if store.is_damaged and len(record.in_sync) > 1 and now - state.seen_at < DAMAGED_LEASES * _lease(state):
        return ""  # another store in sync is preferred, but not waited for without an end
    if any(store.ends.get(journal, DurableEnd(0, 0)) < end for journal, end in record.durable.items()):
        return ""  # an old copy under the same id
    is_overdue = now - state.seen_at >= _lease(state)
    if record.state is RecordedState.RELEASED:
        is_called = not record.successor or record.successor == state.me.store
        is_patient = record.master.run == state.me.run and now < state.patient_until  # only after its own release
        if is_overdue or (is_called and not is_patient):
            if not record.epoch and record.master.run == state.me.run:
                return "the cluster is new"
            return f"{record.master.name} has released the cluster"
    elif record.master.store == state.me.store:
        return "the master was a former run of this member"  # whose lock on the directory is ours: it has ended
    elif is_overdue:
        return f"{record.master.name} has not renewed its lease"
    return ""


def is_candidate(state: ElectionState, record: ElectionRecord) -> bool:
    """Return True if the own store has everything that was confirmed: it is in the in-sync set."""
    return state.me.store in record.in_sync


def _stand(state: ElectionState, record: ElectionRecord, sentence: str, now: float) -> ElectionDecision:
    """Ask to become the master by one swap; until its outcome is known, do not follow (rule 3)."""
    assert state.store is not None, "only an examined store stands"
    first = first_files(state.store, record)
    asked = replace(
        record,
        epoch=first.get(KAHADB, record.epoch + 1),
        state=RecordedState.SERVING,
        master=state.me,
        in_sync=in_sync_after(state, record),
        reserved={journal: number + state.policy.reserve_ahead for journal, number in first.items()},
        durable=state.store.ends if is_accepted(state) else record.durable,
        successor="",
    )
    actions: Actions = ()
    if state.role is not ElectionRole.STANDING:
        state = state._replace(role=ElectionRole.STANDING)
        actions = (StopFollowing(), ReportElection(f"{sentence}: asking to become master with epoch {asked.epoch}"))
    after = _swap(state._replace(stood_over=record.in_sync, owed=None), asked, now)
    return ElectionDecision(after.state, (*actions, *after.actions))


def first_files(store: StoreCondition, record: ElectionRecord) -> dict[str, int]:
    """Return the numbers of a new master's first data files, which no member of the cluster has ever used."""
    journals = sorted({*record.reserved, *store.highest})
    return {each: max(record.reserved.get(each, 0), store.highest.get(each, 0)) + 1 for each in journals}


def in_sync_after(state: ElectionState, record: ElectionRecord) -> frozenset[str]:
    """Return the in-sync set of a new master: without the former one, if enough are left."""
    if is_accepted(state):
        return frozenset({state.me.store})  # no other store has what is confirmed from here on
    others = record.in_sync - {record.master.store}
    if state.me.store != record.master.store and len(others) >= record.settings.min_in_sync:
        return others
    return record.in_sync


def _on_forced(state: ElectionState, event: PromotionForced, now: float) -> ElectionDecision:
    """Stand at an operator's word, over the very content of the register that the operator was shown (6.1)."""
    found = lacking_store(state)
    if isinstance(found, str):
        refusal = found
    elif found.revision != event.revision or quiet_seconds_left(state, now):
        refusal = f"the register has changed: {found.record.master.name} or another member takes part"
    else:
        return _on_time_outside(state._replace(accepted_revision=event.revision), TimePassed(), now)
    return ElectionDecision(state, (ReportElection(f"not promoted at an operator's word: {refusal}"),))


def _swap(state: ElectionState, record: ElectionRecord, now: float) -> ElectionDecision:
    assert state.known is not None, "a swap is based on what was read"
    revision, count = state.known.revision, state.write_count + 1
    record = replace(record, nonce=f"{state.me.run}-{count}")
    state = state._replace(is_swapping=True, write_count=count, attempts={**state.attempts, record.nonce: now})
    return ElectionDecision(state, (SwapRegister(revision, record),))


def _on_heard(state: ElectionState, event: MasterHeard, now: float) -> ElectionDecision:
    """A promise: not to stand before a lease from here (3.5)."""
    return ElectionDecision(state._replace(seen_at=now) if promises(state, event.epoch) else state)


def _on_handed_over(state: ElectionState, event: MasterHandedOver, now: float) -> ElectionDecision:
    """Read at once: the register says if it is so, and a watch may be late."""
    return _read(state, now)


# ---------------------------------------------------------------- master


def _become_master(state: ElectionState, record: ElectionRecord, sent_at: float, now: float) -> ElectionDecision:
    mastery = Mastery(
        epoch=record.epoch,
        deadline=renewal_deadline(state, sent_at, now),
        begun_at=now,
        renewed_at=sent_at,
        floor=None,
        synced=0,
        confirmed=0,
        followers={},
        files={journal: number - state.policy.reserve_ahead for journal, number in record.reserved.items()},
        durable=record.durable,
    )
    state = state._replace(role=ElectionRole.PROMOTING, mastery=mastery)
    return ElectionDecision(
        state, (ReportElection(f"master with epoch {record.epoch}"), BeginEpoch(record.epoch, record.reserved))
    )


def _step_down(state: ElectionState, now: float, reason: str) -> ElectionDecision:
    """Follow, or wait for the next election; the own store, which has changed, is to be examined before that."""
    state = state._replace(role=ElectionRole.FOLLOWING, mastery=None, store=None, attempts={}, requested=())
    actions: Actions = (StepDown(reason),)
    if state.record is not None:
        actions = (*actions, *_follow(state, state.record))
    return ElectionDecision(state, actions)


def _on_begun(state: ElectionState, event: EpochBegun, now: float) -> ElectionDecision:
    assert state.mastery is not None
    return _advance(state._replace(mastery=state.mastery._replace(floor=event.sequence)), now)


def _on_synced(state: ElectionState, event: RecordsSynced, now: float) -> ElectionDecision:
    mastery = state.mastery
    assert mastery is not None
    if event.sequence <= mastery.synced:
        return ElectionDecision(state)
    return _advance(state._replace(mastery=mastery._replace(synced=event.sequence)), now)


def _on_journals(state: ElectionState, event: JournalsReported, now: float) -> ElectionDecision:
    assert state.mastery is not None
    return ElectionDecision(state._replace(mastery=state.mastery._replace(files=event.files, durable=event.durable)))


def confirmable(state: ElectionState, mastery: Mastery) -> int:
    """Return the sequence up to which the own disk and every required follower's have everything.

    Nothing more can be confirmed while fewer stores than demanded are in sync, as in a cluster that was just created.
    """
    record, upto = state.record, mastery.synced
    assert record is not None
    if len(record.in_sync) < record.settings.min_in_sync:
        return mastery.confirmed
    for store in required_stores(state):
        if store != state.me.store:
            follower = mastery.followers.get(store)
            upto = min(upto, follower.confirmed if follower is not None else 0)
    return upto


def _advance(state: ElectionState, now: float) -> ElectionDecision:
    """Confirm what is synced wherever it must be; open the ports with the epoch's first record (rule 5)."""
    mastery = state.mastery
    assert mastery is not None
    upto = confirmable(state, mastery)
    if mastery.floor is None or upto <= mastery.confirmed or upto < mastery.floor:
        return ElectionDecision(state)
    if not may_tell(state, now):
        return ElectionDecision(state)  # still promoting, or `decide` would have stepped down: a renewal may come
    actions: Actions = (ConfirmRecords(upto),)
    state = state._replace(mastery=mastery._replace(confirmed=upto))
    if state.role is ElectionRole.PROMOTING:
        state = state._replace(role=ElectionRole.SERVING)
        actions = (ReportElection("the first record is confirmed: serving clients"), OpenPorts(), *actions)
    return ElectionDecision(state, actions)


def _on_time_master(state: ElectionState, event: TimePassed, now: float) -> ElectionDecision:
    """Hang up on silent followers, change the set, reserve numbers, release, renew: at most one swap."""
    state, actions = _hang_up(state, now)
    mastery, record = state.mastery, state.record
    assert mastery is not None
    assert record is not None
    if state.is_swapping:
        return ElectionDecision(state, actions)
    is_released = mastery.quiesced is not None and mastery.confirmed >= mastery.quiesced and not state.requested
    in_sync = record.in_sync if is_released else next_in_sync(state, now)
    reserved = _next_reserved(record, mastery, state.policy)
    is_due = now - mastery.renewed_at >= _lease(state) * RENEW_SHARE
    if not (is_due or is_released or in_sync != record.in_sync or reserved is not record.reserved):
        return ElectionDecision(state, actions)
    asked = replace(record, in_sync=in_sync, reserved=reserved, durable=mastery.durable)
    if is_released:
        successor = mastery.successor if mastery.successor in in_sync else ""  # it may have left the set meanwhile
        asked = replace(asked, state=RecordedState.RELEASED, successor=successor)
    return _renew(state, record, asked, actions, now)


def _renew(
    state: ElectionState, record: ElectionRecord, asked: ElectionRecord, actions: Actions, now: float
) -> ElectionDecision:
    assert state.mastery is not None
    if asked.in_sync != record.in_sync:
        actions = (*actions, ReportInSync(asked.in_sync))
    # A member that is to be in sync is required first, and one that leaves until the swap has succeeded (rules 6, 7).
    state = state._replace(requested=(*state.requested, asked.in_sync), mastery=state.mastery._replace(renewed_at=now))
    state, swap = _swap(state, asked, now)
    if asked.state is RecordedState.RELEASED:
        patient_until = now + _lease(state)
        state, down = _step_down(state._replace(patient_until=patient_until), now, "released to another member")
        return ElectionDecision(state, (*actions, *down, *swap))
    return ElectionDecision(state, (*actions, *swap))


def _hang_up(state: ElectionState, now: float) -> ElectionDecision:
    """Close connections on which nothing came for long: they may be dead in one direction only (4.1)."""
    mastery, limit = state.mastery, 2 * state.policy.replica_timeout
    assert mastery is not None
    silent = {store: each for store, each in mastery.followers.items() if now - each.heard_at > limit}
    if not silent:
        return ElectionDecision(state)
    left = {store: each for store, each in mastery.followers.items() if store not in silent}
    actions = tuple(HangUp(store, each.connection, f"nothing came for {limit:g} s") for store, each in silent.items())
    return ElectionDecision(state._replace(mastery=mastery._replace(followers=left)), actions)


def next_in_sync(state: ElectionState, now: float) -> frozenset[str]:
    """Return the in-sync set that a master wants: without silent members, if enough are left; with who caught up."""
    mastery, record, timeout = state.mastery, state.record, state.policy.replica_timeout
    assert mastery is not None
    assert record is not None
    kept = set(record.in_sync)
    for store in sorted(record.in_sync - {state.me.store}):
        follower = mastery.followers.get(store)
        if _must_leave(mastery, follower, timeout, now) and len(kept) > record.settings.min_in_sync:
            kept.discard(store)
    for store, follower in mastery.followers.items():
        if store not in record.in_sync and has_caught_up(mastery, follower) and now - follower.heard_at <= timeout / 2:
            kept.add(store)
    return frozenset(kept)


def _must_leave(mastery: Mastery, follower: FollowerState | None, timeout: float, now: float) -> bool:
    """Return True if clients are to go on without a member: it leaves, confirms nothing, or is late all the time."""
    if now - _confirming_at(mastery, follower) > timeout:
        return True
    return follower is not None and (follower.is_leaving or now - follower.awaited_at > LATE_TIMEOUTS * timeout)


def _confirming_at(mastery: Mastery, follower: FollowerState | None) -> float:
    """Return when a follower was last seen to confirm what it must; one that catches up answers pings alone."""
    if follower is None:
        return mastery.begun_at
    return follower.heard_at if follower.confirmed >= mastery.synced else follower.advanced_at


def has_caught_up(mastery: Mastery, follower: FollowerState) -> bool:
    """Return True if a follower has everything that may ever have been confirmed, by any epoch (rule 7)."""
    return (
        mastery.floor is not None
        and follower.confirmed >= max(mastery.floor, mastery.confirmed)
        and (not follower.is_leaving)
    )


def _next_reserved(record: ElectionRecord, mastery: Mastery, policy: ElectionPolicy) -> Mapping[str, int]:
    """Return the reserved numbers; the same object if enough are left."""
    if all(
        record.reserved.get(journal, 0) - number >= policy.reserve_left for journal, number in mastery.files.items()
    ):
        return record.reserved
    raised = {
        journal: max(record.reserved.get(journal, 0), number + policy.reserve_ahead)
        for journal, number in mastery.files.items()
    }
    return {**record.reserved, **raised}


# ---------------------------------------------------------------- followers, as the master sees them


def _on_joined(state: ElectionState, event: FollowerJoined, now: float) -> ElectionDecision:
    mastery = state.mastery
    assert mastery is not None
    if event.store == state.me.store:
        reason = f"store {event.store} is the master's own: one of both is a copy of the other"
        return ElectionDecision(state, (HangUp(event.store, event.connection, reason),))
    promised = promised_at(mastery, event.store)
    follower = FollowerState(
        event.connection, 0, now, now, awaited=mastery.synced, awaited_at=now, promised_at=promised
    )
    return ElectionDecision(
        state._replace(mastery=mastery._replace(followers={**mastery.followers, event.store: follower}))
    )


def _on_confirmed(state: ElectionState, event: FollowerConfirmed, now: float) -> ElectionDecision:
    mastery = state.mastery
    assert mastery is not None
    follower = mastery.followers.get(event.store)
    if follower is None or follower.connection != event.connection or event.epoch != mastery.epoch:
        return ElectionDecision(state)
    promised_at = max(follower.promised_at, promise_time(event, now)) if event.has_promised else follower.promised_at
    has_awaited = event.sequence >= follower.awaited
    has_advanced = event.sequence > follower.confirmed or event.sequence >= mastery.synced
    changed = follower._replace(
        confirmed=max(follower.confirmed, event.sequence),
        heard_at=now,
        advanced_at=now if has_advanced else follower.advanced_at,
        awaited=mastery.synced if has_awaited else follower.awaited,
        awaited_at=now if has_awaited else follower.awaited_at,
        promised_at=promised_at,
    )
    followers = {**mastery.followers, event.store: changed}
    state = state._replace(mastery=mastery._replace(followers=followers))
    return _advance(state, now) if changed.confirmed > follower.confirmed else ElectionDecision(state)


def promise_time(event: FollowerConfirmed, now: float) -> float:
    """Return from when a promise counts: from when the ping was sent, which was before the follower took it."""
    return event.sent_at


def _on_leaving(state: ElectionState, event: FollowerLeaving, now: float) -> ElectionDecision:
    mastery = state.mastery
    assert mastery is not None
    follower = mastery.followers.get(event.store)
    if follower is None or follower.connection != event.connection:
        return ElectionDecision(state)
    followers = {**mastery.followers, event.store: follower._replace(is_leaving=True)}
    state = state._replace(mastery=mastery._replace(followers=followers))
    return _on_time_master(state, TimePassed(), now)


def _on_lost(state: ElectionState, event: FollowerLost, now: float) -> ElectionDecision:
    """A follower whose connection ended counts as silent since it was heard last."""
    mastery = state.mastery
    assert mastery is not None
    follower = mastery.followers.get(event.store)
    if follower is None or follower.connection != event.connection:
        return ElectionDecision(state)
    followers = {store: each for store, each in mastery.followers.items() if store != event.store}
    promised = {store: promised_at(mastery, store) for store in required_stores(state)}
    return ElectionDecision(state._replace(mastery=mastery._replace(followers=followers, promised=promised)))


# ---------------------------------------------------------------- release


def _on_release(state: ElectionState, event: ReleaseRequested, now: float) -> ElectionDecision:
    """Let another member take over, once everything is confirmed (6.3)."""
    mastery, record = state.mastery, state.record
    assert mastery is not None
    assert record is not None
    if event.successor and (event.successor == state.me.store or event.successor not in record.in_sync):
        return ElectionDecision(state, (ReportElection(f"{event.successor} cannot take over: it is not in sync"),))
    mastery = mastery._replace(successor=event.successor)
    return ElectionDecision(
        state._replace(role=ElectionRole.HANDING_OVER, mastery=mastery),
        (ReportElection("asked to hand over: waiting for confirmations"), QuiesceClients()),
    )


def _on_resigned(state: ElectionState, event: MasterResigned, now: float) -> ElectionDecision:
    """Step down, and release the cluster: every other store in sync has what was confirmed.

    A master that never opened its ports has confirmed nothing. So those that were in sync when it stood still are, the
    former master too: else no other store could take over from one that cannot serve.
    """
    has_told_nothing = state.role is ElectionRole.PROMOTING and state.me.store in state.stood_over
    state, down = _step_down(state, now, event.reason)
    release = _release(state._replace(owed=state.stood_over if has_told_nothing else frozenset()), now)
    return ElectionDecision(release.state, (*down, *release.actions))


def _release(state: ElectionState, now: float) -> ElectionDecision:
    """Release the cluster for a master that has resigned, if that is still owed."""
    if (released := owed_release(state)) is None:
        return ElectionDecision(state)
    return _swap(state._replace(patient_until=now + _lease(state)), released, now)


def _on_quiesced(state: ElectionState, event: ClientsQuiesced, now: float) -> ElectionDecision:
    assert state.mastery is not None
    return _on_time_master(state._replace(mastery=state.mastery._replace(quiesced=event.sequence)), TimePassed(), now)


def _ignore(state: ElectionState, event: object, now: float) -> ElectionDecision:
    """An event that is too late for the role."""
    return ElectionDecision(state)


# ---------------------------------------------------------------- the table

_Handler = Callable[[ElectionState, Any, float], ElectionDecision]

_ALWAYS: dict[type, _Handler] = {
    RegisterRead: _on_read,
    ReadFailed: _on_read_failed,
    RegisterChanged: _on_changed,
    SwapAnswered: _on_swapped,
    SwapFailed: _on_swap_failed,
    StoreExamined: _on_examined,
}
_OUTSIDE: dict[type, _Handler] = {**_ALWAYS, TimePassed: _on_time_outside}
_AS_MASTER: dict[type, _Handler] = {
    **_ALWAYS,
    TimePassed: _on_time_master,
    EpochBegun: _on_begun,
    RecordsSynced: _on_synced,
    JournalsReported: _on_journals,
    FollowerJoined: _on_joined,
    FollowerConfirmed: _on_confirmed,
    FollowerLeaving: _on_leaving,
    FollowerLost: _on_lost,
    MasterResigned: _on_resigned,
}
_TABLE: dict[ElectionRole, dict[type, _Handler]] = {
    ElectionRole.FOLLOWING: {
        **_OUTSIDE,
        MasterHeard: _on_heard,
        MasterHandedOver: _on_handed_over,
        PromotionForced: _on_forced,
    },
    ElectionRole.STANDING: _OUTSIDE,
    ElectionRole.BLOCKED: _OUTSIDE,
    ElectionRole.PROMOTING: _AS_MASTER,
    ElectionRole.SERVING: {**_AS_MASTER, ReleaseRequested: _on_release},
    ElectionRole.HANDING_OVER: {**_AS_MASTER, ClientsQuiesced: _on_quiesced},
}
