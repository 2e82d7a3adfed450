"""The release that a master owes which has resigned: it is asked for until the register shows it. Pure.

Without it others could not take over: a master that cannot open its store has taken them out of the in-sync set.
"""

from dataclasses import replace

from pybroker.locks.election.election_state import ElectionState
from pybroker.locks.election.record import ElectionRecord, RecordedState


def owed_release(state: ElectionState) -> ElectionRecord | None:
    """Return the record to ask for; None: nothing is owed, or a swap is under way.

    That may come true later, and a second one beside it would have the same revision.
    """
    record = state.record
    if record is None or state.owed is None or state.is_swapping or not is_own_term(state):
        return None
    return replace(record, state=RecordedState.RELEASED, in_sync=record.in_sync | state.owed, successor="")


def is_own_term(state: ElectionState) -> bool:
    """Return True if this run is the master by the register."""
    record = state.record
    return record is not None and record.master.run == state.me.run and record.state is RecordedState.SERVING
