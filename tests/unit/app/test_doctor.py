"""What `pybroker doctor` concludes from what it finds."""

import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.app.config import Config
from pybroker.broker.app.diagnosis import Severity, Verdict
from pybroker.broker.app.doctor import exit_code, judge
from pybroker.broker.app.examination import Facts, Neighbour, examine
from pybroker.broker.app.mounts import Mount, mount_of, parse
from pybroker.broker.app.pair_remedies import REMEDIES
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.role import Role
from pybroker.store.members import Followed, Load, MemberFile, MemberRecord, ReplicaReport
from tests.integration.cluster import free_port

ERROR, WARNING, ADVICE = Severity.ERROR, Severity.WARNING, Severity.ADVICE
FULL = Load(connections=1, waiting=1, in_flight=1, is_full=True, memory_bytes=1, memory_bytes_max=1)


def facts(config: dict[str, Any] | None = None, **found: Any) -> Facts:
    return Facts(config=Config(**({"store": "/mnt/shared/store"} | (config or {}))), host="here", **found)


def nfs(*options: str, kind: str = "nfs4") -> Mount:
    return Mount(Path("/mnt/shared"), kind, "server:/export", frozenset(options))


LOCAL = Mount(Path("/"), "ext4", "/dev/sda1", frozenset(("rw",)))
GOOD_NFS = nfs("rw", "vers=4.2", "hard", "actimeo=1", "local_lock=none")


def member(
    name: str,
    role: Role = Role.STANDBY,
    *,
    host: str = "there",
    age_ms: int = 1000,
    skew_ms: int = 0,
    is_alive: bool = True,
    is_renewed: bool = False,
    **fields: Any,
) -> Neighbour:
    times = {"since_ms": 0, "started_ms": 0, "updated_ms": 1_000_000}
    record = MemberRecord(name=name, role=role, pid=1, host=host, version="1", **(times | fields))
    return Neighbour(record=record, is_alive=is_alive, is_renewed=is_renewed, age_ms=age_ms, skew_ms=skew_ms)


PAIR = (member("a", Role.MASTER, host="here"), member("b"))


def replace_master(**fields: Any) -> Neighbour:
    return replace(PAIR[0], record=replace(PAIR[0].record, **fields))


def found(given: Facts) -> list[tuple[Severity, str]]:
    return [(each.severity, each.check) for each in judge(given)]


