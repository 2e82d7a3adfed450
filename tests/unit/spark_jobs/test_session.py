"""Small journals get a session that starts quickly."""

from pathlib import Path

import pytest

from pybroker.spark_jobs import session


@pytest.fixture
def journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two directories of 600 bytes each, where 1000 are little."""
    monkeypatch.setattr(session, "SMALL_BYTES", 1000)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "db-1.log").write_bytes(bytes(600))
        (tmp_path / name / "db.data").write_bytes(bytes(5000))
    return tmp_path / "a", tmp_path / "b"


def test_data_files_of_all_directories_count(journals: tuple[Path, Path]) -> None:
    one, other = journals
    assert session.is_small(one)
    assert session.is_small(str(one))
    assert session.is_small([str(other)])
    assert not session.is_small([one, str(other)])


def test_of_what_is_no_directory_nothing_is_known(tmp_path: Path) -> None:
    assert not session.is_small(None)
    assert not session.is_small([])
    assert not session.is_small(object())
    assert not session.is_small("s3a://archive/kahadb")
    assert not session.is_small([str(tmp_path / "missing")])
