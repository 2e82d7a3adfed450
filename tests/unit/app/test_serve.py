"""Log lines of a member's start."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.broker.app import journal_lock, serve
from pybroker.broker.app.config import Config
from pybroker.broker.app.membership import Membership
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.role import Role
from pybroker.store.members import MemberFile, MemberRecord, read_members


@contextlib.contextmanager
def member_on(directory: Path, host: str) -> Iterator[None]:
    """Have a living member on a host."""
    file = MemberFile.claim(directory, "other")
    file.publish(
        MemberRecord(
            name="other",
            role=Role.MASTER,
            pid=1,
            host=host,
            version="0",
            since_ms=0,
            started_ms=0,
            updated_ms=0,
        )
    )
    yield
    file.close()


@pytest.mark.parametrize(
    ("bind", "host", "warns"),
    [
        ("127.0.0.1", "elsewhere", True),
        ("localhost", "elsewhere", True),
        ("::1", "elsewhere", True),
        ("127.0.0.1", socket.gethostname(), False),
        ("0.0.0.0", "elsewhere", False),
        ("10.0.0.4", "elsewhere", False),
        ("broker.example", "elsewhere", False),
    ],
)
def test_a_member_of_several_machines_on_loopback_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bind: str, host: str, warns: bool
) -> None:
    caplog.set_level(logging.WARNING)
    with member_on(tmp_path, host):
        serve._warn_of_loopback(Config(bind=bind), tmp_path)
    expected = f"this member listens on {bind}, where clients on other machines cannot reach it, though members are on"
    assert [line.startswith(expected) and "elsewhere" in line for line in caplog.messages] == [True] * warns


def test_members_that_are_gone_do_not_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with member_on(tmp_path, "elsewhere"):
        pass
    serve._warn_of_loopback(Config(), tmp_path)
    assert caplog.messages == []


def test_member_that_starts_while_a_tool_locks_the_store_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool locked it after the checks before the start, and before it could see this member."""
    with contextlib.ExitStack() as tool:

        def lock_first(*arguments: Path | str) -> Membership:
            tool.enter_context(journal_lock.locked(tmp_path / "kahadb"))
            return Membership(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(serve, "Membership", lock_first)
        config = Config(store=str(tmp_path), lock="flock", name="own", stomp="0", openwire="0")
        with pytest.raises(ConfigError, match=r"another process holds .*kahadb/lock: both could be master"):
            asyncio.run(serve._serve(config))
    assert [each.alive for each in read_members(tmp_path / "members")] == [False]
