"""A waiting standby: its work, its log, and its entry in `pybroker status`."""

import logging
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pybroker.broker.app import standby as standby_module
from pybroker.broker.app.machine import Machine
from pybroker.broker.app.standby import Standby
from pybroker.broker.app.status import Status, describe
from pybroker.broker.domain.role import Role
from pybroker.store.journal import id_cache
from pybroker.store.journal.follower import Follower
from pybroker.store.journal.format import data_file_name
from pybroker.store.members import Followed, Load, MemberRecord, MemberStatus
from tests.unit.store.states import add, append, batch, write_file

SECONDS = 20.0


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Callable[[], Standby]]:
    """Begins to follow the test's directory."""
    made: list[Standby] = []

    def begin() -> Standby:
        made.append(Standby(tmp_path, Machine(clock=lambda: 1_700_000_000_000)))
        return made[-1]

    yield begin
    for each in made:
        each.end()


def until(condition: Callable[[], bool]) -> None:
    """Wait for another thread, whose doings have no event."""
    tick = threading.Event()
    for _ in range(int(SECONDS * 200)):
        if condition():
            return
        tick.wait(0.005)
    raise AssertionError("it never happened")


def test_standby_follows_and_logs_it_once(
    tmp_path: Path, waiting: Callable[[], Standby], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = write_file(tmp_path, 12, [batch(*map(add, range(1200)))])
    size = path.stat().st_size - 5
    standby = waiting()
    until(lambda: standby.followed() is not None)
    assert standby.followed() == Followed(file_id=12, offset=size, at_ms=1_700_000_000_000, messages=1200)
    append(path, batch(add(1200)))
    until(lambda: standby.followed() is not None and standby.followed().messages == 1201)  # type: ignore[union-attr]
    lines = [each.getMessage() for each in caplog.records if "following" in each.getMessage()]
    assert lines == [f"standby: following db-12.log at {size:,}: 1,200 messages"]


def test_the_follower_is_handed_over_at_the_end(tmp_path: Path, waiting: Callable[[], Standby]) -> None:
    write_file(tmp_path, 1, [batch(add(1))])
    standby = waiting()
    until(lambda: standby.followed() is not None)
    follower = standby.end()
    assert isinstance(follower, Follower)
    assert follower.finish().last_file_id == 1
    assert follower.message_count == 1


def test_an_empty_directory_is_followed_until_there_is_something(
    tmp_path: Path, waiting: Callable[[], Standby]
) -> None:
    standby = waiting()
    until(lambda: standby.followed() is not None)
    write_file(tmp_path, 1, [batch(add(1))])
    until(lambda: standby.followed() is not None and standby.followed().messages == 1)  # type: ignore[union-attr]


def test_unreadable_journal_is_logged_once_and_retried(
    tmp_path: Path,
    waiting: Callable[[], Standby],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standby_module, "RETRY_SECONDS", 0.01)
    path = tmp_path / data_file_name(1)
    path.write_bytes(b"this is something else " * 10)
    standby = waiting()
    until(lambda: "cannot be followed for now" in caplog.text)
    path.unlink()
    write_file(tmp_path, 1, [batch(add(1))])
    until(lambda: standby.followed() is not None)
    assert caplog.text.count("cannot be followed for now") == 1


def test_an_unexpected_failure_does_not_end_it(
    tmp_path: Path,
    waiting: Callable[[], Standby],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standby_module, "RETRY_SECONDS", 0.01)
    write_file(tmp_path, 1, [batch(add(1))])
    real, failed = Follower.advance, threading.Event()

    def fail_once(self: Follower, *, scan: bool = True) -> object:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("no one thought of this")
        return real(self, scan=scan)

    monkeypatch.setattr(Follower, "advance", fail_once)
    standby = waiting()
    until(lambda: standby.followed() is not None)
    assert "no one thought of this" in caplog.text


# ---------------------------------------------------------------- status

STANDBY = MemberRecord(
    name="b",
    role=Role.STANDBY,
    pid=1,
    host="host",
    version="0",
    since_ms=1_700_000_000_000,
    started_ms=1_700_000_000_000,
    updated_ms=1_700_000_060_500,
    followed=Followed(file_id=43, offset=3_141_592, at_ms=1_700_000_060_000, messages=1_000_000),
)


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        (STANDBY, ", follows db-43.log at 3,141,592, 0.5 s behind: 1,000,000 messages"),
        (replace(STANDBY, followed=None), ", reading the journal"),
        (replace(STANDBY, role=Role.MASTER, followed=None), "pid 1 on host"),
    ],
)
def test_status_shows_how_far_a_standby_is(member: MemberRecord, expected: str) -> None:
    status = Status(
        store="/s",
        lock="/s/lock",
        locked=True,
        holder_pid=None,
        members=[MemberStatus(name="b", alive=True, member=member)],
        now_ms=member.updated_ms,
    )
    assert describe(status)[1].endswith(expected)
    assert status.as_json()["members"][0]["followed"] == (
        None
        if member.followed is None
        else {"file_id": 43, "offset": 3_141_592, "at_ms": 1_700_000_060_000, "messages": 1_000_000, "behind_ms": 0}
    )


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        (Role.STOPPED, r"stopped at [-\d]+ [:\d]+, pid 1 on host"),
        (Role.MASTER, r"gone, was master until [-\d]+ [:\d]+ or a little later, pid 1 on host"),
    ],
)
def test_status_distinguishes_a_stop_from_a_crash(role: Role, expected: str) -> None:
    entry = MemberStatus(name="b", alive=False, member=replace(STANDBY, role=role))
    status = Status(store="/s", lock="/s/lock", locked=False, holder_pid=None, members=[entry], now_ms=0)
    assert re.search(f"{expected}$", describe(status)[1])


