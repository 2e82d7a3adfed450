"""Counts of a member's part in a replicated cluster since its process was started, for metrics and `status`.

The event loop writes; other threads read single values.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pybroker.broker.app.machine import clock
from pybroker.broker.domain.replica.ports import FollowerProgress
from pybroker.broker.domain.replica.reports import (
    MEMBERS_MAX,
    ClusterReport,
    ComparisonResult,
    FileDifference,
    MemberProgress,
)
from pybroker.locks.election.election_state import ElectionState
from pybroker.locks.election.record import DurableEnd, ElectionRecord, RecordedState

SET_CHANGES: Final = ("caught_up", "lost", "promotion")
"""Reasons for which the in-sync set changes: a store was added, one was taken out, another master begins."""

PROMOTION_CAUSES: Final = ("first", "released", "resumed", "lease", "forced")
"""Causes for which a member became master.

A new cluster, a release, its own former run was it, a lease is over; an operator had it become master, though its store
lacked something.
"""


@dataclass(frozen=True, slots=True)
class DatedResult:
    """The result of a comparison, and when it came, in milliseconds since the epoch."""

    at_ms: int
    result: ComparisonResult


@dataclass(slots=True)
class ReplicaActivity:
    """Counts and results that one member has gathered since its process was started.

    Attributes:
        set_changes: changes of the in-sync set that this member has seen, by reason: `SET_CHANGES`.
        promotions: how often it became master, by cause: `PROMOTION_CAUSES`.
        names: the names of members, by store, as they have introduced themselves.
        results: of a master: the latest comparison of each follower's store, by store.
        own_result: of a follower: the latest comparison of its store; None: there was none.
        damaged: of a follower: the files of its store that differed in that comparison; the master's were sound.
        is_graced: of a master: it went on without the election store when that was looked at last.
    """

    set_changes: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(SET_CHANGES, 0)))
    promotions: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(PROMOTION_CAUSES, 0)))
    names: dict[str, str] = field(default_factory=dict[str, str])
    results: dict[str, DatedResult] = field(default_factory=dict[str, DatedResult])
    own_result: DatedResult | None = None
    damaged: tuple[FileDifference, ...] = ()
    is_graced: bool = False
    _newest: ElectionRecord | None = None
    _former: ElectionRecord | None = None

    def note_record(self, record: ElectionRecord | None) -> None:
        """Count what has changed since the register's last record."""
        known = self._newest
        if record is None or record is known:
            return
        self._newest = record
        if known is None or known.epoch > record.epoch:
            return
        if known.epoch < record.epoch:
            self._former = known
            self.set_changes["promotion"] += known.in_sync != record.in_sync
        else:
            self.set_changes["caught_up"] += len(record.in_sync - known.in_sync)
            self.set_changes["lost"] += len(known.in_sync - record.in_sync)

    def note_promotion(self, record: ElectionRecord, store: str) -> None:
        """Count that this member, with this store, is the master of a record."""
        self.note_record(record)
        self.results.clear()  # they are about the store of another master, or about earlier contents of this one
        former = self._former
        if former is None or not former.epoch:
            cause = "first"
        elif _is_forced(former, record, store):
            cause = "forced"
        elif former.state is RecordedState.RELEASED:
            cause = "released"
        else:
            cause = "resumed" if former.master.store == store else "lease"
        self.promotions[cause] += 1

    def note_follower(self, follower: FollowerProgress, in_sync: frozenset[str]) -> None:
        """Keep a connected follower's name, and forget the stores that it had before and that are not in sync.

        A member has another store after it was copied again, and one that asks for the election store has one for that
        alone. Of more members than a report names, the first ones are forgotten. In any thread.
        """
        names = self.names
        others = [store for store in list(names) if store not in in_sync and store != follower.store]
        surplus = others[: max(0, len(names) - MEMBERS_MAX)]
        for store in {*surplus, *(store for store in others if names.get(store) == follower.name)}:
            names.pop(store, None)
            self.results.pop(store, None)
        names[follower.store] = follower.name

    @property
    def damaged_here(self) -> tuple[FileDifference, ...]:
        """The damaged files of a master's own store: found by its comparisons, or while it was a follower."""
        found = {each for dated in list(self.results.values()) for each in dated.result.differences if each.is_masters}
        return (*self.damaged, *sorted(found))

    def note_comparison(self, store: str, result: ComparisonResult) -> None:
        """Keep the result of a comparison with a follower's store."""
        if not result.problem:
            self.results[store] = DatedResult(clock(), result)
            if not any(each.is_masters for each in result.differences):
                self.damaged = ()

    def note_own_comparison(self, result: ComparisonResult) -> None:
        """Keep the result of a comparison of the own store."""
        if not result.problem:
            self.own_result = DatedResult(clock(), result)
            self.damaged = tuple(each for each in result.differences if not each.is_masters)


def _is_forced(former: ElectionRecord, record: ElectionRecord, store: str) -> bool:
    """Return True if a promotion was an operator's: the store was not in sync, or less is durable than before."""
    is_less = any(record.durable.get(journal, DurableEnd(0, 0)) < end for journal, end in former.durable.items())
    return store not in former.in_sync or is_less


def cluster_report(
    state: ElectionState, followers: Iterable[FollowerProgress], activity: ReplicaActivity
) -> ClusterReport:
    """Return the state of the cluster, as its master sees it."""
    record, me = state.record, state.me
    in_sync = frozenset[str]() if record is None else record.in_sync
    members = [MemberProgress(me.name, me.store, is_master=True, is_in_sync=True, is_connected=True, is_live=True)]
    for each in followers:
        activity.note_follower(each, in_sync)
        members.append(
            MemberProgress(
                name=each.name,
                store=each.store,
                is_in_sync=each.store in in_sync,
                may_stand=each.may_stand,
                is_connected=True,
                is_live=each.is_live,
                lag_bytes=each.queued_bytes,
                lag_seconds=round(each.lag_seconds, 3),
                left_bytes=0 if each.is_live else each.left_bytes,
            )
        )
    shown = {each.store for each in members}
    members += [
        MemberProgress(activity.names.get(store, store), store, is_in_sync=store in in_sync)
        for store in sorted(in_sync | activity.names.keys())
        if store not in shown
    ]
    return ClusterReport(0 if record is None else record.epoch, [_with_result(each, activity) for each in members])


def _with_result(member: MemberProgress, activity: ReplicaActivity) -> MemberProgress:
    found = activity.results.get(member.store)
    if found is None:
        return member
    damaged = sum(not each.is_masters for each in found.result.differences)
    return member._replace(verified_ms=found.at_ms, damaged=damaged)
