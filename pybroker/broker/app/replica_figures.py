"""A running member's part in a replicated cluster, for metrics and the console: all fields of `replica_json`."""

import time

from pybroker.broker.app.election_run import lease_clock
from pybroker.broker.app.replica_json import ReplicaFigures, reported
from pybroker.broker.app.replica_report import members_known, replica_report
from pybroker.broker.app.replication import Replication
from pybroker.store.journal.activity import SYNC_BOUNDS


def replica_figures(replication: Replication) -> ReplicaFigures:
    """Return the figures of a member, as it knows them now. In any thread."""
    activity, term = replication.activity, replication.elected
    mastery = replication.state.mastery
    own, calls = activity.own_result, replication.calls
    dated = list(activity.results.values()) if term is not None else [own] if own else []
    return reported(replica_report(replication)) | {
        "members": [each.as_json() for each in members_known(replication)],
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
        "last_verified_ms": max((each.at_ms for each in dated), default=None),
        "damaged": [each.name for each in (activity.damaged if term is None else activity.damaged_here)],
    }
