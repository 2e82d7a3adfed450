"""Broken variants of an election, each of which the scenario `election` must catch.

Those of decisions break the functions that `decide` calls; those of the register and of the stream break the model.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from pybroker.locks.election import decisions, guardian_process
from pybroker.locks.election.election_state import (
    ElectionDecision,
    ElectionEvent,
    ElectionRole,
    ElectionState,
    FollowerConfirmed,
    FollowerState,
    MasterHeard,
    Mastery,
    StoreCondition,
    SwapFailed,
)
from pybroker.locks.election.record import KAHADB, ElectionRecord
from tests.simulation.election_model import ElectionWorld, Entry, SimGuardian, SimMember

_decide = decisions.decide
_released = guardian_process.released
_freeze = SimMember.freeze


def _confirmable_without_absent(state: ElectionState, mastery: Mastery) -> int:
    others = decisions.required_stores(state) - {state.me.store}
    return min([mastery.synced, *(mastery.followers[each].confirmed for each in others if each in mastery.followers)])


def _required_as_asked(state: ElectionState) -> frozenset[str]:
    assert state.record is not None
    return state.requested[-1] if state.requested else state.record.in_sync


def _required_as_known(state: ElectionState) -> frozenset[str]:
    assert state.record is not None
    return state.record.in_sync


def _takes_anything(self: SimMember, connection: int, epoch: int) -> bool:
    return self.state.role is ElectionRole.FOLLOWING


def _always_tells(state: ElectionState, now: float) -> bool:
    return state.mastery is not None


def _anybody(state: ElectionState, record: ElectionRecord) -> bool:
    return True


def _early_sync(self: SimMember, then: Callable[..., None], *arguments: Any) -> None:
    world = self.world
    world.at(world.now + world.random.choice(world.plan.disk), self._on_disk, self.version, len(self.log))
    world.at(world.now, then, *arguments, member=self, source=-2)


def _common_length(self: SimMember, files: Any) -> int:
    return min(len(files), len(self.log))


def _own_numbers(store: StoreCondition, record: ElectionRecord) -> dict[str, int]:
    return {KAHADB: max(store.highest[KAHADB], record.epoch) + 1}


def _from_answer(state: ElectionState, sent_at: float, now: float) -> float:
    return now + decisions.counted_seconds(state) / decisions.COUNTED_SHARE


def _at_once(mastery: Mastery, follower: FollowerState) -> bool:
    return True


def _expected(self: ElectionWorld, revision: int) -> bool:
    return True


def _old_id(self: SimMember) -> str:
    return f"s-{self.name}-0"


def _own_disk(state: ElectionState, mastery: Mastery) -> int:
    return mastery.synced


def _no_after_time_out(state: ElectionState, event: ElectionEvent, now: float) -> ElectionDecision:
    if isinstance(event, SwapFailed):
        role = ElectionRole.FOLLOWING if state.role is ElectionRole.STANDING else state.role
        state = state._replace(attempts={}, requested=(), role=role)
    return _decide(state, event, now)


def _stale_keepalive(state: ElectionState, event: ElectionEvent, now: float) -> ElectionDecision:
    if isinstance(event, SwapFailed) and state.mastery is not None:
        until = now + decisions.counted_seconds(state)
        state = state._replace(mastery=state.mastery._replace(deadline=until))
    return _decide(state, event, now)


def _promise_not_kept(state: ElectionState, event: ElectionEvent, now: float) -> ElectionDecision:
    return ElectionDecision(state) if isinstance(event, MasterHeard) else _decide(state, event, now)


def _promise_assumed(state: ElectionState, event: ElectionEvent, now: float) -> ElectionDecision:
    if isinstance(event, FollowerConfirmed):
        event = event._replace(has_promised=True)
    return _decide(state, event, now)


def _confirmable_below_minimum(state: ElectionState, mastery: Mastery) -> int:
    others = decisions.required_stores(state) - {state.me.store}
    found = [mastery.followers[each].confirmed if each in mastery.followers else 0 for each in others]
    return min([mastery.synced, *found])


def _joined_whenever(
    self: SimMember, connection: int, epoch: int, position: int, entries: list[Entry], sent_at: float
) -> None:
    """Take a batch of any connection and epoch, wherever it says."""
    if self.state.role is ElectionRole.FOLLOWING and self.connection:
        self.log[position : position + len(entries)] = entries
        self.take(connection, epoch, [], sent_at)


def _released_for_any_run(value: str, run: str) -> str:
    return _released(value, json.loads(value)["master"]["life"])


def _freeze_taken_for_an_end(self: SimMember, seconds: float) -> None:
    _freeze(self, seconds)
    if self.state.mastery is not None:
        SimGuardian(self)


ELECTION_VARIANTS: Mapping[str, tuple[str, Any, str, Any]] = {
    "confirms-without-absent": (
        "confirms without a follower that is not connected",
        decisions,
        "confirmable",
        _confirmable_without_absent,
    ),
    "shrinks-when-asked": ("counts a removal when it is asked for", decisions, "required_stores", _required_as_asked),
    "grows-when-swapped": (
        "requires a new member once it knows that the swap succeeded",
        decisions,
        "required_stores",
        _required_as_known,
    ),
    "any-connection": ("takes frames of any connection", SimMember, "takes", _takes_anything),
    "any-epoch": ("writes batches of any epoch wherever they say", SimMember, "on_batch", _joined_whenever),
    "no-own-clock": ("does not look at its own clock", decisions, "may_tell", _always_tells),
    "promotes-anybody": ("promotes a member that is not in sync", decisions, "is_candidate", _anybody),
    "confirms-unsynced": ("confirms what is written and not synced", SimMember, "sync", _early_sync),
    "no-truncation": ("joins with a tail that the master has not", SimMember, "common", _common_length),
    "numbers-reused": ("takes its own highest file number plus one", decisions, "first_files", _own_numbers),
    "lease-from-answer": ("counts on a whole lease from the answer", decisions, "renewal_deadline", _from_answer),
    "no-margin": ("counts on a whole lease, whatever the clocks", decisions, "COUNTED_SHARE", 1.0),
    "joins-too-early": ("takes a follower for in sync before it is", decisions, "has_caught_up", _at_once),
    "blind-write": ("writes the register without comparing", ElectionWorld, "is_expected", _expected),
    "new-disk-old-id": ("keeps the id of a store whose disk was exchanged", SimMember, "new_store_id", _old_id),
    "waits-for-none": ("confirms what is on its own disk", decisions, "confirmable", _own_disk),
    "time-out-is-no": ("takes a swap without answer for one that failed", decisions, "decide", _no_after_time_out),
    "stale-keepalive": ("believes a renewal that no quorum has seen", decisions, "decide", _stale_keepalive),
    "promise-not-kept": ("promises, and stands nevertheless", decisions, "decide", _promise_not_kept),
    "promise-assumed": ("takes each confirmation for a promise", decisions, "decide", _promise_assumed),
    "below-minimum": (
        "confirms with fewer in sync than demanded",
        decisions,
        "confirmable",
        _confirmable_below_minimum,
    ),
    "guardian-of-any-run": (
        "a guardian releases the record of any run",
        guardian_process,
        "released",
        _released_for_any_run,
    ),
    "guardian-guesses": (
        "a guardian takes a frozen master for one that has ended",
        SimMember,
        "freeze",
        _freeze_taken_for_an_end,
    ),
}
"""By name: what is broken, its owner and attribute, and what takes its place."""
