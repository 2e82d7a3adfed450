"""`pybroker journal`: exit codes, output for people and programs, and that reading leaves no trace."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from pybroker.broker.app import journal_cli, journal_lock, wiring
from pybroker.broker.app.cli import commands
from pybroker.broker.app.config import Config
from pybroker.broker.app.journal_cli import EXIT_DAMAGED, EXIT_REFUSED, EXIT_SOUND
from pybroker.broker.domain.ports import LockProvider
from pybroker.broker.domain.role import Role
from pybroker.locks.file import FileLock
from pybroker.store.journal.tools import journal_snapshot
from pybroker.store.members import MemberFile, MemberRecord
from tests.unit.store.tools.journals import add, subscribe, write

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "journal-tools.md"
INDEX = "db.data"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(commands, ["journal", *map(str, arguments)], catch_exceptions=False)


def json_lines(*arguments: object) -> list[dict[str, object]]:
    return [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The documentation's stores, in the working directory."""
    for name, directory in (("10-corrupt-batch", "damaged"), ("02-consumed-gc", "data"), ("09-scheduled", "mixed")):
        with tarfile.open(ROOT / "tests" / "golden" / "kahadb" / f"{name}.tar.gz") as archive:
            archive.extractall(tmp_path, filter="data")
        (tmp_path / name).rename(tmp_path / directory)
        (tmp_path / directory / "kahadb" / INDEX).unlink()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYBROKER_STORE", raising=False)
    return tmp_path


# ---------------------------------------------------------------- the page


def console_blocks() -> Iterator[list[str]]:
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        yield block.splitlines()


def as_shown(lines: list[str]) -> re.Pattern[str]:
    """Return what matches lines in which a … stands for the rest of a line, or, alone, for any lines."""
    parts = [r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in lines]
    return re.compile("".join(parts))


@pytest.mark.usefixtures("stores")
def test_the_pages_examples_print_what_it_shows() -> None:
    seen: list[str] = []
    for block in console_blocks():
        exit_code = 0
        steps = re.split(r"^\$ ", "\n".join(block), flags=re.MULTILINE)[1:]
        for step in steps:
            command, *expected = step.rstrip("\n").split("\n")
            if command == "echo $?":
                assert expected == [str(exit_code)]
                continue
            words = shlex.split(command)
            assert words[:2] == ["pybroker", "journal"]
            done = run(*words[2:])
            exit_code = done.exit_code
            assert as_shown(expected).fullmatch(done.stdout), f"{command}\n{done.stdout}{done.stderr}"
            seen.append(words[2])
    assert set(seen) == set(journal_cli.journal.commands) - {"export"}


@pytest.mark.usefixtures("stores")
def test_the_pages_export_writes_the_store(stores: Path) -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["bash", "-ec", block], env={**os.environ, "PATH": path}, check=True)
    lines = (stores / "store.jsonl").read_text().splitlines()
    assert {json.loads(line)["kind"] for line in lines} <= {"message", "subscription", "transaction", "scheduled"}
    assert lines


def test_a_wrong_example_would_be_found() -> None:
    assert as_shown(["a …", "…", "z"]).fullmatch("a b c\nd\ne\nz\n")
    assert not as_shown(["a …", "z"]).fullmatch("a b\nd\nz\n")


def test_the_page_names_every_finding_and_no_other() -> None:
    page = set(
        re.findall(r"`([a-z, ]+)`", PAGE.read_text(encoding="utf-8").split("## dump")[0].split("| finding |")[1])
    )
    sources = ROOT / "pybroker" / "store" / "journal" / "tools"
    source = (sources / "check.py").read_text() + (sources / "findings.py").read_text()
    names = {name for name in page if f'"{name}"' in source}
    assert names == page
    kinds = re.findall(r'(?:Level\.\w+,|_find_all\(|_find_transaction\()\s*"([a-z, ]+)"', source)
    assert set(kinds) <= page


# ---------------------------------------------------------------- exit codes


@pytest.mark.parametrize("command", ["check", "dump", "why", "export", "export --live"])
@pytest.mark.parametrize(("store", "code"), [("data", EXIT_SOUND), ("mixed", EXIT_SOUND), ("damaged", EXIT_DAMAGED)])
@pytest.mark.usefixtures("stores")
def test_exit_code_of_reading_reports_damage(command: str, store: str, code: int) -> None:
    for form in ((), ("--json",)):
        done = run(*command.split(), store, *form)
        assert done.exit_code == code, done.output
        assert done.stdout
        assert not done.stderr


@pytest.mark.parametrize("command", ["check", "dump", "why", "export", "compact"])
def test_database_url_is_refused_without_its_password(command: str) -> None:
    done = run(command, "postgresql://user:s3cret@host/database")
    assert done.exit_code == EXIT_REFUSED
    assert "a store in a database has no journal" in done.stderr
    assert "s3cret" not in done.output


