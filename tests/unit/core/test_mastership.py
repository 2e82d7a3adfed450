"""The table of roles: every (role, event) pair, and what must hold in all of them."""

import pytest

from pybroker.broker.core.mastership import Action, Event, Role, decide

EXPECTED = {
    (Role.STANDBY, Event.LOCK_ACQUIRED): Role.PROMOTING,
    (Role.STANDBY, Event.STOP): Role.STOPPED,
    (Role.PROMOTING, Event.SERVING): Role.MASTER,
    (Role.PROMOTING, Event.PROMOTION_FAILED): Role.RELINQUISHING,
    (Role.PROMOTING, Event.LOCK_LOST): Role.RELINQUISHING,
    (Role.PROMOTING, Event.STORE_FAILED): Role.RELINQUISHING,
    (Role.PROMOTING, Event.STOP): Role.RELINQUISHING,
    (Role.MASTER, Event.LOCK_LOST): Role.RELINQUISHING,
    (Role.MASTER, Event.STORE_FAILED): Role.RELINQUISHING,
    (Role.MASTER, Event.STOP): Role.RELINQUISHING,
    (Role.RELINQUISHING, Event.STOP): Role.RELINQUISHING,
    (Role.RELINQUISHING, Event.LOCK_LOST): Role.RELINQUISHING,
    (Role.RELINQUISHING, Event.STORE_FAILED): Role.RELINQUISHING,
    (Role.RELINQUISHING, Event.RELEASED): Role.STOPPED,
}
ALL = [(role, event) for role in Role for event in Event]


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


@pytest.mark.parametrize("event", [Event.LOCK_LOST, Event.STORE_FAILED])
@pytest.mark.parametrize("role", list(Role))
def test_master_without_lock_or_disk_writes_nothing_more(role, event):
    actions = decide(role, event).actions
    assert Action.CLOSE_STORE not in actions
    assert Action.DRAIN_CLIENTS not in actions


def test_only_a_member_that_won_the_lock_becomes_master():
    reached = {(role, event): decide(role, event).role for role, event in ALL}
    assert [pair for pair, role in reached.items() if role is Role.MASTER and pair[0] is not Role.MASTER] == [
        (Role.PROMOTING, Event.SERVING)
    ]
    assert [pair for pair, role in reached.items() if role is Role.PROMOTING and pair[0] is not Role.PROMOTING] == [
        (Role.STANDBY, Event.LOCK_ACQUIRED)
    ]
