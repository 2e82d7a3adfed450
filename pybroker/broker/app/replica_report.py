"""A member's part in a replicated cluster, as it publishes it for `status`."""

from collections.abc import Sequence
from typing import Final

from pybroker.broker.app.election_run import lease_clock
from pybroker.broker.app.replication import Replication
from pybroker.broker.domain.replica.reports import MemberProgress
from pybroker.locks.election.decisions import is_graced
from pybroker.locks.election.election_state import ElectionRole, ElectionState
from pybroker.locks.election.record import RecordedState
from pybroker.store.members import ReplicaReport

MEMBERS_SHOWN: Final = 9


def replica_report(replication: Replication) -> ReplicaReport:
    """Return the part of a member, as it knows it now."""
    state = replication.state
    record = state.record
    if record is None:
        problem = replication.register_problem or "the election store was not read yet"
        return ReplicaReport(cluster="", epoch=0, master="", is_in_sync=False, in_sync=0, minimum=0, problem=problem)
    progress = replication.copy_progress
    members = members_known(replication)
    is_in_sync = state.me.store in record.in_sync
    return ReplicaReport(
        cluster=record.name,
        epoch=record.epoch,
        master=record.master.name if record.state is RecordedState.SERVING else "",
        is_in_sync=is_in_sync,
        in_sync=len(record.in_sync),
        minimum=record.settings.min_in_sync,
        left_bytes=0 if progress is None else progress.left_bytes,
        members=tuple(members[:MEMBERS_SHOWN]),
        successors=tuple(each.name for each in members if _is_successor(each)),
        grace_active=is_graced(state, lease_clock()),
        problem=_problem(replication, state, is_in_sync=is_in_sync),
    )


def members_known(replication: Replication) -> Sequence[MemberProgress]:
    """Return the members, the master first, by a master's own view or its last report; none without either.

    A report is up to a second old: who is in sync is as the register has it, which this member reads as well.
    """
    term, progress = replication.elected, replication.copy_progress
    if term is not None:
        return term.cluster().members
    report = None if progress is None or not progress.is_connected else progress.report
    record = replication.state.record
    if report is None or record is None:
        return ()
    return [each._replace(is_in_sync=each.store in record.in_sync) for each in report.members]


def _is_successor(member: MemberProgress) -> bool:
    return member.is_in_sync and member.is_connected and member.may_stand and not member.is_master


def _problem(replication: Replication, state: ElectionState, *, is_in_sync: bool) -> str:
    """Return what keeps a member from being in sync, or the election store from being asked."""
    if state.role is ElectionRole.BLOCKED:
        return "it takes part in nothing: the register is not that of this store's cluster, see the log"
    if replication.register_problem:
        return replication.register_problem
    if replication.waiting:
        return replication.waiting
    if replication.elected is not None:
        names = ", ".join(each.name for each in replication.activity.damaged_here[:MEMBERS_SHOWN])
        return f"{names} of the MASTER's store are damaged: make a standby in sync the master" if names else ""
    if damaged := replication.activity.damaged:
        names = ", ".join(each.name for each in damaged[:MEMBERS_SHOWN])
        return f"{names} differ from the master's: pybroker replica repair fetches them"
    progress = replication.copy_progress
    if progress is None:
        return replication.copy_problem
    return "" if is_in_sync else progress.refusal
