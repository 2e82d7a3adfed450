"""MemberRecord files: who is there, who is alive, and what a damaged file yields."""

import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, asdict, dataclass, fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.errors import ConfigError, StoreUnavailable
from pybroker.broker.domain.role import Role
from pybroker.store import members
from pybroker.store.members import (
    FILE_BYTES_MAX,
    NAME_LENGTH_MAX,
    Followed,
    Load,
    MemberFile,
    MemberRecord,
    MemberStatus,
    prune,
    read_members,
)

ROOT = Path(__file__).parents[3]
DAY_MS = 86_400_000

MASTER = MemberRecord(
    name="amber",
    role=Role.MASTER,
    pid=4711,
    host="amber.example.org",
    version="0.1.0",
    since_ms=1_700_000_001_000,
    started_ms=1_700_000_000_000,
    updated_ms=1_700_000_002_000,
    epoch=7,
    promotions=2,
    listeners=("openwire://0.0.0.0:61616", "stomp://0.0.0.0:61613"),
    lock="/mnt/shared/kahadb/lock",
    followed=Followed(file_id=12, offset=3_141_592, at_ms=1_700_000_000_500, messages=1_000_000),
    load=Load(connections=3, waiting=1_234, in_flight=5, is_full=True),
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "members"


@contextmanager
def claimed(directory: Path, name: str | None = None) -> Iterator[MemberFile]:
    member_file = MemberFile.claim(directory, name)
    try:
        yield member_file
    finally:
        member_file.close()


@contextmanager
def member_process(directory: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    """Start another process that has claimed the name; a line on its standard input makes it fork a child."""
    program = (
        "import os, sys, pathlib\n"
        "from pybroker.store.members import MemberFile\n"
        "member_file = MemberFile.claim(pathlib.Path(sys.argv[1]), sys.argv[2])\n"
        "print('claimed', flush=True)\n"
        "os.read(0, 100)\n"
        "os.fork() or print('forked', flush=True)\n"
        "os.read(0, 100)\n"
    )
    command = [sys.executable, "-c", program, str(directory), name]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env={"PYTHONPATH": str(ROOT)}, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "claimed\n"
        yield process
        process.kill()


# ---------------------------------------------------------------- publishing and reading


def test_what_a_member_publishes_is_what_readers_get(directory: Path) -> None:
    with claimed(directory, "amber") as member_file:
        member_file.publish(MASTER)
        assert read_members(directory) == [MemberStatus(name="amber", alive=True, member=MASTER)]


def test_the_inode_of_a_member_file_needs_no_answer_of_the_file_system(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share that hangs must not hang the event loop, which has it in each look at the pair."""
    with claimed(directory, "amber") as file, monkeypatch.context() as hanging:
        inode = (directory / "amber.json").stat().st_ino
        hanging.setattr(os, "fstat", None)
        assert file.inode == inode


def test_the_last_publication_counts_however_long_the_one_before(directory: Path) -> None:
    standby = replace(MASTER, role=Role.STANDBY, listeners=())
    many = replace(MASTER, listeners=tuple(f"stomp://amber.example.org:{port}" for port in range(20_000, 20_500)))
    with claimed(directory, "amber") as member_file:
        for member in (MASTER, many, standby, MASTER):
            member_file.publish(member)
            assert read_members(directory)[0].member == member


def test_the_file_is_rewritten_in_place_and_plain_json(directory: Path) -> None:
    path = directory / "amber.json"
    with claimed(directory, "amber") as member_file:
        inode = path.stat().st_ino
        member_file.publish(MASTER)
        member_file.publish(replace(MASTER, epoch=8))
        assert path.stat().st_ino == inode
        assert path.stat().st_size == 4096
        assert json.loads(path.read_bytes())["epoch"] == 8


def test_members_are_listed_by_name_with_the_dead_ones(directory: Path) -> None:
    with claimed(directory, "onyx") as dead:
        dead.publish(replace(MASTER, name="onyx", role=Role.STOPPED))
    with claimed(directory, "amber"):
        found = [(status.name, status.alive) for status in read_members(directory)]
    assert found == [("amber", True), ("onyx", False)]


def test_a_killed_member_is_dead_and_its_last_words_remain(directory: Path) -> None:
    with member_process(directory, "amber") as process:
        assert read_members(directory)[0].alive
        process.kill()
        process.wait()
        assert not read_members(directory)[0].alive


def test_a_forked_child_does_not_keep_a_killed_member_alive(directory: Path) -> None:
    with member_process(directory, "amber") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("fork\n")
        process.stdin.flush()
        assert process.stdout.readline() == "forked\n"
        process.kill()
        process.wait()
        assert not read_members(directory)[0].alive


def test_reading_creates_nothing(directory: Path) -> None:
    assert read_members(directory) == []
    assert prune(directory, older_than_ms=0, now_ms=DAY_MS) == []
    assert not directory.exists()


def test_too_many_listeners_are_refused(directory: Path) -> None:
    with claimed(directory, "amber") as member_file:
        member_file.publish(MASTER)
        with pytest.raises(ConfigError, match="fewer listeners"):
            member_file.publish(replace(MASTER, listeners=("x" * FILE_BYTES_MAX,)))
        assert read_members(directory)[0].member == MASTER


def test_a_failed_sync_is_reported(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with claimed(directory, "amber") as member_file, pytest.raises(StoreUnavailable, match="Input/output error"):
        member_file.publish(MASTER)


# ---------------------------------------------------------------- names


def test_the_name_of_a_living_member_is_refused(directory: Path) -> None:
    with claimed(directory, "amber") as first:
        first.publish(MASTER)
        with pytest.raises(ConfigError, match=r"a living member has the name amber.*a unique name"):
            MemberFile.claim(directory, "amber")
        assert read_members(directory)[0].member == MASTER
    with claimed(directory, "amber") as successor:
        assert successor.name == "amber"


def test_a_dead_members_state_does_not_pass_for_its_successors(directory: Path) -> None:
    with claimed(directory, "amber") as first:
        first.publish(MASTER)
    with claimed(directory, "amber"):
        (status,) = read_members(directory)
    assert (status.alive, status.member, status.problem) == (True, None, "nothing was written yet")


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("amber.example.org", ["amber.example.org", "amber.example.org-2", "amber.example.org-3"]),
        ("ein Rechner/1", ["ein-Rechner-1", "ein-Rechner-1-2", "ein-Rechner-1-3"]),
        ("..", ["member", "member-2", "member-3"]),
    ],
)
def test_members_without_a_name_are_numbered_on_their_host(
    directory: Path, monkeypatch: pytest.MonkeyPatch, host: str, names: list[str]
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    with claimed(directory) as first, claimed(directory) as second, claimed(directory) as third:
        assert [first.name, second.name, third.name] == names
        second.close()
        with claimed(directory) as successor:
            assert successor.name == names[1]


def test_the_longest_host_name_leaves_space_for_a_number(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "h" * 300)
    with claimed(directory), claimed(directory) as second:
        assert len(second.name) <= NAME_LENGTH_MAX


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../amber", "a/b", "a b", ".hidden", "-x", "a\n", "ä", "n" * 101, "a\0"]
)
def test_what_is_no_name_is_refused(directory: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a member's name"):
        MemberFile.claim(directory, name)
    assert not list(directory.glob("**/*.json"))


def test_a_store_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="check that the store is mounted"):
        MemberFile.claim(tmp_path / "missing" / "members")


def test_a_symbolic_link_as_member_file_is_not_followed(directory: Path, tmp_path: Path) -> None:
    directory.mkdir()
    (tmp_path / "victim").write_text("precious")
    (directory / "amber.json").symlink_to(tmp_path / "victim")
    with pytest.raises(StoreUnavailable):
        MemberFile.claim(directory, "amber")
    assert read_members(directory)[0].problem.startswith("cannot be read")
    assert (tmp_path / "victim").read_text() == "precious"


# ---------------------------------------------------------------- damage


def written(directory: Path) -> Path:
    with claimed(directory, "amber") as member_file:
        member_file.publish(MASTER)
    return directory / "amber.json"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "nothing was written yet"),
        (b"\0" * 4096, "damaged: no JSON"),
        (b"[1]", "damaged: no JSON object"),
        (b'{"name": "amber"}', "damaged: wrong checksum"),
        (b"[" * 60_000, "damaged: no JSON"),
        (b"\xff\xfe\xff", "damaged: no JSON"),
    ],
)
def test_damage_is_reported_and_not_raised(directory: Path, content: bytes, problem: str) -> None:
    path = written(directory)
    path.write_bytes(content)
    assert read_members(directory) == [MemberStatus(name="amber", alive=False, member=None, problem=problem)]


def test_a_copy_under_another_name_is_no_member(directory: Path) -> None:
    path = written(directory)
    path.with_name("onyx.json").write_bytes(path.read_bytes())
    assert read_members(directory)[1].problem == "damaged: it is about another member"


@pytest.mark.parametrize(
    "change", [{"role": "KING"}, {"listeners": None}, {"followed": 7}, {"load": 7}, {"load": [1]}, {"load": False}]
)
def test_values_that_make_no_sense_are_damage(directory: Path, change: dict[str, object]) -> None:
    assert rewritten(directory, **change).problem.startswith("damaged: ")


def rewritten(directory: Path, *without: str, **change: object) -> MemberStatus:
    """Return what a reader finds when another version has other fields."""
    path = written(directory)
    record = json.loads(path.read_bytes()) | change
    record = {name: value for name, value in record.items() if name not in {"crc32", *without}}
    path.write_text(json.dumps(record | {"crc32": members._crc32(record)}))
    return read_members(directory)[0]


def test_unknown_fields_of_a_newer_version_are_ignored(directory: Path) -> None:
    followed, load = (asdict(part) | {"mood": "calm"} for part in (MASTER.followed, MASTER.load) if part)
    assert rewritten(directory, mood="calm", followed=followed, load=load).member == MASTER


@pytest.mark.parametrize("field", [field for field in fields(MemberRecord) if field.default is not MISSING])
def test_missing_field_with_a_default_has_it(directory: Path, field: Field[object]) -> None:
    expected = replace(MASTER, **{field.name: field.default})  # type: ignore[arg-type]
    assert rewritten(directory, field.name).member == expected


@pytest.mark.parametrize("name", ["role", "pid", "host", "version", "since_ms", "started_ms", "updated_ms"])
def test_missing_field_without_a_default_is_damage(directory: Path, name: str) -> None:
    assert rewritten(directory, name).problem == f"damaged: ValueError without {name}"


@pytest.mark.parametrize(("part", "of"), [("load", Load), ("followed", Followed)])
def test_part_that_lacks_a_field_is_left_out(directory: Path, part: str, of: type[Load | Followed]) -> None:
    """A member whose version counts otherwise is still a living master."""
    for missing in (field for field in fields(of) if field.default is MISSING):
        values = {name: value for name, value in asdict(getattr(MASTER, part)).items() if name != missing.name}
        found = rewritten(directory, **{part: values})
        assert (found.problem, found.member) == ("", replace(MASTER, **{part: None}))  # type: ignore[arg-type]


def test_new_field_of_a_part_has_its_default(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class NewLoad(Load):
        subscriptions: int = 0

    monkeypatch.setitem(members._PARTS, "load", NewLoad)
    found = rewritten(directory).member
    assert found is not None
    assert found.load == NewLoad(connections=3, waiting=1_234, in_flight=5, is_full=True)


FIRST_VERSION = {
    "name": "amber",
    "role": "MASTER",
    "pid": 4711,
    "host": "amber.example.org",
    "version": "0.1.0",
    "since_ms": 1,
    "started_ms": 2,
    "updated_ms": 3,
    "epoch": 7,
    "promotions": 2,
    "listeners": [],
    "lock": "/mnt/shared/kahadb/lock",
    "followed": {"file_id": 1, "offset": 2, "at_ms": 3, "messages": 4},
    "load": {"connections": 3, "waiting": 1_234, "in_flight": 5, "is_full": True},
}


def test_entry_of_the_first_version_is_understood(directory: Path) -> None:
    """A new field needs a default: without one, the parts of members of older versions would not be shown."""
    written(directory).write_text(json.dumps(FIRST_VERSION | {"crc32": members._crc32(FIRST_VERSION)}))
    member = read_members(directory)[0].member
    assert member is not None
    assert (member.epoch, member.lock_kind) == (7, "")
    assert member.followed is not None
    assert member.load is not None


def test_files_that_are_no_member_files_are_left_alone(directory: Path) -> None:
    written(directory)
    (directory / "README").touch()
    (directory / ".amber.json").touch()
    (directory / "onyx.json").mkdir()
    os.mkfifo(directory / "pipe.json")
    found = {status.name: status.problem for status in read_members(directory)}
    assert found.keys() == {"amber", "onyx", "pipe"}
    assert found["amber"] == ""
    assert found["onyx"].startswith("cannot be read")
    assert found["pipe"].startswith("cannot be read")


def test_a_write_met_half_way_is_read_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(directory)
    whole = path.read_bytes()
    real = os.pread
    torn = iter([whole[:100] + b" " * (len(whole) - 100)])

    def pread(fd: int, size: int, offset: int) -> bytes:
        return next(torn, None) or real(fd, size, offset)

    monkeypatch.setattr(os, "pread", pread)
    assert read_members(directory)[0].member == MASTER


@given(st.integers(0, 4095), st.integers(1, 255))
def test_a_flipped_byte_is_damage_or_changes_nothing(offset: int, flip: int) -> None:
    block = bytearray(members._encode(MASTER, 4096))
    block[offset] ^= flip
    try:
        found = members._decode(bytes(block), "amber")
    except ValueError:
        return
    assert found == MASTER


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_bytes_are_a_member_or_a_value_error(block: bytes) -> None:
    with pytest.raises(ValueError):
        members._decode(block, "amber")


# ---------------------------------------------------------------- pruning


def aged(path: Path, written_ms: int) -> None:
    os.utime(path, ns=(written_ms * 1_000_000, written_ms * 1_000_000))


def test_pruning_removes_the_long_dead_only(directory: Path) -> None:
    with claimed(directory, "living") as living:
        living.publish(replace(MASTER, name="living"))
        for name, age_days in (("just-dead", 1), ("long-dead", 3)):
            with claimed(directory, name):
                pass
            aged(directory / f"{name}.json", (10 - age_days) * DAY_MS)
        aged(directory / "living.json", 0)
        assert prune(directory, older_than_ms=2 * DAY_MS, now_ms=10 * DAY_MS) == ["long-dead"]
        assert [status.name for status in read_members(directory)] == ["just-dead", "living"]


def test_a_claim_during_its_pruning_creates_a_new_file(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening the old file and locking it, the file is pruned: the lock would be on a file without a name."""
    path = written(directory)
    aged(path, 0)
    real = members._try_lock
    prunings: list[Callable[[], object]] = [lambda: prune(directory, older_than_ms=0, now_ms=DAY_MS)]

    def prune_first(fd: int) -> bool:
        if prunings:
            prunings.pop()()
        return real(fd)

    monkeypatch.setattr(members, "_try_lock", prune_first)
    with claimed(directory, "amber") as member_file:
        member_file.publish(MASTER)
        assert read_members(directory) == [MemberStatus(name="amber", alive=True, member=MASTER)]


def test_close_is_harmless_when_repeated(directory: Path) -> None:
    with claimed(directory, "amber") as member_file:
        member_file.close()
        assert not read_members(directory)[0].alive
