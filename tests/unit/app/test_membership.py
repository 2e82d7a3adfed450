"""Compatibility of members."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from pybroker.broker.app.membership import Membership
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.role import Role
from pybroker.store.members import MemberFile, MemberRecord, read_members

OTHER = MemberRecord(
    name="other", role=Role.MASTER, pid=1, host="h", version="0", since_ms=1, started_ms=1, updated_ms=1
)
IN_DATABASE = "ACTIVEMQ_LOCK in db:5432/activemq"


@pytest.fixture
def others(tmp_path: Path) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def live(others: ExitStack, directory: Path, **fields: str) -> MemberFile:
    """Have another member live there."""
    file = MemberFile.claim(directory, OTHER.name)
    others.callback(file.close)
    file.publish(replace(OTHER, **fields))  # type: ignore[arg-type]
    return file


def start(directory: Path, kind: str) -> None:
    Membership(directory, "own", "what is locked", kind).close()


@pytest.mark.parametrize(
    ("own", "fields"),
    [
        ("flock", {"lock_kind": "file"}),
        ("file", {"lock_kind": "postgres-row"}),
        ("postgres-row", {"lock_kind": "postgres-lease"}),
        ("flock", {"lock": "/mnt/a/kahadb/lock"}),
        ("file", {"lock": "/mnt/a/kahadb/lock.flock"}),
        ("postgres-row", {"lock": "/mnt/a/kahadb/lock"}),
        ("file", {"lock": IN_DATABASE}),
    ],
)
def test_living_member_with_another_lock_is_refused(
    others: ExitStack, tmp_path: Path, own: str, fields: dict[str, str]
) -> None:
    """Earlier versions record no kind, but what they lock."""
    live(others, tmp_path / "members", **fields)
    with pytest.raises(ConfigError, match=r"other .process 1 on h.*both could be master at once"):
        start(tmp_path / "members", own)


@pytest.mark.parametrize(
    ("own", "fields"),
    [
        ("file", {"lock_kind": "file", "lock": "/elsewhere/kahadb/lock"}),
        ("flock", {"lock": "/elsewhere/kahadb/lock.flock"}),
        ("postgres-row", {"lock": IN_DATABASE}),
    ],
)
def test_living_member_with_the_same_lock_is_welcome(
    others: ExitStack, tmp_path: Path, own: str, fields: dict[str, str]
) -> None:
    """The path may differ from machine to machine; one in a database has no kind, if it is of an earlier version."""
    live(others, tmp_path / "members", **fields)
    start(tmp_path / "members", own)


def test_dead_member_with_another_lock_is_no_matter(others: ExitStack, tmp_path: Path) -> None:
    live(others, tmp_path / "members", lock_kind="file").close()
    start(tmp_path / "members", "flock")


@pytest.mark.parametrize(
    ("own", "journal", "is_refused"),
    [
        ("kahadb", "kahadb", False),
        ("KahaDB", "kahadb", True),
        ("kahadb", "db", True),
        ("db", "db", False),
        (".", ".", False),
        (".", "db", True),
        ("kahadb", "", False),
        (".", "", False),
        ("db", "", True),
    ],
)
def test_living_member_with_another_journal_is_refused(
    others: ExitStack, tmp_path: Path, own: str, journal: str, is_refused: bool
) -> None:
    """Each directory has a lock of its own; an earlier version's member names none, and has the default."""
    live(others, tmp_path / "members", lock_kind="file", journal=journal)
    if not is_refused:
        Membership(tmp_path / "members", "own", "what is locked", "file", own).close()
        return
    with pytest.raises(ConfigError, match=rf"^journal_directory: .* in {own}, .* in {journal or 'kahadb'}: both could"):
        Membership(tmp_path / "members", "own", "what is locked", "file", own)


def test_living_member_that_has_written_nothing_is_no_matter(others: ExitStack, tmp_path: Path) -> None:
    """It is about to look at the others itself, and finds this one."""
    others.callback(MemberFile.claim(tmp_path / "members", "other").close)
    start(tmp_path / "members", "flock")


def test_kind_is_published_before_the_others_are_looked_at(tmp_path: Path) -> None:
    membership = Membership(tmp_path / "members", "own", "what is locked", "flock")
    found = read_members(tmp_path / "members")[0].member
    membership.close()
    assert found is not None
    assert found.lock_kind == "flock"


def test_history_of_the_member_is_kept_and_found_again(tmp_path: Path) -> None:
    membership = Membership(tmp_path / "members", "own", "what is locked", "flock")
    assert membership.earlier == []
    membership.keep({"at_ms": 1, "kind": "role"})
    membership.close()
    again = Membership(tmp_path / "members", "own", "what is locked", "flock")
    again.close()
    assert again.earlier == [{"at_ms": 1, "kind": "role"}]


def test_history_that_cannot_be_written_is_logged_and_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    membership = Membership(tmp_path / "members", "own", "what is locked", "flock")
    (tmp_path / "members" / "own.new").mkdir()
    membership.keep({"at_ms": 1, "kind": "role"})
    membership.publish(Role.MASTER, [], 1)
    membership.close()
    found = read_members(tmp_path / "members")[0].member
    assert found is not None
    assert found.role is Role.MASTER
    assert "cannot write this member's history" in caplog.text


def test_entry_that_is_being_written_is_not_renewed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else entries of a store that hangs would be written one after another, late."""
    goes_on, written = threading.Event(), list[Role]()
    membership = Membership(tmp_path / "members", "own", "what is locked", "flock")

    def publish(file: MemberFile, member: MemberRecord) -> None:
        assert goes_on.wait(20)
        written.append(member.role)

    monkeypatch.setattr(MemberFile, "publish", publish)
    for _ in range(5):
        membership.refresh()
    membership.publish(Role.MASTER, [], 1)
    goes_on.set()
    membership.close()
    assert written == [Role.STANDBY, Role.MASTER]
