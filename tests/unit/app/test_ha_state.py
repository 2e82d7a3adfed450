"""The state of high availability as one object of JSON, for each kind of store."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.app import ha_state as module
from pybroker.broker.app.database_status import DatabaseMember, DatabaseStatus
from pybroker.broker.app.ha_state import HaState, ha_state, of_database
from pybroker.broker.app.machine import clock
from pybroker.broker.domain.role import Role
from pybroker.locks.file import FileLock
from pybroker.store.member_history import HISTORY_MAX, HistoryFile
from pybroker.store.members import Followed, Load, MemberFile, MemberRecord, PublishedEnd, StoreIdentity

IDENTITY = StoreIdentity(broker_id="ID:a", journal_inode=1)


def record(name: str, role: Role, **fields: Any) -> MemberRecord:
    now_ms = clock()
    known: dict[str, Any] = {"since_ms": 5, "started_ms": 4, "updated_ms": now_ms, "lock_kind": "file", "checked_ms": 1}
    return MemberRecord(name=name, role=role, pid=1, host="h", version="1", **(known | fields))


MASTER = record(
    "a",
    Role.MASTER,
    epoch=3,
    listeners=("stomp://h:61613",),
    journal_end=PublishedEnd(file_id=2, offset=500),
    lock_since_ms=10,
    lock_confirmed_ms=20,
    clean_ms=7,
    identity=IDENTITY,
    load=Load(connections=1, waiting=0, in_flight=0, is_full=False, reconnections=4),
)
STANDBY = record("b", Role.STANDBY, followed=Followed(file_id=2, offset=100, at_ms=0, messages=9), clean_ms=8)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "kahadb").mkdir()
    return tmp_path


def live(stack: ExitStack, store: Path, *members: MemberRecord) -> None:
    """Have members live in a store whose lock is held."""
    for member in members:
        file = MemberFile.claim(store / "members", member.name)
        stack.callback(file.close)
        path = str(store / "kahadb" / "lock")
        file.publish(replace(member, updated_ms=member.updated_ms or clock(), lock=path))
    lock = FileLock(store / "kahadb" / "lock", clock=clock)
    assert lock.try_acquire()
    stack.callback(lock.release)


def read(store: Path, own: MemberRecord | None = None) -> HaState:
    found = ha_state(str(store), own)
    assert json.loads(json.dumps(found)) == found
    return found


def test_a_pair_that_is_well(stack: ExitStack, store: Path) -> None:
    live(stack, store, replace(MASTER, updated_ms=0, management="http://h:8161"), replace(STANDBY, updated_ms=0))
    found = read(store)
    assert found == found | {
        "store": str(store),
        "store_kind": "directory",
        "state": "healthy",
        "reasons": [],
        "last_clean_check_ms": 8,
        "name": None,
        "role": None,
        "master": "a",
        "lock": {
            "kind": "file",
            "path": str(store / "kahadb" / "lock"),
            "is_held": True,
            "holder": "a",
            "holder_pid": None,
            "held_since_ms": 10,
            "confirmed_ms": 20,
        },
        "listeners": ["stomp://h:61613"],
        "reconnections": 4,
        "promotions": [],
        "history": [],
    }
    assert found["store_identity"]["broker_id"] == "ID:a"
    assert found["disk_free_bytes"] > 0
    master, standby = found["members"]
    assert master == master | {"name": "a", "role": "MASTER", "is_alive": True, "is_silent": False, "epoch": 3}
    assert master["journal_end"] == {"file_id": 2, "offset": 500}
    assert master["lag_bytes"] is None
    assert (master["management"], standby["management"]) == ("http://h:8161", None)
    assert standby == standby | {
        "name": "b",
        "lag_bytes": 400,
        "standby_ready": True,
        "followed": {"file_id": 2, "offset": 100},
    }
    assert standby["lag_seconds"] > 0
    assert len(standby["settings_digest"]) == 16
    assert standby["settings_digest"] == master["settings_digest"]


def test_the_state_has_the_described_fields_and_no_others(stack: ExitStack, store: Path) -> None:
    live(stack, store, MASTER, STANDBY)
    found = read(store)
    described = module.__doc__ or ""
    names = {*found, *found["lock"], *found["members"][0], *found["store_identity"]}
    assert {name for name in names if f"`{name}`" not in described} == set()
    assert found.keys() == of_database(DATABASE).keys() == ha_state("memory:", MASTER).keys()
    assert found["members"][0].keys() == of_database(DATABASE)["members"][0].keys()


@pytest.mark.parametrize(
    ("change", "is_ready"),
    [
        ({"warnings": ("not the same here and on the master a: sync",), "kinds": ("settings",)}, True),
        ({"obstacles": ("its port is taken",), "kinds": ("port",)}, False),
        ({"obstacle": "its port is taken"}, False),
        ({"checked_ms": 0}, False),
    ],
)
def test_a_standby_is_ready_unless_it_could_not_serve(
    stack: ExitStack, store: Path, change: dict[str, Any], is_ready: bool
) -> None:
    live(stack, store, MASTER, replace(STANDBY, updated_ms=clock(), **change))
    assert [each["standby_ready"] for each in read(store)["members"]] == [None, is_ready]


def test_reasons_are_those_of_living_members_and_silence(stack: ExitStack, store: Path) -> None:
    wrong = replace(
        STANDBY, updated_ms=0, obstacles=("its port is taken",), warnings=("its clock is off",), kinds=("port", "clock")
    )
    live(stack, store, replace(MASTER, updated_ms=clock() - 12_000, warnings=("stale",)), wrong)
    found = read(store)
    assert found["state"] == "degraded"
    assert [each["standby_ready"] for each in found["members"]] == [None, False]
    assert found["reasons"] == [
        {"member": "b", "is_obstacle": True, "kind": "port", "text": "its port is taken"},
        {"member": "b", "is_obstacle": False, "kind": "clock", "text": "its clock is off"},
        {"member": "a", "is_obstacle": True, "kind": "silent", "text": "a has been silent for 12 s"},
    ]


def test_a_member_that_is_asked_shows_itself_as_it_is_now(stack: ExitStack, store: Path) -> None:
    live(stack, store, MASTER, STANDBY)
    found = read(store, replace(STANDBY, warnings=("new",)))
    assert found == found | {"name": "b", "role": "STANDBY", "since_ms": 5, "epoch": 0, "state": "degraded"}


def test_an_activemq_as_master(stack: ExitStack, store: Path) -> None:
    live(stack, store, replace(STANDBY, updated_ms=0))
    found = read(store)
    assert (found["master"], found["lock"]["holder"]) == (None, "another process")
    assert found["members"][0]["lag_bytes"] is None
    assert found["listeners"] == []


def test_an_empty_directory_and_an_unreadable_entry(store: Path) -> None:
    found = read(store)
    assert (found["state"], found["members"], found["lock"]["is_held"]) == ("unknown", [], False)
    assert found["lock"]["holder"] is None
    (store / "members").mkdir()
    (store / "members" / "x.json").write_text("{}")
    (entry,) = read(store)["members"]
    assert (entry["is_alive"], entry["problem"]) == (False, "damaged: wrong checksum")


def test_history_of_all_members_is_merged_and_bounded(stack: ExitStack, store: Path) -> None:
    live(stack, store, MASTER, STANDBY)
    for name, first in (("a", 1), ("b", 2)):
        history = HistoryFile(store / "members", name)
        for number in range(150):
            kind = "promotion" if number == 149 else "role"
            history.append({"at_ms": first + 2 * number, "kind": kind})
    (store / "members" / "c.history").mkdir()
    found = read(store)
    assert len(found["history"]) == HISTORY_MAX
    assert [(each["at_ms"], each["member"]) for each in found["history"][:3]] == [(300, "b"), (299, "a"), (298, "b")]
    assert [each["member"] for each in found["promotions"]] == ["b", "a"]


# ---------------------------------------------------------------- other stores

DATABASE = DatabaseStatus(
    store="db:5432/mq",
    holder="a",
    epoch=5,
    members=[
        DatabaseMember(
            name="a",
            role="MASTER",
            host="1.2.3.4",
            since_ms=5,
            listeners=("stomp://h:1",),
            management="http://h:8161",
        ),
        DatabaseMember(name="b", role="STANDBY", host="1.2.3.5", since_ms=6, obstacle="stomp: taken"),
    ],
    waiting={},
)


def test_a_database_as_its_server_shows_it() -> None:
    found = of_database(DATABASE)
    assert found == found | {"store_kind": "database", "master": "a", "state": "degraded", "listeners": ["stomp://h:1"]}
    assert found["lock"] == found["lock"] | {
        "path": "activemq_lock in db:5432/mq",
        "holder": "a",
        "held_since_ms": None,
    }
    assert found["reasons"] == [{"member": "b", "is_obstacle": True, "kind": "other", "text": "stomp: taken"}]
    assert found["disk_free_bytes"] is None
    assert [each["management"] for each in found["members"]] == ["http://h:8161", None]


def test_a_master_on_a_database_knows_more_of_itself() -> None:
    own = replace(MASTER, lock_kind="postgres-row")
    found = of_database(DATABASE, own, [{"at_ms": 1, "kind": "promotion"}])
    assert found["lock"] == found["lock"] | {"kind": "postgres-row", "held_since_ms": 10, "confirmed_ms": 20}
    assert [each["name"] for each in found["members"]] == ["a", "b"]
    assert found["members"][0]["version"] == "1"
    assert found["promotions"] == [{"at_ms": 1, "kind": "promotion", "member": "a"}]
    assert (found["name"], found["role"], found["epoch"], found["reconnections"]) == ("a", "MASTER", 5, 4)


def test_a_store_in_memory_has_one_member() -> None:
    found = ha_state("memory:", MASTER, [{"at_ms": 1, "kind": "role"}])
    assert (found["master"], found["lock"]["holder"], len(found["members"])) == ("a", "a", 1)
    assert found["history"] == [{"at_ms": 1, "kind": "role", "member": "a"}]
    assert ha_state("memory:")["state"] == "unknown"
