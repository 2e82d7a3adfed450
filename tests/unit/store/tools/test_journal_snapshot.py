# mypy: disable-error-code="attr-defined"
"""A snapshot holds while its directory changes under it, and reports in one line what is wrong with a directory."""

from pathlib import Path

import pytest

from pybroker.broker.domain.errors import JournalCorrupt, StoreUnavailable
from pybroker.store.journal.commands import RewrittenDataFile
from pybroker.store.journal.format import EOF_MARKER
from pybroker.store.journal.tools import journal_snapshot as module
from pybroker.store.journal.tools.journal_snapshot import JournalSnapshot
from pybroker.store.journal.tools.scan import Scan
from tests.unit.store.tools.journals import add, batch, write


def test_deleted_and_replaced_files_are_read_as_they_were(tmp_path: Path) -> None:
    write(tmp_path, [add(1)], [add(2)])
    before = {number: (tmp_path / f"db-{number}.log").read_bytes() for number in (1, 2)}
    with JournalSnapshot(tmp_path) as snapshot:
        (tmp_path / "db-1.log").unlink()
        (tmp_path / "new").write_bytes(EOF_MARKER)
        (tmp_path / "new").replace(tmp_path / "db-2.log")
        assert {number: bytes(snapshot.load(number)[:]) for number in (1, 2)} == before


def test_a_file_that_vanishes_during_the_opening_restarts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file opened before may need the vanished one's acknowledgements."""
    write(tmp_path, [add(1)], [add(2)], [add(3)])
    opened = module._opened  # pyright: ignore[reportPrivateUsage]

    def collect(file_id: int, path: Path) -> module.DataFile:
        if file_id == 2 and path.exists():
            for name in ("db-1.log", "db-2.log"):
                (tmp_path / name).unlink()
        return opened(file_id, path)

    monkeypatch.setattr(module, "_opened", collect)
    with JournalSnapshot(tmp_path) as snapshot:
        assert list(snapshot.files) == [3]


def test_where_files_vanish_for_ever_it_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [add(1)])

    def gone(file_id: int, path: Path) -> module.DataFile:
        raise StoreUnavailable("gone") from FileNotFoundError(2, "No such file")

    monkeypatch.setattr(module, "_opened", gone)
    with pytest.raises(StoreUnavailable, match="vanish faster"):
        JournalSnapshot(tmp_path)


def test_a_batch_half_written_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read may see a later page of a write and not an earlier one."""
    write(tmp_path, [add(1), add(2), add(3)])
    whole = (tmp_path / "db-1.log").read_bytes()
    half = bytearray(whole)
    half[len(batch(add(1))) + 10 : len(batch(add(1))) + 90] = bytes(80)
    seen = [bytes(half), bytes(half), whole]
    with JournalSnapshot(tmp_path) as snapshot:
        monkeypatch.setattr(snapshot, "_load", lambda file: seen.pop(0))
        assert len(list(Scan(snapshot.load(1), 1))) == 3
    assert not seen


def test_many_files_are_open_at_once(tmp_path: Path) -> None:
    write(tmp_path, *([add(number)] for number in range(40)))
    resource = module.resource
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 10, hard))
    try:
        with JournalSnapshot(tmp_path) as snapshot:
            assert len(snapshot.files) == 40
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_writable_files_are_the_highest_and_below_compacted_ones(tmp_path: Path) -> None:
    write(tmp_path, [add(1)], [add(2)], [RewrittenDataFile(1)], [RewrittenDataFile(1)])
    with JournalSnapshot(tmp_path) as snapshot:
        assert snapshot.writable == {2, 3, 4}
    (tmp_path / "db-5.log").write_bytes(EOF_MARKER)
    (tmp_path / "db-6.log").touch()
    with JournalSnapshot(tmp_path) as snapshot:
        assert snapshot.writable == {2, 3, 4, 5, 6}


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda path: None, "no KahaDB journal here"),
        (lambda path: path.rmdir(), "cannot be read: No such file"),
        (lambda path: (path / "db-1.log").mkdir(), "db-1.log cannot be read: Is a directory"),
    ],
    ids=["empty", "missing", "a directory"],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, make: object, expected: str) -> None:
    directory = tmp_path / "store"
    directory.mkdir()
    make(directory)  # type: ignore[operator]
    with pytest.raises(StoreUnavailable, match=expected) as raised:
        JournalSnapshot(directory)
    assert "\n" not in str(raised.value)
    assert raised.value.hint


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    (tmp_path / "db-1.log").write_bytes(b"PK\x03\x04" * 100)
    with pytest.raises(JournalCorrupt, match="not a KahaDB journal"):
        JournalSnapshot(tmp_path)
