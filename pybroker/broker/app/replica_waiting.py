"""Explains in a sentence what an operator may not expect: why a member does not take over, which settings count.

Source: specification of replication, 6.1.
"""

from collections.abc import Mapping

from pybroker.broker.domain.replica.operations import Journal
from pybroker.locks.election.decisions import DAMAGED_LEASES
from pybroker.locks.election.election_state import ElectionRole, ElectionState, StoreCondition
from pybroker.locks.election.record import DurableEnd, ElectionRecord, ElectionSettings, RecordedState

_NOWHERE = DurableEnd(0, 0)


def waiting_sentence(state: ElectionState, now: float) -> str:
    """Return what a member lacks to become the master of a cluster that has none; empty: it has one, or lacks nothing.

    Args:
        state: the member's, in the election.
        now: seconds of the election's clock.
    """
    record, store = state.record, state.store
    if record is None or store is None or state.role is not ElectionRole.FOLLOWING:
        return ""
    is_overdue = now - state.seen_at >= record.settings.lease_ms / 1000
    if record.state is RecordedState.SERVING and not is_overdue:
        return ""
    whom = others_in_sync(state, record) or "an operator: no other store has it"
    if state.me.store not in record.in_sync:
        if all(store.ends.get(journal, _NOWHERE) >= end for journal, end in record.durable.items()):
            # The register has the end of the latest renewal: what was confirmed after that is known to others alone.
            where = _place(record.durable)
            return f"this store is not in sync, and may lack what was confirmed after {where}: waiting for {whom}"
        return f"this store lacks what was confirmed up to {_place(record.durable)}: waiting for {whom}"
    return _lacking(state, store, record, whom)


def _lacking(state: ElectionState, store: StoreCondition, record: ElectionRecord, whom: str) -> str:
    """Return what a store lacks that is in sync by the register; empty if it lacks nothing."""
    if store.is_damaged and len(record.in_sync) > 1:
        return (
            f"data files of this store differed from the master's when they were compared: waiting for {whom}, at most "
            f"{DAMAGED_LEASES} leases"
        )
    if not store.is_sound and len(record.in_sync) > 1:
        return f"a catch-up of this store was interrupted, so that it is not complete: waiting for {whom}"
    if any(store.ends.get(journal, _NOWHERE) < end for journal, end in record.durable.items()):
        return (
            f"this store ends at {_place(store.ends)}, and lacks what was confirmed up to {_place(record.durable)}, "
            f"as a restored backup does: waiting for {whom}"
        )
    if not state.policy.may_stand:
        return f"replicate_promote is off for this member: waiting for {whom}"
    return ""


def settings_sentence(own: ElectionSettings, record: ElectionRecord) -> str:
    """Return which of a member's own settings do not count, as its cluster has others; empty: none, or not set."""
    usual, shared = ElectionSettings(), record.settings
    found = (
        ("replicate_min", str(own.min_in_sync), str(usual.min_in_sync), str(shared.min_in_sync)),
        ("replicate_lease", f"{own.lease_ms} ms", f"{usual.lease_ms} ms", f"{shared.lease_ms} ms"),
    )
    differing = [
        f"{name} is {mine} here, and {theirs} there"
        for name, mine, default, theirs in found
        if mine not in (default, theirs)
    ]
    if not differing:
        return ""
    return f"the settings of cluster {record.name} count, from when it was created: {'; '.join(differing)}"


def others_in_sync(state: ElectionState, record: ElectionRecord) -> str:
    """Return the other members whose stores have everything: by name where the register has it, else the store's id."""
    others = sorted(record.in_sync - {state.me.store})
    named = [record.master.name if each == record.master.store else f"the member with store {each}" for each in others]
    return " or ".join(named)


def _place(ends: Mapping[str, DurableEnd]) -> str:
    """Return where the journal of messages ends."""
    end = ends.get(Journal.MESSAGES.register_name, _NOWHERE)
    return f"db-{end.file_number}.log, byte {end.offset:,}"
