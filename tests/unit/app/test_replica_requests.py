"""Requests of `pybroker replica` to a member: whose stores the answer is about, and that there is one."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pybroker.broker.app import replica_cli, replica_requests
from pybroker.broker.app.replica_cli import ReplicaExit, ask, code_of
from pybroker.broker.app.replica_requests import ANSWER_NAME, REQUEST_NAME, ReplicaRequests, get, put
from pybroker.broker.app.replication import Replication
from pybroker.broker.domain.replica.operations import Journal
from pybroker.broker.domain.replica.ports import CopyProgress, FollowerProgress
from pybroker.broker.domain.replica.reports import ComparisonResult, FileDifference

EQUAL = ComparisonResult(3, 1000)
DIFFERENT = ComparisonResult(3, 1000, [FileDifference(Journal.MESSAGES, 1, is_masters=False)])


def connected(name: str, connection: int = 1) -> FollowerProgress:
    return FollowerProgress(f"s-{name}", name, connection, is_live=True, confirmed=0, left_bytes=0, queued_bytes=0)


class ComparedFollowers:
    """A master whose followers are compared: what `compare` returns, and who is connected at each look."""

    def __init__(self, compared: Sequence[str], *looks: Sequence[FollowerProgress]) -> None:
        self.server = self
        self.on_verified: Callable[[str, ComparisonResult], None] = lambda store, result: None
        self.results: Mapping[str, ComparisonResult] = {}
        self._compared = compared
        self._looks = list(looks)

    def compare(self) -> Sequence[str]:
        for store, result in self.results.items():
            asyncio.get_running_loop().call_soon(self.on_verified, store, result)
        return self._compared

    def progress(self) -> Sequence[FollowerProgress]:
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]


class ComparedCopy:
    """A standby whose comparisons have these results."""

    progress = CopyProgress(is_connected=True, is_live=True, sequence=0, committed=0, left_bytes=0, ends=(), refusal="")

    def __init__(self, replication: SimpleNamespace, *results: ComparisonResult) -> None:
        self._replication = replication
        self._results = list(results)
        self.repaired: list[object] = []

    def verify(self) -> None:
        asyncio.get_running_loop().call_soon(self._replication.on_verified, self._results.pop(0))

    def repair(self, files: Sequence[tuple[Journal, int]]) -> None:
        self.repaired += files
        self.verify()


def answer(root: Path, replication: SimpleNamespace, act: str, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Return a member's answer to a request."""
    for module, name in (
        (replica_requests, "LOOK_SECONDS"),
        (replica_requests, "GONE_SECONDS"),
        (replica_cli, "LOOK_SECONDS"),
    ):
        monkeypatch.setattr(module, name, 0.001)
    monkeypatch.setattr(replica_cli, "SILENT_SECONDS", 5.0)
    has_looked, get = threading.Event(), replica_requests.get

    def get_first(root: Path, name: str) -> dict[str, Any]:
        has_looked.set()
        return get(root, name)

    monkeypatch.setattr(replica_requests, "get", get_first)
    (root / "replica").mkdir()
    put(root, REQUEST_NAME, {"id": "of an earlier run", "act": "verify"})

    async def main() -> Mapping[str, Any]:
        requests = asyncio.create_task(ReplicaRequests(cast("Replication", replication), "b", root).run())
        try:
            await asyncio.to_thread(has_looked.wait, 10)
            return await asyncio.to_thread(ask, root, act)
        finally:
            requests.cancel()

    return asyncio.run(main())


def test_follower_that_has_connected_again_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    master = ComparedFollowers(["s-b"], [connected("b", 1)], [connected("b", 2)])
    found = answer(tmp_path, SimpleNamespace(elected=master), "verify", monkeypatch)
    assert [each["problem"] for each in found["comparisons"]] == ["its connection has ended"]
    assert code_of(found) is ReplicaExit.NOT_COMPARED


def test_follower_that_was_not_compared_does_not_count_as_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = ComparedFollowers(["s-b"], [connected("b"), connected("c")])
    master.results = {"s-b": EQUAL}
    found = answer(tmp_path, SimpleNamespace(elected=master), "verify", monkeypatch)
    assert {each["member"]: bool(each["problem"]) for each in found["comparisons"]} == {"b": False, "c": True}
    assert code_of(found) is ReplicaExit.NOT_COMPARED


def test_repair_whose_end_is_not_known_names_no_fetched_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = ComparisonResult(problem="another comparison is under way")
    replication = SimpleNamespace(elected=None)
    replication.copy = ComparedCopy(replication, DIFFERENT, problem, problem)
    found = answer(tmp_path, replication, "repair", monkeypatch)
    assert replication.copy.repaired == [(Journal.MESSAGES, 1)]
    assert found["repaired"] == []
    assert code_of(found) is ReplicaExit.NOT_COMPARED


def test_repair_names_the_fetched_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replication = SimpleNamespace(elected=None)
    replication.copy = ComparedCopy(replication, DIFFERENT, EQUAL)
    found = answer(tmp_path, replication, "repair", monkeypatch)
    assert found["repaired"] == ["kahadb/db-1.log"]
    assert code_of(found) is ReplicaExit.EQUAL


@pytest.mark.parametrize(
    ("act", "is_done", "expected"),
    [
        ("verify", False, {"is_done": True, "problem": "the member was restarted meanwhile: ask it again"}),
        ("promote", False, {"is_done": True, "is_unknown": True}),
        ("verify", True, {"is_done": True, "problem": ""}),
    ],
)
def test_request_that_a_former_run_was_carrying_out_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str, is_done: bool, expected: Mapping[str, Any]
) -> None:
    """The command would wait for two minutes for a member that has been killed, and was started again."""
    (tmp_path / "replica").mkdir()
    put(tmp_path, REQUEST_NAME, {"id": "1", "act": act})
    put(tmp_path, ANSWER_NAME, {"id": "1", "is_done": is_done, "problem": ""})

    async def pause(_: float) -> None:
        raise InterruptedError

    monkeypatch.setattr(asyncio, "sleep", pause)  # the first look is over
    with pytest.raises(InterruptedError):
        asyncio.run(ReplicaRequests(cast("Replication", SimpleNamespace()), "b", tmp_path).run())
    found = get(tmp_path, ANSWER_NAME)
    assert {**found, **expected} == found
