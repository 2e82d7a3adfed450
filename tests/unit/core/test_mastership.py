"""The table of roles: every (role, event) pair, and what must hold in all of them."""

import pytest

from pybroker.broker.core.mastership import Action, RoleEvent, decide
from pybroker.broker.domain.role import Role

EXPECTED = {
    (Role.STANDBY, RoleEvent.LOCK_ACQUIRED): Role.PROMOTING,
    (Role.STANDBY, RoleEvent.STOP): Role.STOPPED,
    (Role.PROMOTING, RoleEvent.SERVING): Role.MASTER,
    (Role.PROMOTING, RoleEvent.PROMOTION_FAILED): Role.RELINQUISHING,
    (Role.PROMOTING, RoleEvent.LOCK_LOST): Role.RELINQUISHING,
    (Role.PROMOTING, RoleEvent.STORE_FAILED): Role.RELINQUISHING,
    (Role.PROMOTING, RoleEvent.STOP): Role.RELINQUISHING,
    (Role.MASTER, RoleEvent.LOCK_LOST): Role.RELINQUISHING,
    (Role.MASTER, RoleEvent.STORE_FAILED): Role.RELINQUISHING,
    (Role.MASTER, RoleEvent.STOP): Role.RELINQUISHING,
    (Role.MASTER, RoleEvent.STEP_DOWN): Role.RELINQUISHING,
    (Role.RELINQUISHING, RoleEvent.STOP): Role.RELINQUISHING,
    (Role.RELINQUISHING, RoleEvent.LOCK_LOST): Role.RELINQUISHING,
    (Role.RELINQUISHING, RoleEvent.STORE_FAILED): Role.RELINQUISHING,
    (Role.RELINQUISHING, RoleEvent.RELEASED): Role.STOPPED,
}
ALL = [(role, event) for role in Role for event in RoleEvent]


@pytest.mark.parametrize(("role", "event"), ALL)
def test_every_pair(role, event):
    decision = decide(role, event)
    assert decision.role is EXPECTED.get((role, event), role)
    changes = (role, event) in EXPECTED
    assert bool(decision.sentence) is changes
    if not changes:
        assert decision.actions == ()


@pytest.mark.parametrize(("role", "event"), ALL)
def test_clients_are_cut_off_before_the_lock_is_released(role, event):
    actions = decide(role, event).actions
    if Action.RELEASE_LOCK in actions:
        assert actions[0] in (Action.ABORT_CLIENTS, Action.DRAIN_CLIENTS)
        assert actions[-1] is Action.RELEASE_LOCK


@pytest.mark.parametrize("event", [RoleEvent.LOCK_LOST, RoleEvent.STORE_FAILED])
@pytest.mark.parametrize("role", list(Role))
def test_master_without_lock_or_disk_writes_nothing_more(role, event):
    actions = decide(role, event).actions
    assert Action.CLOSE_STORE not in actions
    assert Action.DRAIN_CLIENTS not in actions


def test_only_a_member_that_won_the_lock_becomes_master():
    reached = {(role, event): decide(role, event).role for role, event in ALL}
    assert [pair for pair, role in reached.items() if role is Role.MASTER and pair[0] is not Role.MASTER] == [
        (Role.PROMOTING, RoleEvent.SERVING)
    ]
    assert [pair for pair, role in reached.items() if role is Role.PROMOTING and pair[0] is not Role.PROMOTING] == [
        (Role.STANDBY, RoleEvent.LOCK_ACQUIRED)
    ]
