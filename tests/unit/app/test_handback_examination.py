"""`pybroker handback` on stores in directories: what it finds there, what it refuses, moves, and leaves as it is."""

import json
import os
import pwd
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pybroker.broker.app import handback as handback_module
from pybroker.broker.app import handback_examination, handback_moves
from pybroker.broker.app.cli import commands
from pybroker.broker.core.scheduling_queue import SCHEDULING_QUEUE
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.openwire.objects import encode_subscription_info
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import XATransactionId
from pybroker.locks.file import FileLock
from pybroker.locks.flock import FlockLock
from pybroker.store.journal.commands import (
    AckMessageFileMap,
    AddScheduledJob,
    Command,
    Prepare,
    Subscribe,
    Trace,
)
from pybroker.store.journal.declared_queues import encode_declared
from tests.unit.app.test_journal_cli import as_shown
from tests.unit.store.tools.journals import TOPIC, ack, add, subscribe, write

PAGE = Path(__file__).parents[3] / "docs" / "handback.md"
XA = XATransactionId(1, b"global", b"branch")
STARTED = Trace("pybroker 0.1 started 2026-01-01T00:00:00.000+00:00, epoch 1")
LOADED = Trace("LOADED Thu Jan 01 00:00:00 UTC 2026")
JOB = AddScheduledJob("JMS", "ID:job:1", 0, "", 1000, 0, 0, add(9).data, 1000)


def handback(*arguments: object) -> Result:
    user = pwd.getpwuid(os.getuid()).pw_name
    words = ["handback", *map(str, arguments), *(() if "--user" in arguments else ("--user", user))]
    return CliRunner().invoke(commands, words, catch_exceptions=False)


