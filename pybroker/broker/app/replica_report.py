"""A member's part in a replicated cluster, in words and numbers, for `status`."""

from itertools import islice
from typing import Final

from pybroker.broker.app.replication import Replication
from pybroker.broker.domain.replica.ports import FollowerProgress
from pybroker.locks.election.election_state import ElectionRole, ElectionState
from pybroker.locks.election.record import RecordedState
from pybroker.store.members import ReplicaReport

FOLLOWERS_SHOWN: Final = 8


def replica_report(replication: Replication) -> ReplicaReport:
    """Return the part of a member, as it knows it now."""
    state = replication.state
    record = state.record
    if record is None:
        problem = replication.register_problem or "the election store was not read yet"
        return ReplicaReport(cluster="", epoch=0, master="", is_in_sync=False, in_sync=0, minimum=0, problem=problem)
    term, progress = replication.elected, replication.copy_progress
    followers = () if term is None else tuple(islice(term.server.progress(), FOLLOWERS_SHOWN))
    is_in_sync = state.me.store in record.in_sync
    return ReplicaReport(
        cluster=record.name,
        epoch=record.epoch,
        master=record.master.name if record.state is RecordedState.SERVING else "",
        is_in_sync=is_in_sync,
        in_sync=len(record.in_sync),
        minimum=record.settings.min_in_sync,
        left_bytes=0 if progress is None else progress.left_bytes,
        followers=tuple(_described(each, is_in_sync=each.store in record.in_sync) for each in followers),
        successors=tuple(each.name for each in followers if each.store in record.in_sync),
        problem=_problem(replication, state, is_in_sync=is_in_sync),
    )


def _described(follower: FollowerProgress, *, is_in_sync: bool) -> str:
    if is_in_sync:
        return f"{follower.name} in sync, {follower.queued_bytes:,} bytes to be sent"
    if follower.is_live:
        return f"{follower.name} has caught up"
    return f"{follower.name} catches up, {follower.left_bytes:,} bytes left; NOT a candidate"


def _problem(replication: Replication, state: ElectionState, *, is_in_sync: bool) -> str:
    """Return what keeps a member from being in sync, or the election store from being asked."""
    if state.role is ElectionRole.BLOCKED:
        return "it takes part in nothing: the register is not that of this store's cluster, see the log"
    if replication.register_problem:
        return replication.register_problem
    if replication.waiting:
        return replication.waiting
    progress = replication.copy_progress
    if is_in_sync or progress is None:
        return ""
    return progress.refusal
