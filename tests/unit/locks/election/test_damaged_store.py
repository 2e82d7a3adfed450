"""A member whose data files are damaged, or not complete: when it may take over."""

from dataclasses import replace
from typing import Any

import pytest

from pybroker.locks.election.decisions import DAMAGED_LEASES
from pybroker.locks.election.election_state import ElectionRole, SwapRegister, TimePassed
from tests.unit.locks.election.test_decisions import LEASE, RECORD, SOUND, follower


@pytest.mark.parametrize("lack", [{"is_sound": False}, {"is_damaged": True}])
def test_damaged_store_stands_where_it_is_the_only_one(lack: Any) -> None:
    alone = replace(RECORD, in_sync=frozenset({"s-b"}))
    member = follower(alone, replace(SOUND, **lack)).on(TimePassed(), after=LEASE)
    assert member.role is ElectionRole.STANDING


def test_damaged_store_stands_once_no_sound_one_has_for_long() -> None:
    member = follower(condition=replace(SOUND, is_damaged=True))
    for _ in range(DAMAGED_LEASES - 1):
        assert not member.on(TimePassed(), after=LEASE).has(SwapRegister)
    assert member.on(TimePassed(), after=LEASE).role is ElectionRole.STANDING
