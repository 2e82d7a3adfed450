"""A master's term: what it tells the election of its followers."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.app.election_run import ElectionRun
from pybroker.broker.app.replica_activity import ReplicaActivity
from pybroker.broker.app.replica_term import ReplicaTerm, StreamSettings
from pybroker.broker.domain.replica.operations import Journal
from pybroker.broker.domain.replica.ports import ReplicaMember
from pybroker.locks.election.election_state import (
    ElectionAction,
    ElectionEvent,
    ElectionPolicy,
    FollowerJoined,
    ReadRegister,
    StopFollowing,
)
from pybroker.locks.election.record import MasterEntry
from pybroker.store.replica.catch_up import MasterFiles

M = Journal.MESSAGES


class _HeardRun:
    """Stands in for `ElectionRun`, and keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[ElectionEvent] = []

    def tell(self, event: ElectionEvent) -> None:
        self.events.append(event)


def make_term(root: Path, heard: Any) -> ReplicaTerm:
    member = ReplicaMember(cluster="c", store="s-a", run="l-a", name="a")
    files = MasterFiles(root, {M: root / "kahadb"})
    settings = StreamSettings(host="127.0.0.1", port=0)
    return ReplicaTerm(heard, 1, {M: 1}, {M: 9}, files, member, settings, ReplicaActivity())


def test_former_term_tells_nothing_of_its_followers(tmp_path: Path) -> None:
    """Each term counts its connections from 1: an end that comes late would be taken for that of the next term's."""

    async def scenario() -> None:
        heard: Any = _HeardRun()
        term = make_term(tmp_path, heard)
        term.joined("s-b", 1)
        term.end()
        term.lost("s-b", 1)
        term.leaving("s-b", 1)
        term.joined("s-b", 2)
        term.confirmed("s-b", 2, 1, 7, 0.0, has_promised=False)
        await term.server.close()
        assert heard.events == [FollowerJoined("s-b", 1)]

    asyncio.run(scenario())


@pytest.mark.parametrize(("has_ended", "answers"), [(False, [b""]), (True, [])])
def test_record_that_cannot_be_asked_for(tmp_path: Path, *, has_ended: bool, answers: list[bytes]) -> None:
    """Its queue waits for an answer, and the store of a term that is over is closed."""

    async def scenario() -> None:
        term = make_term(tmp_path, _HeardRun())
        began, found = asyncio.Event(), list[bytes]()

        async def fail(journal: Journal, file_id: int, offset: int) -> bytes:
            began.set()
            raise RuntimeError(f"a mistake: {journal} {file_id} {offset}")

        term.server.record = fail  # type: ignore[method-assign]
        term.journal(M).read_elsewhere(1, 10, found.append)
        if has_ended:
            term.end()
        await began.wait()
        await asyncio.gather(*term._reading)
        await term.server.close()
        assert found == answers

    asyncio.run(scenario())


def test_action_that_fails_does_not_keep_the_others_from_being_performed(caplog: pytest.LogCaptureFixture) -> None:
    performed: list[ElectionAction] = []

    def perform(action: ElectionAction) -> None:
        performed.append(action)
        if len(performed) == 1:
            raise RuntimeError("a mistake")

    me = MasterEntry(name="a", store="s-a", run="l-a")
    run = ElectionRun(me, ElectionPolicy(), perform=perform, post=lambda callback: callback(), name="orders")
    actions = (StopFollowing(), ReadRegister())
    run._perform_all(actions)
    assert tuple(performed) == actions
    assert "StopFollowing" in caplog.text