@pytest.mark.parametrize("command", ["check", "dump", "why", "export", "compact"])
@pytest.mark.parametrize(
    ("store", "expected"),
    [
        ("missing", "missing does not exist; name the data directory of a broker"),
        ("file", "file is no directory"),
        ("empty", "no KahaDB journal"),
        (".", "name one of damaged/kahadb, data/kahadb"),
        ("foreign", "not a KahaDB journal"),
    ],
)
def test_what_cannot_be_used_is_one_line_with_a_remedy(stores: Path, command: str, store: str, expected: str) -> None:
    (stores / "file").touch()
    (stores / "empty").mkdir()
    if store == "foreign":
        (stores / "foreign").mkdir()
        (stores / "foreign" / "db-1.log").write_bytes(b"PK\x03\x04" * 99)
    elif store == ".":
        store = str(stores)
        expected = expected.replace("damaged/", f"{stores}/damaged/").replace("data/", f"{stores}/data/")
    done = run(command, store)
    assert done.exit_code in ((EXIT_REFUSED, EXIT_DAMAGED) if command == "compact" else (EXIT_REFUSED,))
    assert len(done.stderr.splitlines()) == 1
    for part in expected.split(", "):
        assert part in done.stderr


@pytest.mark.usefixtures("stores")
def test_a_file_that_may_not_be_read_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(journal_snapshot, "_descriptor", refuse)
    done = run("check", "data")
    assert (done.exit_code, len(done.stderr.splitlines())) == (EXIT_REFUSED, 1)
    assert "db-1.log cannot be read: Permission denied; check that it" in done.stderr


@pytest.mark.timeout(20)
@pytest.mark.parametrize("command", ["check", "dump", "why", "export", "salvage", "compact"])
def test_pipe_as_data_file_is_refused_in_one_line(stores: Path, command: str) -> None:
    os.mkfifo(stores / "data" / "kahadb" / "db-99.log")
    done = run(command, "data", *(["out"] if command == "salvage" else []))
    assert (done.exit_code, len(done.stderr.splitlines())) == (EXIT_REFUSED, 1)
    assert "db-99.log cannot be read: it is no regular file" in done.stderr


@pytest.mark.timeout(20)
def test_pipe_as_lock_file_does_not_stop_the_tools(stores: Path) -> None:
    lock = stores / "data" / "kahadb" / "lock"
    lock.unlink(missing_ok=True)
    os.mkfifo(lock)
    assert run("check", "data").exit_code == run("why", "data").exit_code == EXIT_SOUND
    done = run("compact", "data")
    assert done.exit_code == EXIT_REFUSED
    assert "cannot open the lock file: it is no regular file" in done.stderr


def test_a_directory_that_may_not_be_read_is_one_line(stores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "glob", refuse)
    done = run("check", stores / "data")
    assert (done.exit_code, len(done.stderr.splitlines())) == (EXIT_REFUSED, 1)
    assert "run this as the broker's user" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("dump", "data", "--type", "nonsense"), "known are trace, add_message"),
        (("dump", "data", "--from", "12"), "FILE:OFFSET"),
        (("dump", "data", "--to", "x:y"), "FILE:OFFSET"),
        (("compact", "data", "--archive", "x", "--delete-originals"), "leave one of them out"),
    ],
)
@pytest.mark.usefixtures("stores")
def test_arguments_that_make_no_sense_name_the_remedy(arguments: tuple[str, ...], expected: str) -> None:
    with pytest.raises(Exception, match=expected):
        run(*arguments)


def test_a_store_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYBROKER_STORE", raising=False)
    assert run("check").exit_code == EXIT_REFUSED


@pytest.mark.usefixtures("stores")
def test_the_store_may_be_named_in_three_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run("check", "data").stdout
    assert run("check", "--store", "data").stdout == expected
    monkeypatch.setenv("PYBROKER_STORE", "data")
    assert run("check").stdout == expected
    assert run("check", "mixed").stdout != expected


# ---------------------------------------------------------------- what is printed


@pytest.mark.usefixtures("stores")
def test_a_store_with_a_scheduler_is_two_journals() -> None:
    assert [each["directory"] for each in json_lines("check", "mixed")] == ["mixed/kahadb", "mixed/scheduler"]
    assert {each["kind"] for each in json_lines("export", "--live", "mixed")} == {"message", "scheduled"}
    assert [each["kind"] for each in json_lines("export", "--live", "mixed/scheduler")] == ["scheduled"] * 6
    assert len(json_lines("why", "mixed")) == 2