def report(*arguments: object) -> dict[str, Any]:
    done = handback(*arguments, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["exit_code"] == done.exit_code
    return found


def kinds(found: dict[str, Any], urgency: str = "to do") -> set[str]:
    return {each["kind"] for each in found["findings"] if each["urgency"] == urgency}


def tree(directory: Path) -> dict[Path, bytes | None]:
    """Return all paths below a directory, with the contents of files."""
    return {path: None if path.is_dir() else path.read_bytes() for path in directory.rglob("*")}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def made(store: Path) -> Callable[..., Path]:
    """Writes a journal with these records, as a pybroker leaves it."""

    def make(*records: Command) -> Path:
        write(store / "kahadb", [STARTED, *records])
        return store

    return make


def test_a_plain_store_is_ready_and_stays_as_it_is(made: Callable[..., Path]) -> None:
    store = made(subscribe("s"), add(1), add(2), ack(1), add(3, TOPIC))
    before = tree(store)
    found = report(store)
    assert found["exit_code"] == 0
    assert (found["messages"], found["subscriptions"], found["scheduled"], found["in_doubt"]) == (2, 1, 0, [])
    assert kinds(found) == set()
    assert tree(store) == before
    shown = handback(store)
    assert shown.exit_code == 0
    assert "ready for ActiveMQ 5.17: 2 messages, 1 durable subscription, 0 scheduled messages" in shown.stdout
    assert f'<kahaDB directory="{store}/kahadb" />' in shown.stdout
    assert "Java 11 or later" in shown.stdout


def test_the_journals_directory_itself_can_be_named(made: Callable[..., Path]) -> None:
    store = made(add(1))
    assert report(store / "kahadb")["activemq_xml"] == report("--store", store)["activemq_xml"]


def test_contents_that_pybroker_alone_knows_are_found(made: Callable[..., Path]) -> None:
    owned = DurableSubscription(
        client_id="c", name="owned", destination=TOPIC, subscribed_destination=TOPIC, user="ann"
    )
    store = made(
        encode_declared([queue("Consumer.a.VirtualTopic.X"), queue("Q")]),
        Subscribe(TOPIC, owned.key, encode_subscription_info(owned)),
        add(1),
        add(2, queue("PRIO"), priority=9),
        add(3, SCHEDULING_QUEUE),
        add(4, SCHEDULING_QUEUE, transaction=XA),
        Prepare(XA),
    )
    found = report(store)
    assert kinds(found) == {"scheduling queue", "scheduling in doubt"}
    assert kinds(found, "setting") == {"empty queues", "priorities"}
    assert {"in doubt", "owners", "records", "version", "index"} <= kinds(found, "note")
    assert [line.strip() for line in found["activemq_xml"] if "<queue " in line] == [
        '<queue physicalName="Consumer.a.VirtualTopic.X" />'
    ]
    assert found["exit_code"] == 1
    accepted = report(store, "--accept", "scheduling queue", "--accept", "scheduling in doubt")
    assert accepted["exit_code"] == 0


def test_a_selector_that_activemq_refuses_is_found(made: Callable[..., Path]) -> None:
    terms = [
        DurableSubscription(
            client_id="c", name=name, destination=TOPIC, subscribed_destination=TOPIC, selector=selector
        )
        for name, selector in (("a", "price > 5"), ("b", "NOT price > 5"), ("c", None))
    ]
    found = report(made(*(Subscribe(TOPIC, each.key, encode_subscription_info(each)) for each in terms)))
    assert kinds(found) == {"selectors"}
    assert (
        "1 durable subscription with a selector that ActiveMQ refuses: c:b (NOT price > 5)"
        in found["findings"][0]["what"]
    )


def test_damage_is_to_be_dealt_with(made: Callable[..., Path]) -> None:
    store = made(add(1), add(2), add(3))
    path = store / "kahadb" / "db-1.log"
    data = bytearray(path.read_bytes())
    data[data.index(b"text 1")] ^= 1
    path.write_bytes(data)
    found = report(store)
    assert kinds(found) == {"damaged batch"}
    (damage,) = [each for each in found["findings"] if each["urgency"] == "to do"]
    assert damage["what"].startswith(f"{path}, offset ")
    assert "salvage" in damage["remedy"]


# ---------------------------------------------------------------- refusals


def test_a_store_in_use_is_refused_with_the_remedy(made: Callable[..., Path]) -> None:
    store = made(add(1))
    for lock in (FileLock(store / "kahadb" / "lock", clock=int), FlockLock(store / "kahadb" / "lock.flock", clock=int)):
        assert lock.try_acquire()
        try:
            done = handback(store)
        finally:
            lock.release()
        assert done.exit_code == 2
        assert f"{lock.name} is held by" in done.stderr
        assert "stop every member of the store first" in done.stderr
    assert handback(store).exit_code == 0


def test_a_store_in_use_is_examined_with_in_use_and_stays_as_it_is(made: Callable[..., Path]) -> None:
    terms = DurableSubscription(
        client_id="c", name="s", destination=TOPIC, subscribed_destination=TOPIC, selector="NOT price > 5"
    )
    store = made(Subscribe(TOPIC, terms.key, encode_subscription_info(terms)), add(1))
    lock = FileLock(store / "kahadb" / "lock", clock=int)
    assert lock.try_acquire()
    try:
        before = tree(store)
        found = report(store, "--in-use")
        assert tree(store) == before
        lock.check()
    finally:
        lock.release()
    assert (found["messages"], found["exit_code"]) == (1, 1)
    assert kinds(found) == {"selectors"}
    assert "in use" in kinds(found, "note")


def test_an_activemq_that_schedules_there_is_noticed(made: Callable[..., Path]) -> None:
    store = made(add(1))
    write(store / "scheduler", [JOB])
    lock = FileLock(store / "scheduler" / "lock", clock=int)
    assert lock.try_acquire()
    try:
        assert handback(store).exit_code == 2
    finally:
        lock.release()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--activemq-version", "4.0"], "nothing is known of ActiveMQ 4.0"),
        (["--yes"], "there is nothing to move"),
        (["--in-use", "--yes", "--move-to", "moved"], "nothing can be moved then"),
        (["--user", "no-such-user"], "there is no user no-such-user"),
        (["--jobs-to", "jobs"], "there are no scheduled messages"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    made: Callable[..., Path], arguments: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = made(add(1))
    with pytest.raises(Exception, match=text):
        handback(store, *arguments)


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    for path, text in ((tmp_path / "no", "does not exist"), (tmp_path, "there is no KahaDB journal")):
        done = handback(path)
        assert done.exit_code == 2
        assert text in done.stderr
    write(tmp_path / "scheduler", [JOB])
    assert "there is no journal of messages" in handback(tmp_path).stderr
    with pytest.raises(Exception, match="a store in memory ends with its broker"):
        handback("memory:")


# ---------------------------------------------------------------- indexes


@pytest.mark.parametrize(
    ("records", "kind"),
    [
        ([LOADED, add(1), STARTED], "to do"),
        ([STARTED, add(1)], "to do"),
        ([LOADED, STARTED, AckMessageFileMap(b"map")], "to do"),
        ([STARTED, add(1), LOADED], "note"),
        ([LOADED, add(1)], "note"),
    ],
    ids=["pybroker last", "pybroker alone", "ActiveMQ tried to start", "ActiveMQ last", "ActiveMQ alone"],
)
def test_an_index_is_stale_if_pybroker_served_last(store: Path, records: list[Command], kind: str) -> None:
    write(store / "kahadb", records)
    (store / "kahadb" / "db.data").touch()
    assert "index" in kinds(report(store), kind)


def test_a_stale_index_is_moved_and_one_that_fits_is_not(store: Path, tmp_path: Path) -> None:
    write(store / "kahadb", [LOADED, add(1), STARTED])
    write(store / "scheduler", [STARTED, JOB])
    for path in (store / "kahadb" / "db.data", store / "kahadb" / "db.redo", store / "scheduler" / "scheduleDB.data"):
        path.touch()
    found = report(store, "--move-to", tmp_path / "moved", "--yes")
    assert found["exit_code"] == 0
    names = {path.relative_to(tmp_path / "moved").as_posix() for path in (tmp_path / "moved").rglob("*.*")}
    assert names == {"kahadb/db.data", "kahadb/db.redo", "scheduler/scheduleDB.data"}


# ---------------------------------------------------------------- scheduled messages


def test_scheduled_messages_stay_and_are_named_or_are_moved(made: Callable[..., Path], tmp_path: Path) -> None:
    store, jobs = made(add(1)), tmp_path / "activemq" / "localhost" / "scheduler"
    write(store / "scheduler", [STARTED, JOB])
    found = report(store)
    assert found["scheduled"] == 1
    assert kinds(found, "setting") == {"scheduled messages"}
    assert f'schedulerDirectory="{store}/scheduler"' in found["activemq_xml"][0]
    planned = report(store, "--jobs-to", jobs)
    assert planned["moves"] == [{"from": f"{store}/scheduler", "to": str(jobs), "done": False}]
    assert (store / "scheduler").exists()
    moved = report(store, "--jobs-to", jobs, "--yes")
    assert moved["moves"][0]["done"]
    assert f'schedulerDirectory="{jobs}"' in moved["activemq_xml"][0]
    assert (jobs / "db-1.log").exists()
    assert not (store / "scheduler").exists()
    assert report(store, "--scheduler-store", jobs)["activemq_xml"] == moved["activemq_xml"]


def test_scheduled_messages_of_two_directories_are_not_served_together(made: Callable[..., Path]) -> None:
    store = made(add(1))
    write(store / "localhost" / "scheduler", [JOB])
    assert kinds(report(store)) == set()
    write(store / "scheduler", [JOB])
    assert kinds(report(store)) == {"other scheduled messages"}


# ---------------------------------------------------------------- files


def test_own_files_are_named_and_moved(made: Callable[..., Path], tmp_path: Path) -> None:
    store = made(add(1))
    own = [store / "kahadb" / "pybroker.index", store / "kahadb" / "db-9.log.1.sealed", store / "members" / "a.json"]
    for path in own:
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    (store / "kahadb" / "lock").touch()
    found = report(store)
    assert "own files" in kinds(found, "note")
    before = tree(store)
    report(store, "--move-to", tmp_path / "moved")
    assert tree(store) == before
    report(store, "--move-to", tmp_path / "moved", "--yes")
    assert {path.relative_to(store) for path in own} == {
        path.relative_to(tmp_path / "moved") for path in (tmp_path / "moved").rglob("*") if path.is_file()
    }
    assert {path.name for path in (store / "kahadb").iterdir()} == {"db-1.log", "lock"}
    (store / "members").mkdir()
    with pytest.raises(Exception, match="exists; name a new directory"):
        handback(store, "--move-to", tmp_path / "moved")


def test_a_target_within_what_is_moved_is_refused(made: Callable[..., Path]) -> None:
    store = made(add(1))
    write(store / "scheduler", [JOB])
    with pytest.raises(Exception, match=r"--jobs-to: .* is in .*scheduler"):
        handback(store, "--jobs-to", store / "scheduler" / "here")


@pytest.fixture
def another_file_system(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is not in the store is on another file system."""
    rename = Path.rename

    def refusing(source: Path, target: Path) -> Path:
        if source.is_relative_to(store) is not target.is_relative_to(store):
            raise OSError(18, "Invalid cross-device link")
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", refusing)


@pytest.mark.usefixtures("another_file_system")
def test_a_move_to_another_file_system_is_a_copy(made: Callable[..., Path], tmp_path: Path) -> None:
    store = made(add(1))
    write(store / "scheduler", [JOB])
    (store / "kahadb" / "pybroker.index").write_text("x")
    data = (store / "scheduler" / "db-1.log").read_bytes()
    report(store, "--jobs-to", tmp_path / "jobs", "--move-to", tmp_path / "moved", "--yes")
    assert (tmp_path / "jobs" / "db-1.log").read_bytes() == data
    assert (tmp_path / "moved" / "kahadb" / "pybroker.index").read_text() == "x"
    assert not (store / "scheduler").exists()
    assert not (store / "kahadb" / "pybroker.index").exists()
    assert not list(tmp_path.glob("*.unfinished"))
    assert not list(store.glob("*.moved*"))


@pytest.mark.usefixtures("another_file_system")
def test_an_interrupted_move_leaves_no_part_of_the_original(
    made: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = made(add(1))
    write(store / "scheduler", [JOB])
    files = {path.name: data for path, data in tree(store / "scheduler").items()}
    remove = shutil.rmtree

    def interrupted(path: Path) -> None:
        (path / "db-1.log").unlink()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    assert handback(store, "--jobs-to", tmp_path / "jobs", "--yes").exit_code == 2
    assert {path.name: data for path, data in tree(tmp_path / "jobs").items()} == files
    assert not (store / "scheduler").exists(), "a part of it would be taken for all scheduled messages"
    with pytest.raises(Exception, match="there are no scheduled messages"):
        handback(store, "--jobs-to", tmp_path / "others", "--yes")
    monkeypatch.setattr(shutil, "rmtree", remove)
    write(store / "scheduler", [JOB])
    report(store, "--jobs-to", tmp_path / "others", "--yes")
    assert not list(store.glob("scheduler*"))


def test_a_move_that_fails_is_reported(
    made: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = made(add(1))
    (store / "kahadb" / "pybroker.index").write_text("x")

    def failing(_source: Path, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(handback_moves, "_move", failing)
    done = handback(store, "--move-to", tmp_path / "moved", "--yes")
    assert done.exit_code == 2
    assert "No space left on device" in done.stderr


def test_nothing_is_moved_from_a_store_that_came_into_use(
    made: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = made(add(1))
    (store / "kahadb" / "pybroker.index").write_text("x")

    def seen_free(*_directories: Path) -> None:
        """The lock was free a moment ago."""

    monkeypatch.setattr(handback_examination, "require_free", seen_free)
    lock = FileLock(store / "kahadb" / "lock", clock=int)
    assert lock.try_acquire()
    try:
        assert handback(store, "--move-to", tmp_path / "moved", "--yes").exit_code == 2
    finally:
        lock.release()
    assert (store / "kahadb" / "pybroker.index").exists()


def test_files_that_activemqs_user_cannot_write_are_to_be_given_away(
    made: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = made(add(1))
    other = pwd.struct_passwd(("mq", "x", 4711, 4711, "", "/", "/bin/sh"))
    users = {"mq": other}

    def getpwnam(name: str) -> pwd.struct_passwd:
        return users[name]

    monkeypatch.setattr(pwd, "getpwnam", getpwnam)
    found = report(store, "--user", "mq")
    assert kinds(found) == {"owner"}
    assert found["commands"][0] == f"chown -R mq: {store}/kahadb"


# ---------------------------------------------------------------- settings


def test_the_settings_of_the_members_are_taken_over(made: Callable[..., Path], tmp_path: Path) -> None:
    store = made(add(1))
    file = tmp_path / "pybroker.toml"
    file.write_text(
        f'store = "{store}"\njournal_file_max = "64mb"\nsync = "periodic"\nsync_interval = "500ms"\narchive = true\n'
        'broker_name = "orders"\nlock = "flock"\n'
    )
    found = report("--config", file)
    lines = "".join(found["activemq_xml"])
    assert 'journalMaxFileLength="67108864"' in lines
    assert 'journalDiskSyncStrategy="periodic" journalDiskSyncInterval="500"' in lines
    assert 'archiveDataLogs="true"' in lines
    assert 'brokerName="orders"' in lines
    assert "lock" in kinds(found, "note")
    (store / "kahadb" / "pybroker.broker").write_text('{"broker_id": "ID:x-1", "broker_name": "kept"}\n')
    assert 'brokerName="kept"' in "".join(report("--config", file)["activemq_xml"])


# ---------------------------------------------------------------- the page


@pytest.fixture
def shared(store: Path) -> Path:
    """The store of docs/handback.md."""
    write(
        store / "kahadb",
        [STARTED, subscribe("s"), subscribe("t"), *(add(number) for number in range(17))],
    )
    jobs = [JOB._replace(job_id=f"ID:job:{number}") for number in range(3)]
    write(store / "scheduler", [STARTED, *jobs])
    return store


def test_the_page_shows_what_the_command_prints(shared: Path) -> None:
    (block,) = re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    command, *expected = block.replace("/mnt/shared", str(shared)).splitlines()
    assert expected[-2:] == ["$ echo $?", "0"]
    done = handback(*shlex.split(command.removeprefix("$ "))[2:])
    assert done.exit_code == 0
    assert as_shown(expected[:-2]).fullmatch(done.stdout), done.stdout


def test_the_pages_moves_are_done(shared: Path, tmp_path: Path) -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (shared / "members").mkdir()
    for line in block.splitlines():
        words = shlex.split(line.replace("/mnt/shared", str(shared)))
        words = [word if word.startswith((str(shared), "-", "pyb", "hand")) else f"{tmp_path}{word}" for word in words]
        assert handback(*words[2:]).exit_code == 0
    assert (tmp_path / "var/lib/activemq/data/localhost/scheduler/db-1.log").exists()
    assert (tmp_path / "mnt/pybroker-files/members").is_dir()


def test_the_page_has_each_finding() -> None:
    page = set(re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    source = Path(handback_module.__file__).read_text(encoding="utf-8")
    made = set(re.findall(r'(?:_todo|_setting|_note)\(\s*"([^"]+)"', source))
    assert made - {"records", "own tables"} == page
