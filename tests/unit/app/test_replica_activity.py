"""Counts of a member in a replicated cluster, and the state of the cluster that its master tells."""

from dataclasses import replace

import pytest

from pybroker.broker.app.replica_activity import ReplicaActivity, cluster_report
from pybroker.broker.domain.replica.operations import Journal
from pybroker.broker.domain.replica.ports import FollowerProgress
from pybroker.broker.domain.replica.reports import MEMBERS_MAX, ComparisonResult, FileDifference, MemberProgress
from pybroker.locks.election.decisions import start
from pybroker.locks.election.election_state import ElectionPolicy
from pybroker.locks.election.record import ElectionRecord, ElectionSettings, MasterEntry, RecordedState
from pybroker.locks.election.register import RegisterState

A = MasterEntry(name="a", store="s-a", run="l-a", replicate="a:1", clients=())
B = MasterEntry(name="b", store="s-b", run="l-b", replicate="b:1", clients=())
RECORD = ElectionRecord(
    cluster="c",
    name="orders",
    epoch=5,
    state=RecordedState.SERVING,
    master=A,
    in_sync=frozenset({"s-a", "s-b"}),
    reserved={},
    durable={},
    settings=ElectionSettings(),
    nonce="n",
)
DAMAGE = FileDifference(Journal.MESSAGES, 3, is_masters=False)


@pytest.mark.parametrize(
    ("former", "cause"),
    [
        (None, "first"),
        (replace(RECORD, epoch=0, state=RecordedState.RELEASED), "first"),
        (replace(RECORD, state=RecordedState.RELEASED), "released"),
        (RECORD, "lease"),
        (replace(RECORD, master=B), "resumed"),
    ],
)
def test_promotions_are_counted_by_cause(former: ElectionRecord | None, cause: str) -> None:
    activity = ReplicaActivity()
    activity.note_record(former)
    activity.note_promotion(replace(RECORD, epoch=6, master=B), "s-b")
    assert {name for name, count in activity.promotions.items() if count} == {cause}


def test_changes_of_the_set_are_counted_by_reason() -> None:
    activity = ReplicaActivity()
    for in_sync in ({"s-a", "s-b"}, {"s-a"}, {"s-a"}, {"s-a", "s-b", "s-c"}):
        activity.note_record(replace(RECORD, in_sync=frozenset(in_sync)))
    activity.note_record(replace(RECORD, epoch=9, master=B, in_sync=frozenset({"s-b"})))
    assert activity.set_changes == {"lost": 1, "caught_up": 2, "promotion": 1}


def test_a_report_names_all_members() -> None:
    activity = ReplicaActivity(names={"s-c": "c", "s-b": "b"})
    activity.note_comparison("s-b", ComparisonResult(3, 100, [DAMAGE, DAMAGE._replace(is_masters=True)]))
    activity.note_comparison("s-c", ComparisonResult(problem="not whole"))
    state = start(A, ElectionPolicy(cluster_name="orders"), 0.0)._replace(known=RegisterState(1, RECORD))
    progress = FollowerProgress(
        "s-d", "d", 1, is_live=False, confirmed=0, left_bytes=70, queued_bytes=5, lag_seconds=0.25
    )
    report = cluster_report(state, [progress], activity)
    master, d, b, c = report.members
    assert report.epoch == 5
    assert (master.name, master.is_master, master.is_in_sync) == ("a", True, True)
    assert d == MemberProgress("d", "s-d", is_connected=True, lag_bytes=5, lag_seconds=0.25, left_bytes=70)
    assert (b.name, b.is_in_sync, b.is_connected, b.damaged) == ("b", True, False, 1)
    assert b.verified_ms > 0
    assert c == MemberProgress("c", "s-c")


def test_own_damage_is_known_until_a_comparison_finds_none() -> None:
    activity = ReplicaActivity()
    activity.note_own_comparison(ComparisonResult(3, 100, [DAMAGE]))
    activity.note_own_comparison(ComparisonResult(problem="the connection has ended"))
    assert activity.damaged == (DAMAGE,)
    activity.note_own_comparison(ComparisonResult(3, 100))
    assert not activity.damaged


def test_damage_of_a_master_is_known_until_a_comparison_finds_none() -> None:
    activity = ReplicaActivity(damaged=(DAMAGE,))
    masters = FileDifference(Journal.MESSAGES, 4, is_masters=True)
    activity.note_comparison("s-b", ComparisonResult(3, 100, [masters]))
    assert activity.damaged_here == (DAMAGE, masters)
    activity.note_comparison("s-b", ComparisonResult(3, 100))
    assert not activity.damaged_here


def test_former_stores_of_a_member_are_no_members() -> None:
    """An inquiry for the election store, and a copy that is made again, come with another store each."""
    activity = ReplicaActivity()
    state = start(A, ElectionPolicy(cluster_name="orders"), 0.0)._replace(known=RegisterState(1, RECORD))
    for store in ("s-b", *(f"s-{number}" for number in range(3))):
        cluster_report(state, [connected(store, "b")], activity)
    assert [each.store for each in cluster_report(state, [], activity).members] == ["s-a", "s-2", "s-b"]
    for number in range(100):
        cluster_report(state, [connected(f"s-{number}", f"n-{number}")], activity)
    assert len(activity.names) <= MEMBERS_MAX + 1
    assert activity.names["s-b"] == "b"


def connected(store: str, name: str) -> FollowerProgress:
    return FollowerProgress(store, name, 1, is_live=True, confirmed=0, left_bytes=0, queued_bytes=0)