def test_a_pair_that_is_well_has_no_findings() -> None:
    settings = {"bind": "0.0.0.0", "openwire_brokers": "tcp://a:61616,tcp://b:61616"}
    given = facts(settings, mount=GOOD_NFS, scheduler_mount=GOOD_NFS, has_locks=True, is_locked=True, members=PAIR)
    assert judge(given) == []
    assert exit_code([]) is Verdict.WELL


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (facts(refusal=ConfigError("no such file", setting="users_file")), (ERROR, "settings")),
        (facts(warnings=["passwords cross the network in clear: set tls"]), (WARNING, "settings")),
        (facts({"store": "memory:"}), (WARNING, "store")),
        (facts(is_new=True), (ADVICE, "store")),
        (facts(missing_tables=["pybroker_epoch"]), (ADVICE, "store")),
        (facts({"sync": "periodic"}), (WARNING, "sync")),
        (facts(files_max=1024), (ERROR, "files")),
        (facts(mount=Mount(Path("/x"), "tmpfs", "tmpfs", frozenset())),
         (ERROR, "file system")),
        (facts(mount=nfs("vers=3", "hard", "actimeo=1", kind="nfs")), (ERROR, "file system")),
        (facts(mount=nfs("vers=4.1", "hard", "actimeo=1", "local_lock=all")), (ERROR, "file system")),
        (facts(mount=nfs("vers=4.1", "hard", "actimeo=1", "nolock")), (ERROR, "file system")),
        (facts(mount=nfs("vers=4.1", "soft", "noac")), (ERROR, "file system")),
        (facts(mount=nfs("vers=4.1", "hard", "acregmax=60")), (ADVICE, "file system")),
        (facts(mount=nfs(kind="ocfs2")), (ERROR, "file system")),
        (facts(mount=nfs("localflock", kind="lustre")), (ERROR, "file system")),
        (facts(mount=nfs("nobrl", kind="cifs")), (ERROR, "file system")),
        (facts(mount=nfs(kind="fuse.glusterfs")), (WARNING, "file system")),
        (facts(has_locks=False, lock_problem="refused"), (ERROR, "locks")),
        (facts(lock_problem="no file can be made"), (ERROR, "store")),
        (facts(members=[member("b", is_alive=False, is_renewed=True)]), (ERROR, "locks")),
        (facts(mount=GOOD_NFS, scheduler_mount=LOCAL), (ERROR, "scheduler")),
        (facts(mount=LOCAL, scheduler_mount=GOOD_NFS), (ADVICE, "scheduler")),
        (facts(free_bytes=1 << 20), (ERROR, "disk")),
        (facts(free_bytes=100 << 20), (WARNING, "disk")),
        (facts({"store_limit": "10G"}, free_bytes=1 << 30), (ADVICE, "disk")),
        (facts(skew_ms=-5000), (WARNING, "clocks")),
        (facts(is_locked=True), (ADVICE, "master")),
    ],
)  # fmt: skip
def test_each_finding_of_a_machine(given: Facts, expected: tuple[Severity, str]) -> None:
    assert found(given) == [expected]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([member("a"), member("b", host="here")], (ERROR, "master")),
        ([member("a", Role.MASTER), member("b", Role.MASTER), member("c", host="here")], (ERROR, "master")),
        ([member("a", Role.MASTER)], (WARNING, "standby")),
        ([member("a", Role.MASTER), member("b")], (ADVICE, "standby")),
        ([PAIR[0], member("b", age_ms=60_000)], (ERROR, "members")),
        ([PAIR[0], member("b", obstacle="stomp: port taken")], (ERROR, "standby")),
        ([PAIR[0], member("b", obstacles=("taken",), kinds=("port",))], (ERROR, "standby")),
        ([PAIR[0], member("b", warnings=("ahead",), kinds=("clock",))], (WARNING, "pair")),
        ([replace_master(warnings=("a and z",), kinds=("masters",)), PAIR[1]], (ERROR, "pair")),
        ([PAIR[0], member("b", followed=Followed(file_id=1, offset=1, at_ms=900_000, messages=1))],
         (WARNING, "standby")),
        ([PAIR[0], member("b", skew_ms=3000)], (WARNING, "clocks")),
        ([PAIR[0], replace(PAIR[1], record=replace(PAIR[1].record, version="2"))],
         (ADVICE, "versions")),
        ([member("a", Role.MASTER, host="here", load=FULL), PAIR[1]], (ERROR, "disk")),
    ],
)  # fmt: skip
def test_each_finding_of_a_pair(members: list[Neighbour], expected: tuple[Severity, str]) -> None:
    settings = {"bind": "0.0.0.0", "openwire_brokers": "tcp://a:61616,tcp://b:61616"}
    assert found(facts(settings, members=members)) == [expected]


@pytest.mark.parametrize("role", [Role.MASTER, Role.STANDBY])
@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ({}, []),
        ({"in_sync": 1}, [(WARNING, "replication")]),
        ({"minimum": 3}, [(ERROR, "replication")]),
        ({"is_in_sync": False}, [(WARNING, "replication")]),
        ({"master": ""}, [(ERROR, "replication")]),
        ({"master": "", "problem": "this store lacks"}, [(ERROR, "replication")]),
    ],
)
def test_other_members_of_a_replicated_cluster_are_not_in_the_store(
    role: Role, report: dict[str, Any], expected: list[tuple[Severity, str]]
) -> None:
    known: dict[str, Any] = {"cluster": "c", "epoch": 1, "master": "a", "is_in_sync": True, "in_sync": 2, "minimum": 1}
    settings = {"bind": "0.0.0.0", "openwire_brokers": "tcp://a:61616,tcp://b:61616"}
    mine = member("a", role, host="here", replica=ReplicaReport(**(known | report)))
    assert found(facts(settings, is_locked=True, members=[mine])) == expected


def test_advice_for_failover() -> None:
    assert found(facts({"bind": "127.0.0.1"}, members=PAIR)) == [(ERROR, "failover")]
    assert found(facts({"bind": "0.0.0.0"}, members=PAIR)) == [(ADVICE, "failover")]


