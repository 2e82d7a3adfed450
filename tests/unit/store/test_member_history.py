"""A member's history on disk: bounded, readable by others, and no more than a loss when it is damaged."""

import os
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.role import Role
from pybroker.store.member_history import HISTORY_MAX, LINE_MAX, Entry, HistoryFile, read_history
from pybroker.store.members import MemberFile, MemberRecord, prune, read_members


def entry(number: int) -> Entry:
    return {"at_ms": number, "kind": "role"}


def test_entries_are_read_in_their_order(tmp_path: Path) -> None:
    history = HistoryFile(tmp_path, "b.example")
    for number in range(3):
        history.append(entry(number))
    assert read_history(tmp_path, "b.example") == [entry(0), entry(1), entry(2)]
    assert read_history(tmp_path, "other") == []


def test_the_newest_entries_are_kept(tmp_path: Path) -> None:
    history = HistoryFile(tmp_path, "b")
    for number in range(3 * HISTORY_MAX):
        history.append(entry(number))
        assert len((tmp_path / "b.history").read_bytes().splitlines()) <= 2 * HISTORY_MAX
    assert read_history(tmp_path, "b") == [entry(number) for number in range(2 * HISTORY_MAX, 3 * HISTORY_MAX)]
    assert [path.name for path in tmp_path.iterdir()] == ["b.history"]


def test_another_process_goes_on_with_what_is_there(tmp_path: Path) -> None:
    HistoryFile(tmp_path, "b").append(entry(1))
    again = HistoryFile(tmp_path, "b")
    assert again.earlier == [entry(1)]
    again.append(entry(2))
    assert read_history(tmp_path, "b") == [entry(1), entry(2)]


@pytest.mark.parametrize("torn", [b'{"at_ms": 2, "ki', b"[]\n", b"\xff\xfe\n", b"[" * 100_000])
def test_a_damaged_line_costs_itself_alone(tmp_path: Path, torn: bytes) -> None:
    HistoryFile(tmp_path, "b").append(entry(1))
    with (tmp_path / "b.history").open("ab") as stream:
        stream.write(torn)
    assert read_history(tmp_path, "b") == [entry(1)]
    HistoryFile(tmp_path, "b").append(entry(3))
    assert read_history(tmp_path, "b") == [entry(1), entry(3)]


def test_an_entry_longer_than_a_line_is_not_written(tmp_path: Path) -> None:
    history = HistoryFile(tmp_path, "b")
    history.append(entry(1))
    history.append({"reason": "x" * LINE_MAX})
    assert read_history(tmp_path, "b") == [entry(1)]


def test_a_failed_write_is_an_error_and_made_up_for_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = HistoryFile(tmp_path, "b")
    history.append(entry(1))
    with monkeypatch.context() as failing:
        failing.setattr(os, "write", lambda fd, data: 3)
        with pytest.raises(StoreUnavailable, match=r"b\.history: the history cannot be written: No space left"):
            history.append(entry(2))
    history.append(entry(3))
    assert read_history(tmp_path, "b") == [entry(1), entry(2), entry(3)]


def test_pipe_in_place_of_a_history_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "b.history")
    with pytest.raises(StoreUnavailable, match="cannot be read: it is no regular file"):
        read_history(tmp_path, "b")
    HistoryFile(tmp_path, "b").append(entry(1))
    assert read_history(tmp_path, "b") == [entry(1)]


def test_history_is_deleted_with_its_member_and_no_member_itself(tmp_path: Path) -> None:
    times: dict[str, Any] = {"since_ms": 0, "started_ms": 0, "updated_ms": 0}
    file = MemberFile.claim(tmp_path, "b")
    file.publish(MemberRecord(name="b", role=Role.STANDBY, pid=1, host="h", version="1", **times))
    HistoryFile(tmp_path, "b").append(entry(1))
    assert [each.name for each in read_members(tmp_path)] == ["b"]
    file.close()
    assert prune(tmp_path, older_than_ms=-1_000, now_ms=1 << 43) == ["b"]
    assert list(tmp_path.iterdir()) == []
