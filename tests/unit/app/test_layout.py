"""The directories of a store."""

from contextlib import closing
from pathlib import Path

import pytest

from pybroker.broker.app.config import Config, load
from pybroker.broker.app.layout import found_layout, layout, layout_of
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.role import Role
from pybroker.store.columns.files import journal_of
from pybroker.store.directories import differing_in_case, find_journal
from pybroker.store.members import MemberFile, MemberRecord


def fill(*directories: Path) -> None:
    for each in directories:
        each.mkdir(exist_ok=True)
        (each / "db-1.log").touch()


def test_the_journal_is_where_the_setting_says(tmp_path: Path) -> None:
    store = str(tmp_path)
    assert layout_of(Config(store=store)).journal == tmp_path / "kahadb"
    assert layout_of(Config(store=store, journal_directory="KahaDB")).journal == tmp_path / "KahaDB"
    assert layout_of(Config(store=store, journal_directory=".")).journal == tmp_path
    assert layout(store, journal="db").journal_name == "db"
    assert layout(store, journal=".").journal_name == "."


def test_a_store_with_data_files_is_the_journal(tmp_path: Path) -> None:
    fill(tmp_path)
    assert layout_of(Config(store=str(tmp_path), journal_directory=tmp_path.name)).journal == tmp_path
    assert found_layout(str(tmp_path)).journal_name == "."


@pytest.mark.parametrize("name", ["", "..", "a/b", "/db", "members", "scheduler", "a\0b", "a\\b"])
def test_the_name_of_the_journal_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"^--journal-directory: write the name of a directory in the store's"):
        load(None, {"store": str(tmp_path), "journal_directory": name})


@pytest.mark.parametrize("store", ["memory:", "postgresql://u@h/d"])
def test_a_journal_needs_a_directory_store(store: str) -> None:
    with pytest.raises(ConfigError, match="journal_directory goes with a store in a directory"):
        load(None, {"store": store, "journal_directory": "db"})


@pytest.mark.parametrize(
    ("filled", "empty", "found"),
    [
        ([], [], "kahadb"),
        ([], ["KahaDB"], "KahaDB"),
        ([], ["KahaDB", "kahadb"], "kahadb"),
        (["kahadb", "KahaDB"], [], "kahadb"),
        (["KahaDB"], ["kahadb"], "KahaDB"),
        (["db"], [], "db"),
        (["db", "scheduler", "members"], [], "db"),
        (["db"], ["kahadb"], "kahadb"),
        (["db", "old"], [], "kahadb"),
        (["scheduler"], [], "kahadb"),
    ],
)
def test_a_journal_is_found_without_settings(tmp_path: Path, filled: list[str], empty: list[str], found: str) -> None:
    fill(*(tmp_path / each for each in filled))
    for each in empty:
        (tmp_path / each).mkdir()
    assert find_journal(tmp_path) == tmp_path / found
    assert found_layout(str(tmp_path)).journal == tmp_path / found
    assert journal_of(tmp_path) == (tmp_path / found if filled + empty and (tmp_path / found).is_dir() else tmp_path)


@pytest.mark.parametrize(
    ("published", "found"), [("db", "db"), (".", "."), ("", "kahadb"), ("../elsewhere", "kahadb"), ("/", "kahadb")]
)
def test_a_member_knows_the_journal(tmp_path: Path, published: str, found: str) -> None:
    fill(tmp_path / "kahadb")
    with closing(MemberFile.claim(tmp_path / "members", "amber")) as file:
        file.publish(_naming(published))
        assert found_layout(str(tmp_path)).journal_name == found


def test_a_living_member_knows_it_better_than_a_dead_one(tmp_path: Path) -> None:
    with closing(MemberFile.claim(tmp_path / "members", "amber")) as alive:
        alive.publish(_naming("db"))
        with closing(MemberFile.claim(tmp_path / "members", "blue")) as dead:
            dead.publish(_naming("old", name="blue", updated_ms=2))
        assert found_layout(str(tmp_path)).journal_name == "db"
    assert found_layout(str(tmp_path)).journal_name == "old"


def _naming(journal: str, *, name: str = "amber", updated_ms: int = 1) -> MemberRecord:
    return MemberRecord(
        name=name, role=Role.MASTER, pid=7, host="h", version="0", since_ms=1, started_ms=1, updated_ms=updated_ms,
        journal=journal,
    )  # fmt: skip


def test_only_journals_that_differ_in_case_alone_are_alike(tmp_path: Path) -> None:
    fill(tmp_path / "KahaDB", tmp_path / "db")
    (tmp_path / "KAHADB").mkdir()
    assert differing_in_case(tmp_path / "kahadb") == [tmp_path / "KahaDB"]
    assert differing_in_case(tmp_path / "KahaDB") == []