def test_standby_lists_long_queues_before_it_reports_warm(
    tmp_path: Path, waiting: Callable[[], Standby], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(id_cache, "LONG_QUEUE", 100)
    write_file(tmp_path, 12, [batch(*map(add, range(1200)))])
    standby = waiting()
    until(lambda: standby.followed() is not None)
    follower = standby.end()
    assert follower is not None
    (queue,) = follower.state.queues()
    messages = follower.state.destinations[queue].messages
    assert follower.id_cache._ids == {queue: list(messages)}
    assert len(messages) == 1200


@pytest.mark.parametrize(
    ("milliseconds", "lines"),
    [
        (4, []),
        (1_250, ["  LOOP LAG: in the last minute clients waited 1,250 ms for input of 10.0.0.1:5 1250 ms"]),
    ],
)
def test_status_shows_the_loop_lag_and_the_cause_of_a_long_turn(milliseconds: int, lines: list[str]) -> None:
    load = Load(
        connections=1,
        waiting=2,
        in_flight=3,
        is_full=False,
        loop_lag_ms=milliseconds,
        loop_lag_cause="input of 10.0.0.1:5 1250 ms",
    )
    member = replace(STANDBY, role=Role.MASTER, followed=None, load=load)
    status = Status(
        store="/s",
        lock="/s/lock",
        locked=True,
        holder_pid=None,
        members=[MemberStatus(name="b", alive=True, member=member)],
        now_ms=member.updated_ms,
    )
    described = describe(status)
    assert described[1].endswith(f", loop lag {milliseconds:,} ms")
    assert described[2:-1] == lines
    assert status.as_json()["members"][0]["load"]["loop_lag_ms"] == milliseconds


@pytest.mark.parametrize(
    ("free_bytes", "shown"), [(1023 << 20, "1023 MB"), (12_345_678, "12 MB"), ((1 << 30) * 1234, "1,234.0 GB")]
)
def test_status_shows_memory_and_a_full_spool(free_bytes: int, shown: str) -> None:
    load = Load(
        connections=1,
        waiting=2,
        in_flight=3,
        is_full=False,
        memory_bytes=51 << 20,
        memory_bytes_max=1 << 30,
        spool_bytes=39 << 20,
        is_spool_full=True,
    )
    member = replace(STANDBY, role=Role.MASTER, followed=None, load=load)
    status = Status(
        store="/s",
        lock="/s/lock",
        locked=True,
        holder_pid=None,
        members=[MemberStatus(name="b", alive=True, member=member)],
        now_ms=member.updated_ms,
        disk_free_bytes=free_bytes,
    )
    described = describe(status)
    assert described[1].startswith(
        f"  2 messages waiting, 3 in flight, 1 connection, 51 of 1,024 MB of memory, 39 MB spooled, {shown} free on"
    )
    assert described[2].startswith("  SPOOL FULL: ")
