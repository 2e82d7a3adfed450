"""Who may step down, and for how long the lock is left to others."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.app import step_down
from pybroker.broker.app.config import Config
from pybroker.broker.app.machine import clock
from pybroker.broker.app.step_down import leave_lock_to_others, permission
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.role import Role
from pybroker.locks.file import FileLock
from pybroker.store.members import MemberFile, MemberRecord

HANG_SECONDS = 20.0
"""So long a call hangs, so that a test that fails ends."""


@pytest.fixture
def hanging() -> Iterator[Callable[..., bool]]:
    """Return a function that hangs, as a call to a share whose server is away."""
    is_over = threading.Event()

    def hang(*_: object) -> bool:
        return not is_over.wait(HANG_SECONDS)

    yield hang
    is_over.set()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def live(stack: ExitStack, store: Path, name: str, role: Role, *, age_ms: int = 0, **fields: Any) -> MemberFile:
    """Have a member live in a store."""
    file = MemberFile.claim(store / "members", name)
    stack.callback(file.close)
    times: dict[str, Any] = {"since_ms": 0, "started_ms": 0, "updated_ms": clock() - age_ms}
    file.publish(MemberRecord(name=name, role=role, pid=1, host="h", version="1", **times, **fields))
    return file


def problem(store: Path) -> str:
    return asyncio.run(permission(Config(store=str(store)), "a")())


def test_a_standby_that_is_well_allows_it(stack: ExitStack, tmp_path: Path) -> None:
    live(stack, tmp_path, "a", Role.MASTER)
    live(stack, tmp_path, "b", Role.STANDBY, obstacle="its port is taken")
    live(stack, tmp_path, "c", Role.STANDBY, warnings=("its clock is off",))
    assert problem(tmp_path) == ""


@pytest.mark.parametrize(
    ("role", "fields", "expected"),
    [
        (Role.STANDBY, {"obstacle": "its port is taken"}, "the standby b could not serve: its port is taken"),
        (Role.STANDBY, {"age_ms": 12_500}, "the standby b could not serve: it has been silent for 12 s"),
        (Role.PROMOTING, {}, "there is no standby"),
    ],
)
def test_no_standby_that_could_serve_refuses_it(
    stack: ExitStack, tmp_path: Path, role: Role, fields: dict[str, Any], expected: str
) -> None:
    live(stack, tmp_path, "a", Role.MASTER)
    live(stack, tmp_path, "b", role, **fields)
    assert problem(tmp_path) == expected


def test_a_standby_that_is_gone_refuses_it(stack: ExitStack, tmp_path: Path) -> None:
    live(stack, tmp_path, "b", Role.STANDBY).close()
    assert problem(tmp_path) == "there is no standby"


def test_a_store_in_memory_refuses_it() -> None:
    assert asyncio.run(permission(Config(store="memory:"), "a")()) == "a store in memory has no standby"


@pytest.mark.parametrize("is_stopping", [False, True])
def test_a_share_that_hangs_keeps_neither_next_run_nor_end(
    hanging: Callable[..., bool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_stopping: bool
) -> None:
    monkeypatch.setattr(step_down, "HOLD_OFF_SECONDS", 60.0 if is_stopping else 0.2)
    monkeypatch.setattr(step_down, "_is_taken", hanging)
    asked: list[bool] = []

    def stops() -> bool:
        asked.append(True)
        return is_stopping and len(asked) > 2

    began_at = time.monotonic()
    asyncio.run(leave_lock_to_others(Config(store=str(tmp_path)), stops))
    assert time.monotonic() - began_at < HANG_SECONDS / 2


def test_members_on_a_share_that_hangs_do_not_keep_the_end(
    hanging: Callable[..., bool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(step_down, "ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(step_down, "read_members", hanging)
    began_at = time.monotonic()
    assert problem(tmp_path) == "the store has not answered for 0 s"
    assert time.monotonic() - began_at < HANG_SECONDS / 2


def test_a_store_that_fails_refuses_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(directory: Path) -> None:
        raise StoreUnavailable("it is away")

    monkeypatch.setattr(step_down, "ANSWER_SECONDS", 10.0)
    monkeypatch.setattr(step_down, "read_members", fail)
    assert problem(tmp_path) == "the members cannot be read (it is away)"


def test_lock_is_left_until_another_member_has_it(tmp_path: Path) -> None:
    (tmp_path / "kahadb").mkdir()
    other = FileLock(tmp_path / "kahadb" / "lock", clock=clock)

    async def scenario() -> None:
        waiting = asyncio.create_task(leave_lock_to_others(Config(store=str(tmp_path)), lambda: False))
        done, _ = await asyncio.wait({waiting}, timeout=0.2)
        assert not done
        assert other.try_acquire()
        async with asyncio.timeout(4.0):
            await waiting

    try:
        asyncio.run(scenario())
    finally:
        other.release()


@pytest.mark.parametrize(("seconds", "is_stopping"), [(0.1, False), (60.0, True)])
def test_lock_is_not_left_for_ever(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seconds: float, is_stopping: bool
) -> None:
    """Not without another member, nor when a stop is requested."""
    monkeypatch.setattr(step_down, "HOLD_OFF_SECONDS", seconds)
    (tmp_path / "kahadb").mkdir()
    began_at = time.monotonic()
    asyncio.run(leave_lock_to_others(Config(store=str(tmp_path)), lambda: is_stopping))
    assert time.monotonic() - began_at < 30.0