def test_a_member_that_has_ended_long_ago_is_no_finding() -> None:
    settings = {"bind": "0.0.0.0", "openwire_brokers": "tcp://a:61616,tcp://b:61616"}
    gone = member("c", is_alive=False, age_ms=3_600_000)
    assert judge(facts(settings, members=[*PAIR, gone])) == []


def test_a_standby_of_an_activemq_has_a_master() -> None:
    settings = {"bind": "0.0.0.0", "openwire_brokers": "tcp://a:61616,tcp://b:61616"}
    assert found(facts(settings, is_locked=True, members=[member("b"), member("a", host="here")])) == [
        (ADVICE, "master")
    ]


def test_the_worst_finding_comes_first_and_makes_the_exit_code() -> None:
    findings = judge(facts({"sync": "never"}, files_max=10, is_new=True))
    assert [each.severity for each in findings] == [ERROR, WARNING, ADVICE]
    assert exit_code(findings) is Verdict.ERRORS
    assert exit_code(findings[1:]) is Verdict.WARNINGS
    assert exit_code(findings[2:]) is Verdict.WELL


# ---------------------------------------------------------------- facts

MOUNTINFO = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
40 22 0:35 / /mnt/shared\040disk rw,noatime shared:2 - nfs4 server:/an\040export rw,vers=4.2,hard,local_lock=none
41 22 0:36 / /mnt rw - tmpfs tmpfs rw
42 22 0:37 / /mnt rw master:1 propagate_from:2 - xfs /dev/sdb rw
"""


def test_mounts_are_read_with_their_options() -> None:
    mounts = parse(MOUNTINFO)
    assert [(str(each.point), each.type) for each in mounts] == [
        ("/", "ext4"), ("/mnt/shared disk", "nfs4"), ("/mnt", "tmpfs"), ("/mnt", "xfs"),
    ]  # fmt: skip
    shared = mounts[1]
    assert shared.source == "server:/an export"
    assert (shared.option("vers"), shared.option("hard"), shared.option("soft")) == ("4.2", "", None)
    assert [each.is_shared for each in mounts] == [False, True, False, False]


def test_a_path_is_on_the_innermost_mount_and_of_two_on_the_later() -> None:
    mounts = parse(MOUNTINFO)
    assert mount_of(Path("/mnt/shared disk/store"), mounts) == mounts[1]
    assert mount_of(Path("/mnt/other"), mounts) == mounts[3]
    assert mount_of(Path("/etc"), mounts) == mounts[0]


def test_the_facts_of_a_real_store(tmp_path: Path) -> None:
    (tmp_path / "kahadb").mkdir()
    file = MemberFile.claim(tmp_path / "members", "a")
    try:
        record = MemberRecord(
            name="a", role=Role.STANDBY, pid=1, host="there", version="1", since_ms=0, started_ms=0, updated_ms=0
        )
        file.publish(record)
        seen = examine(Config(store=str(tmp_path), stomp=0, openwire=0))
    finally:
        file.close()
    assert seen.refusal is None
    assert seen.mount is not None
    assert (seen.has_locks, seen.is_locked, seen.is_new) == (True, False, True)
    assert seen.free_bytes > 0
    assert abs(seen.skew_ms) < 1000
    (neighbour,) = seen.members
    assert (neighbour.record, neighbour.is_alive) == (record, True)
    assert 0 <= neighbour.age_ms < 10_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kahadb", "members"]  # the probe is gone


@pytest.mark.parametrize("role", [Role.MASTER, Role.STOPPED])
def test_a_member_elsewhere_that_has_just_ended_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: Role
) -> None:
    monkeypatch.setattr("pybroker.broker.app.examination.RENEWED_MS", 50)
    file = MemberFile.claim(tmp_path / "members", "a")
    record = member("a", role).record
    file.publish(record)
    file.close()
    (neighbour,) = examine(Config(store=str(tmp_path), stomp=0, openwire=0)).members
    assert (neighbour.is_alive, neighbour.is_renewed) == (False, False)


def test_a_member_that_writes_without_a_lock_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.broker.app.examination.RENEWED_MS", 300)
    monkeypatch.setattr("pybroker.store.members._is_locked", lambda fd: False)
    file = MemberFile.claim(tmp_path / "members", "a")
    record = member("a", Role.MASTER).record
    file.publish(record)
    renewal = threading.Timer(0.1, lambda: file.publish(replace(record, updated_ms=record.updated_ms + 1)))
    renewal.start()
    try:
        (neighbour,) = examine(Config(store=str(tmp_path), stomp=0, openwire=0)).members
    finally:
        renewal.join()
        file.close()
    assert (neighbour.is_alive, neighbour.is_renewed) == (False, True)


def test_mounts_with_strange_names_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mountinfo").write_bytes(
        b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 8:2 / /m\xff rw - xfs /dev/b rw\n"
    )
    monkeypatch.setattr("pybroker.broker.app.mounts.MOUNTS", tmp_path / "mountinfo")
    assert examine(Config(store=str(tmp_path), stomp=0, openwire=0)).mount is not None


def test_locks_that_do_not_exclude_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.locks.file.FileLock.try_acquire", lambda lock: True)
    seen = examine(Config(store=str(tmp_path), stomp=0, openwire=0))
    assert (seen.has_locks, seen.lock_problem) == (False, "two locks of one file were granted")


def test_settings_that_would_not_start_are_found(tmp_path: Path) -> None:
    seen = examine(Config(store=str(tmp_path), stomp=0, openwire=0, users_file=tmp_path / "none.toml"))
    assert seen.refusal is not None
    assert seen.refusal.setting == "users_file"


def test_election_store_that_does_not_answer_is_found(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"etcd://127.0.0.1:{closed.getsockname()[1]}/orders"
        settings: dict[str, Any] = {"stomp": 0, "openwire": 0, "replicate": url, "replicate_port": free_port()}
        seen = examine(Config(store=str(tmp_path / "new"), **settings))
    assert seen.refusal is None
    (diagnosis,) = [each for each in judge(seen) if each.check == "election store"]
    assert diagnosis.evidence.startswith(f"it cannot be used: {url}: ")
    assert diagnosis.evidence.endswith("Connection refused")
    assert exit_code(judge(seen)) is Verdict.ERRORS


def test_store_that_does_not_belong_into_the_cluster_is_found() -> None:
    text = "this store has 3 messages that cluster orders, whose master is a, does not know"
    (diagnosis,) = [each for each in judge(facts(store_refusal=text)) if each.check == "replication"]
    assert (diagnosis.severity, diagnosis.evidence) == (ERROR, text)


def test_warnings_of_a_start_are_kept_and_not_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = examine(Config(store=str(tmp_path), bind="0.0.0.0", stomp=0, openwire=0))
    assert [text for text in seen.warnings if "clients of other machines are refused" in text]
    assert capsys.readouterr().err == ""


def test_what_a_member_has_found_comes_with_its_remedy() -> None:
    standby = member("b", obstacle="taken", obstacles=("taken",), warnings=("ahead",), kinds=("port", "clock"))
    first, second = (each for each in judge(facts(members=[PAIR[0], standby])) if each.check in ("standby", "pair"))
    assert (first.evidence, second.evidence) == ("b could not serve: taken", "found by b: ahead")
    assert (first.remedy, second.remedy) == (REMEDIES["port"], REMEDIES["clock"])


def test_a_missing_standby_is_one_finding() -> None:
    master = replace_master(warnings=("there is no standby",), kinds=("alone",))
    assert found(facts(is_locked=True, members=[master])).count((WARNING, "standby")) == 1
    assert not [each for each in judge(facts(is_locked=True, members=[master])) if each.check == "pair"]


@pytest.mark.parametrize(
    ("refusal", "remedy"),
    [
        (ConfigError("others may read it", setting="users_file", hint="chmod 600 it"), "chmod 600 it"),
        (ConfigError("no password supplied; name a file", setting="store"), "name a file"),
        (ConfigError("it is wrong", setting="store"), "see the reason"),
    ],
)
def test_the_remedy_of_a_refused_start_is_apart(refusal: ConfigError, remedy: str) -> None:
    (diagnosis,) = [each for each in judge(facts(refusal=refusal)) if each.check == "settings"]
    assert diagnosis.remedy == remedy
    assert remedy not in diagnosis.evidence