@pytest.mark.usefixtures("stores")
def test_filters_reach_the_dump() -> None:
    found = json_lines("dump", "data", "--destination", "queue://PART.>", "--type", "remove-message", "--file", "5")
    assert found
    assert {(each["record"], each["file"]) for each in found} == {("REMOVE_MESSAGE", 5)}
    assert all(str(each["destination"]).startswith("queue://PART.") for each in found)


def test_bodies_for_people_stay_on_their_line(tmp_path: Path) -> None:
    write(tmp_path, [subscribe("s"), add(1, text="first\nsecond\x1b[31m" + "x" * 200)])
    for command in (("dump", "--bodies"), ("export", "--live")):
        done = run(*command, tmp_path)
        assert len(done.stdout.splitlines()) == 2
        assert "\x1b" not in done.stdout


@pytest.mark.parametrize("command", ["check", "dump --bodies", "why", "export", "export --live"])
def test_reading_leaves_no_trace(stores: Path, command: str) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino) for path in (stores / "mixed").rglob("*")}

    (stores / "mixed" / "kahadb" / "lock").unlink()
    before = state()
    assert run(*command.split(), "mixed").exit_code == EXIT_SOUND
    assert state() == before


# ---------------------------------------------------------------- locks


def clock() -> int:
    return 1_700_000_000_000


@contextmanager
def holding(lock: LockProvider) -> Iterator[None]:
    """Hold a lock."""
    assert lock.try_acquire()
    try:
        yield
    finally:
        lock.release()


@pytest.mark.parametrize("kind", wiring.lock_paths(Path()))
def test_a_store_in_use_is_not_compacted(stores: Path, kind: str) -> None:
    journal = stores / "data" / "kahadb"
    with holding(wiring.make_lock(Config(store="data", lock=kind))):
        assert journal_lock.is_in_use(journal)
        done = run("compact", "data")
        assert (done.exit_code, "stop every member" in done.stderr) == (EXIT_REFUSED, True)
        assert len(list(journal.glob("db-*.log"))) == 8
    assert not journal_lock.is_in_use(journal)
    assert run("compact", "data").exit_code == EXIT_SOUND


MEMBER = MemberRecord(
    name="amber", role=Role.MASTER, pid=7, host="h", version="0", since_ms=1, started_ms=1, updated_ms=1
)


@contextmanager
def alive(store: Path, **fields: object) -> Iterator[MemberFile]:
    """Have a member of a store live, with a lock that cannot be seen from there."""
    with closing(MemberFile.claim(store / "members", MEMBER.name)) as file:
        file.publish(replace(MEMBER, **{"lock_kind": "postgres-row", **fields}))  # type: ignore[arg-type]
        yield file


@pytest.mark.parametrize("named", ["mixed", "mixed/kahadb", "mixed/scheduler", "linked"])
@pytest.mark.parametrize(
    ("fields", "lock"),
    [
        ({"role": Role.MASTER}, "postgres-row"),
        ({"role": Role.STANDBY}, "postgres-row"),
        ({"lock_kind": "", "lock": "ACTIVEMQ_LOCK in db"}, "ACTIVEMQ_LOCK in db"),
        ({"lock_kind": "", "lock": "/a/kahadb/lock"}, "file"),
    ],
)
def test_store_of_a_living_member_is_not_compacted(
    stores: Path, named: str, fields: dict[str, object], lock: str
) -> None:
    """However the store is named; not even a lock file is created."""
    (stores / "linked").symlink_to(stores / "mixed" / "kahadb")
    for lock_file in stores.glob("mixed/*/lock"):
        lock_file.unlink()
    with alive(stores / "mixed", **fields):
        before = sorted(stores.rglob("*"))
        done = run("compact", named)
        role = fields.get("role", Role.MASTER)
        assert done.exit_code == EXIT_REFUSED
        assert f"member amber (process 7 on h) is alive as {role}, with lock = {lock}; stop every member" in done.stderr
        assert journal_lock.is_in_use(stores / "mixed" / "kahadb")
        assert sorted(stores.rglob("*")) == before
    assert not journal_lock.is_in_use(stores / "mixed" / "kahadb")
    assert run("compact", named).exit_code == EXIT_SOUND


@pytest.mark.parametrize("named", ["mixed", "mixed/orders-db"])
def test_store_of_a_living_member_with_a_named_journal_is_not_compacted(stores: Path, named: str) -> None:
    """The member says which of two journals is its own."""
    shutil.copytree(stores / "mixed" / "kahadb", stores / "mixed" / "orders-db")
    with alive(stores / "mixed", journal="orders-db"):
        done = run("compact", named)
        assert (done.exit_code, "member amber" in done.stderr) == (EXIT_REFUSED, True)
        assert journal_lock.is_in_use(stores / "mixed" / "orders-db")
        assert not journal_lock.is_in_use(stores / "mixed" / "kahadb")


