"""A member's part in a replicated cluster as one object of JSON, for metrics and the console.

| field | meaning |
|---|---|
| `cluster`, `epoch`, `minimum` | of the register: the name, the epoch, and how many stores must have what is answered |
| `in_sync_count`, `is_in_sync` | stores in sync by the register; true if this member's is one |
| `members` | as the master sees them, the master first: the fields of `MemberProgress` |
| `successors` | the names of the members that could take over; null on a member that has no answer of the master |
| `left_bytes` | of a standby: about how much of its catch-up is left |
| `confirm` | of a master: `bounds`, `counts` and `seconds` of the times until batches were confirmed |
| `set_changes`, `promotions` | counts by reason, and by cause |
| `discarded_records` | records of this store that were cut off, dropped or replaced |
| `register_seconds`, `register_age_seconds` | time of the latest call to the election store; since its last answer |
| `lease_left_seconds` | of a master: for how long it may go on without another renewal |
| `grace_active` | true: a master whose lease is over goes on, as all other members in sync promise not to stand |
| `last_verified_ms` | when this store was compared: with the master's, or a master's with any follower's |
| `damaged` | the files of this store that were damaged then, such as `kahadb/db-3.log` |
| `problem` | as `status` shows it |

What is not known is null.
"""

import time
from typing import Any

from pybroker.broker.app.election_run import lease_clock
from pybroker.broker.app.replica_report import members_known, replica_report
from pybroker.broker.app.replication import Replication
from pybroker.locks.election.decisions import is_graced
from pybroker.store.journal.activity import SYNC_BOUNDS

ReplicaFigures = dict[str, Any]


def replica_figures(replication: Replication) -> ReplicaFigures:
    """Return the figures of a member, as it knows them now. In any thread."""
    state, activity, term = replication.state, replication.activity, replication.elected
    report = replica_report(replication)
    known = members_known(replication)
    mastery = state.mastery
    own, calls = activity.own_result, replication.calls
    dated = list(activity.results.values()) if term is not None else [own] if own else []
    return {
        "cluster": report.cluster,
        "epoch": report.epoch,
        "minimum": report.minimum,
        "in_sync_count": report.in_sync,
        "is_in_sync": report.is_in_sync,
        "members": [each._asdict() for each in known],
        "successors": list(report.successors) if known else None,
        "left_bytes": report.left_bytes,
        "confirm": None
        if term is None
        else {
            "bounds": list(SYNC_BOUNDS),
            "counts": list(term.confirm_times.sync_counts),
            "seconds": term.confirm_times.sync_seconds,
        },
        "set_changes": dict(activity.set_changes),
        "promotions": dict(activity.promotions),
        "discarded_records": replication.discarded_records,
        "register_seconds": calls.call_seconds,
        "register_age_seconds": None if calls.answered_at is None else max(0.0, time.monotonic() - calls.answered_at),
        "lease_left_seconds": None if mastery is None else max(0.0, mastery.deadline - lease_clock()),
        "grace_active": is_graced(state, lease_clock()),
        "last_verified_ms": max((each.at_ms for each in dated), default=None),
        "damaged": [each.name for each in (activity.damaged if term is None else activity.damaged_here)],
        "problem": report.problem,
    }
