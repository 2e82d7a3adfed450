"""A replicated cluster as `pybroker status` shows it: in words, and as JSON for scripts."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pybroker.broker.app import status
from pybroker.broker.app.ha_state import of_directory
from pybroker.broker.app.replica_report import members_known
from pybroker.broker.domain.replica.reports import ClusterReport, MemberProgress
from pybroker.broker.domain.role import Role
from pybroker.store.members import MemberFile, MemberRecord, ReplicaReport, read_members

MEMBERS = (
    MemberProgress("a", "s-a", is_master=True, is_in_sync=True, is_connected=True, is_live=True),
    MemberProgress("b", "s-b", is_in_sync=True, is_connected=True, is_live=True, lag_bytes=1_234, lag_seconds=0.25),
    MemberProgress("c", "s-c", is_connected=True, is_live=True, verified_ms=5, damaged=1),
    MemberProgress("d", "s-d", is_connected=True, left_bytes=70_000),
    MemberProgress("e", "s-e", is_in_sync=True),
    MemberProgress("f", "s-f"),
)
REPORT = ReplicaReport(
    cluster="orders",
    epoch=3,
    master="a",
    is_in_sync=True,
    in_sync=3,
    minimum=2,
    members=MEMBERS,
    successors=("b",),
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "kahadb").mkdir()
    return tmp_path


def publish(store: Path, role: Role, report: ReplicaReport) -> MemberFile:
    file = MemberFile.claim(store / "members", "a")
    file.publish(
        MemberRecord(
            name="a",
            role=role,
            pid=1,
            host="h",
            version="0",
            since_ms=1,
            started_ms=1,
            updated_ms=1,
            replica=report,
        )
    )
    return file


def shown(store: Path, role: Role = Role.MASTER, report: ReplicaReport = REPORT) -> tuple[list[str], dict[str, Any]]:
    """Return what `pybroker status` prints, without and with `--json`."""
    file = publish(store, role, report)
    found = status.read(str(store))
    state = found.as_json() | {"ha": of_directory(found)}
    file.close()
    return status.describe(found), json.loads(json.dumps(state))


def test_report_that_is_published_is_read_back(store: Path) -> None:
    file = publish(store, Role.MASTER, REPORT)
    found = read_members(store / "members")[0].member
    file.close()
    assert found is not None
    assert found.replica == REPORT


def test_members_are_objects_for_scripts(store: Path) -> None:
    _, state = shown(store)
    replica = state["ha"]["replica"]
    fields = ("name", "state", "is_in_sync", "lag_bytes", "lag_seconds", "left_bytes", "verified_ms")
    assert [tuple(each[field] for field in fields) for each in replica["members"]] == [
        ("a", "master", True, 0, 0.0, 0, None),
        ("b", "in-sync", True, 1_234, 0.25, 0, None),
        ("c", "caught-up", False, 0, 0.0, 0, 5),
        ("d", "catching-up", False, 0, 0.0, 70_000, None),
        ("e", "not-connected", True, None, None, None, None),
        ("f", "not-connected", False, None, None, None, None),
    ]
    assert {key: replica[key] for key in ("cluster", "master", "epoch", "minimum", "in_sync_count", "successors")} == {
        "cluster": "orders",
        "master": "a",
        "epoch": 3,
        "minimum": 2,
        "in_sync_count": 3,
        "successors": ["b"],
    }
    assert state["members"][0]["replica"]["members"] == replica["members"]


def test_members_are_sentences_for_people(store: Path) -> None:
    lines, _ = shown(store)
    assert lines[1:8] == [
        "  replicated: cluster orders, epoch 3, confirmed on 3 disks, at least 2",
        "    b in sync, 1,234 bytes to be sent, 0.2 s behind",
        "    c has caught up, 1 DAMAGED FILE",
        "    d catches up, 70,000 bytes left; NOT a candidate",
        "    e is not connected",
        "    f is not connected; NOT a candidate",
        "    if this master fails, its place is taken by: b",
    ]


def test_standby_shows_who_is_in_sync_by_its_register() -> None:
    """By the master's report, which is a second old, it catches up; by the register it is in sync."""
    reported = ClusterReport(3, [MEMBERS[0], MEMBERS[3], MEMBERS[1]])
    replication: Any = SimpleNamespace(
        elected=None,
        copy_progress=SimpleNamespace(is_connected=True, report=reported),
        state=SimpleNamespace(record=SimpleNamespace(in_sync=frozenset({"s-a", "s-d"}))),
    )
    assert [(each.name, each.is_in_sync) for each in members_known(replication)] == [
        ("a", True),
        ("d", True),
        ("b", False),
    ]


def test_what_is_not_known_is_null(store: Path) -> None:
    report = ReplicaReport(
        cluster="", epoch=0, master="", is_in_sync=False, in_sync=0, minimum=0, problem="etcd://h/orders: refused"
    )
    lines, state = shown(store, Role.STANDBY, report)
    assert "  replicated: etcd://h/orders: refused" in lines
    replica = state["ha"]["replica"]
    assert [replica[key] for key in ("cluster", "master", "successors", "damaged")] == [None] * 4
    assert replica["members"] == []
    assert replica["problem"] == "etcd://h/orders: refused"


def test_store_without_a_living_member_has_none(store: Path) -> None:
    shown(store)
    found = status.read(str(store))
    assert of_directory(found)["replica"] is None