def test_a_journal_of_another_name_is_found(stores: Path) -> None:
    (stores / "data" / "kahadb").rename(stores / "data" / "orders-db")
    done = run("check", "data")
    assert done.exit_code == EXIT_SOUND
    assert "data/orders-db: sound" in done.stdout


@pytest.mark.parametrize("command_store", ["data", "data/kahadb"])
def test_member_that_starts_before_the_locks_are_held_is_seen(
    stores: Path, monkeypatch: pytest.MonkeyPatch, command_store: str
) -> None:
    """It found no lock file held, so the tool has to find the member."""
    acquire = FileLock.try_acquire
    with ExitStack() as members:

        def start_first(lock: FileLock) -> bool:
            members.enter_context(alive(stores / "data"))
            return acquire(lock)

        monkeypatch.setattr(FileLock, "try_acquire", start_first)
        done = run("compact", command_store)
    assert (done.exit_code, "member amber" in done.stderr) == (EXIT_REFUSED, True)
    assert len(list((stores / "data" / "kahadb").glob("db-*.log"))) == 8
    assert not journal_lock.is_in_use(stores / "data" / "kahadb")


def test_store_of_an_unpublished_member_is_not_compacted(stores: Path) -> None:
    with closing(MemberFile.claim(stores / "data" / "members", "amber")):
        done = run("compact", "data")
    assert (done.exit_code, "member amber is alive: nothing was written yet" in done.stderr) == (EXIT_REFUSED, True)


def test_store_with_an_unreadable_member_is_not_compacted(stores: Path) -> None:
    (stores / "data" / "members").mkdir()
    (stores / "data" / "members" / "amber.json").symlink_to(stores / "elsewhere")
    done = run("compact", "data")
    assert (done.exit_code, "member amber may be alive: cannot be read" in done.stderr) == (EXIT_REFUSED, True)


def test_scheduler_of_a_locked_store_is_not_compacted(stores: Path) -> None:
    """A pybroker's lock on the journal covers the scheduled messages too."""
    with holding(FileLock(stores / "mixed" / "kahadb" / "lock", clock=clock)):
        done = run("compact", "mixed/scheduler")
    assert (done.exit_code, "kahadb/lock is held by" in done.stderr) == (EXIT_REFUSED, True)


@pytest.mark.usefixtures("stores")
def test_a_damaged_store_is_not_compacted() -> None:
    done = run("compact", "damaged")
    assert (done.exit_code, len(done.stderr.splitlines())) == (EXIT_DAMAGED, 1)
    assert "salvage" in done.stderr


def test_originals_are_archived_or_deleted_as_requested(stores: Path) -> None:
    (done,) = json_lines("compact", "data", "--archive", "kept")
    assert sorted(path.name for path in Path(str(done["archive"])).iterdir())[0] == "db-1.log"
    assert (stores / "kept").is_dir()
    (again,) = json_lines("compact", "data", "--delete-originals")
    assert again["archive"] is None


@pytest.mark.usefixtures("stores")
def test_salvage_keeps_the_layout_and_refuses_what_is_there() -> None:
    assert run("salvage", "mixed", "new").exit_code == EXIT_SOUND
    assert [each["directory"] for each in json_lines("check", "new")] == ["new/kahadb", "new/scheduler"]
    again = run("salvage", "mixed", "new")
    assert (again.exit_code, len(again.stderr.splitlines())) == (EXIT_REFUSED, 1)
    assert run("salvage", "mixed/kahadb", "bare").exit_code == EXIT_SOUND
    assert [each["directory"] for each in json_lines("check", "bare")] == ["bare"]


def test_the_pages_other_commands_parse() -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    words = shlex.split(block.partition(" > ")[0])
    journal_cli.journal.commands[words[2]].make_context(words[2], words[3:])


def test_every_command_has_an_example_that_parses() -> None:
    for name, command in journal_cli.journal.commands.items():
        epilog = command.epilog or ""
        examples = [line.strip() for line in epilog.splitlines() if line.strip().startswith("pybroker")]
        assert examples, name
        for example in examples:
            words = shlex.split(example.partition(" > ")[0])
            assert words[:3] == ["pybroker", "journal", name]
            assert isinstance(command, click.Command)
            command.make_context(name, words[3:])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no /dev/full")
def test_full_disk_under_the_output_is_no_damage(stores: Path) -> None:
    command = [sys.executable, "-m", "pybroker.broker.app.cli", "journal", "export", "--live", "--json", "data"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (
        EXIT_REFUSED,
        "pybroker: the output cannot be written: No space left on device\n",
    )
