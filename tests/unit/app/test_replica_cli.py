"""`pybroker replica`: answers of a member in lines and exit codes, and a member that does not answer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.app import replica_cli, replica_requests
from pybroker.broker.app.replica_cli import ReplicaExit, ask, code_of, described
from pybroker.broker.app.replica_requests import ANSWER_NAME, REQUEST_NAME, RequestProgress, get, put
from pybroker.broker.domain.errors import ConfigError, StoreUnavailable

EQUAL = {"member": "b", "files": 3, "bytes": 1000, "different": [], "problem": ""}


def answer(*comparisons: dict[str, Any], problem: str = "", repaired: tuple[str, ...] = ()) -> dict[str, Any]:
    return RequestProgress("1", True, 0, 0, comparisons, [*repaired], problem).as_json()


def test_equal_stores() -> None:
    found = answer(EQUAL, repaired=("kahadb/db-1.log",))
    assert code_of(found) is ReplicaExit.EQUAL
    assert described(found) == [
        "kahadb/db-1.log: fetched from the master",
        "b: equal to the master's: 3 data files, 1,000 bytes",
    ]


def test_different_stores() -> None:
    different = [{"file": "kahadb/db-1.log", "damaged": "b"}, {"file": "kahadb/db-2.log", "damaged": "master"}]
    found = answer(EQUAL | {"member": "c"}, EQUAL | {"different": different})
    assert code_of(found) is ReplicaExit.DIFFERENT
    assert described(found)[1:] == [
        "kahadb/db-1.log: differs, and the records of the master's are sound: pybroker replica repair, on b",
        "kahadb/db-2.log: differs, and the records of the MASTER's are damaged: make a standby master",
        "b: 2 of 3 data files, 1,000 bytes DIFFER from the master's",
    ]


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (answer(problem="none is live"), "not compared: none is live"),
        (
            answer(EQUAL | {"problem": "its connection has ended"}),
            "b: NOT COMPARED as a whole: its connection has ended",
        ),
    ],
)
def test_stores_that_were_not_compared(found: dict[str, Any], line: str) -> None:
    assert code_of(found) is ReplicaExit.NOT_COMPARED
    assert described(found) == [line]


def test_a_directory_without_a_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="not the directory of a replicated member"):
        ask(tmp_path, "verify")
    (tmp_path / "replica").mkdir()
    monkeypatch.setattr(replica_cli, "BEGIN_SECONDS", 0.01)
    monkeypatch.setattr(replica_cli, "LOOK_SECONDS", 0.001)
    put(tmp_path, ANSWER_NAME, answer(EQUAL))  # to an earlier request
    with pytest.raises(StoreUnavailable, match="no member has answered"):
        ask(tmp_path, "verify")
    assert get(tmp_path, REQUEST_NAME)["act"] == "verify"


def test_two_commands_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to one would replace the answer to the other, which would wait in vain."""
    (tmp_path / "replica").mkdir()
    monkeypatch.setattr(replica_cli, "LOOK_SECONDS", 0.001)
    refusals: list[str] = []

    def second(_: Mapping[str, Any]) -> None:
        with pytest.raises(StoreUnavailable, match="another command is asking its member") as refused:
            ask(tmp_path, "repair")
        refusals.append(str(refused.value))
        put(tmp_path, ANSWER_NAME, get(tmp_path, ANSWER_NAME) | {"is_done": True})

    def begin(root: Path, name: str, values: Mapping[str, Any]) -> None:
        put(root, name, values)
        put(root, ANSWER_NAME, answer(EQUAL) | {"id": values["id"], "is_done": False})

    monkeypatch.setattr(replica_requests, "put", begin)
    assert replica_cli.converse(tmp_path, {"act": "verify"}, second)["comparisons"] == [EQUAL]
    assert len(refusals) == 1
    assert get(tmp_path, REQUEST_NAME)["act"] == "verify"


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff"])
def test_files_that_are_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "replica").mkdir()
    (tmp_path / "replica" / replica_requests.ANSWER_NAME).write_bytes(content)
    assert get(tmp_path, ANSWER_NAME) == {}
