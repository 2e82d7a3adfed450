"""A member's part in a replicated cluster as one object of JSON, for `status`, metrics and the console.

| field | meaning |
|---|---|
| `cluster`, `epoch`, `minimum` | of the register: the name, the epoch, and how many stores must have what is answered |
| `master` | the name of the member that serves by the register; null: none does |
| `in_sync_count`, `is_in_sync` | stores in sync by the register; true if this member's is one |
| `members` | as the master sees them, the master first, see below; empty: it is not known |
| `successors` | the names of the members that could take over; null on a member that has no answer of the master |
| `left_bytes` | of a standby: about how much of its catch-up is left |
| `grace_active` | true: a master whose lease is over goes on, as all other members in sync promise not to stand |
| `problem` | why it is not in sync, or the election store does not answer, in words; empty: nothing is wrong |

Each of `members` has `name`, `store` (its id), `state` (`master`, `in-sync`, `caught-up`, `catching-up` or
`not-connected`), `is_master`, `is_in_sync` (its store has everything that is confirmed), `may_stand` (false:
`replicate_promote = no`), `is_connected`, `is_live` (it receives changes as they happen), `lag_bytes` that are not sent
to it yet, `lag_seconds` for which it has not confirmed what it was sent, `left_bytes` of its catch-up, `verified_ms`
(when its store was compared with the master's; null: never) and `damaged`, the number of its files that differed then.

Only a running member that is asked, over HTTP, knows these:

| field | meaning |
|---|---|
| `confirm` | of a master: `bounds`, `counts` and `seconds` of the times until batches were confirmed |
| `set_changes`, `promotions` | counts by reason, and by cause |
| `discarded_records` | records of this store that were cut off, dropped or replaced |
| `register_seconds`, `register_age_seconds` | time of the latest call to the election store; since its last answer |
| `lease_left_seconds` | of a master: for how long it may go on without another renewal |
| `last_verified_ms` | when this store was compared: with the master's, or a master's with any follower's |
| `damaged` | the files of this store that were damaged then, such as `kahadb/db-3.log` |

What is not known is null.
"""

from typing import Any

from pybroker.store.members import ReplicaReport

ReplicaFigures = dict[str, Any]

_OF_RUNNING_MEMBER = (
    "confirm",
    "set_changes",
    "promotions",
    "discarded_records",
    "register_seconds",
    "register_age_seconds",
    "lease_left_seconds",
    "last_verified_ms",
    "damaged",
)


def reported(report: ReplicaReport) -> ReplicaFigures:
    """Return what a member has published of its part."""
    return {
        "cluster": report.cluster or None,
        "epoch": report.epoch,
        "minimum": report.minimum,
        "master": report.master or None,
        "in_sync_count": report.in_sync,
        "is_in_sync": report.is_in_sync,
        "members": [each.as_json() for each in report.members],
        "successors": list(report.successors) if report.members else None,
        "left_bytes": report.left_bytes,
        "grace_active": report.grace_active,
        "problem": report.problem,
        **dict.fromkeys(_OF_RUNNING_MEMBER),
    }
