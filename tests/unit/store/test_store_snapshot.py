# mypy: disable-error-code="attr-defined"
"""The store snapshot: its contents, and that a start with it equals a start without it."""

import io
import logging
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.errors import LockNotHeld
from pybroker.broker.domain.openwire.objects import encode_subscription_info
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from pybroker.store.journal import store_snapshot
from pybroker.store.journal.commands import AddMessage, Command, Prepare, RemoveMessage, Subscribe, Trace
from pybroker.store.journal.contents import Contents
from pybroker.store.journal.declared_queues import encode_declared
from pybroker.store.journal.format import Location, data_file_name
from pybroker.store.journal.snapshot_messages import SnapshotMessages
from pybroker.store.journal.snapshot_writer import INTERVAL_MS, SnapshotWriter
from pybroker.store.journal.state import StoreState
from pybroker.store.journal.store_snapshot import SNAPSHOT_NAME, UnusableSnapshot, follower, read, snapshot, write
from tests.compiled import interpreted
from tests.runtimes import runtime
from tests.unit.store.states import ORDERS, add, append, batch, described, message_id, remove, replayed, write_file

PRICES = topic("PRICES")
XA = XATransactionId(1, b"global", b"branch")


def allowed() -> None:
    """Pass the fence."""


def subscribe(name: str) -> Subscribe:
    """Return a command that makes a durable subscription."""
    made = DurableSubscription(client_id="client", name=name, destination=PRICES, subscribed_destination=PRICES)
    return Subscribe(PRICES, made.key, encode_subscription_info(made))


def everything() -> list[Command]:
    """Return commands after which a state has some of all it can have."""
    local = LocalTransactionId("ID:c:1", 1)
    return [
        subscribe("s"),
        subscribe("t"),
        *(AddMessage(PRICES, f"ID:p:{number}", b"x", number, True) for number in range(10)),
        RemoveMessage(PRICES, "ID:p:3", None, "client:s"),
        *(add(number) for number in range(20)),
        remove(3),
        add(5, 70),  # a duplicate, whose file counts too
        AddMessage(queue("ODD"), "an id\nof two lines", b""),
        AddMessage(queue("ODD"), "ÄÖ", b""),
        AddMessage(ORDERS, "in local", b"", transaction=local),
        RemoveMessage(ORDERS, message_id(7), transaction=local),
        AddMessage(ORDERS, "in XA", b"y" * 9, 9, True, XA),
        RemoveMessage(PRICES, "ID:p:4", None, "client:t", XA),
        Prepare(XA),
        encode_declared([queue("KEPT")]),
    ]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Two files and the index over them."""
    commands = everything()
    write_file(tmp_path, 1, [batch(*commands[:12]), batch(*commands[12:20])])
    path = write_file(tmp_path, 2, [batch(*commands[20:])], preallocated=1 << 16)
    index(tmp_path, Location(2, path.read_bytes().index(b"-qMa4")))
    return tmp_path


def index(directory: Path, covered: Location) -> None:
    """Write the index of a journal that ends there."""
    reader = store_snapshot.Follower(directory)
    while not reader.advance().is_at_end:
        pass
    assert reader.location == covered
    write(snapshot(reader.state, covered), directory, allowed)


def reasons(directory: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Start from the index, compare with a start without it, and return why it was not used."""
    with caplog.at_level(logging.INFO):
        reader = follower(directory)
        result = reader.finish()
    state, expected = replayed(directory)
    assert described(reader.state) == described(state)
    for field in ("damages", "torn_tails", "last_file_id", "end", "unfinished", "closing_traces"):
        assert getattr(result, field) == getattr(expected, field)
    return [each.getMessage() for each in caplog.records if "whole journal" in each.getMessage()] + [
        each.getMessage().rpartition(": ")[2] for each in caplog.records if "first file" in each.getMessage()
    ]


# ---------------------------------------------------------------- what is kept


def test_everything_comes_back(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = replayed(journal)[0]
    for slice_messages in (store_snapshot.SLICE_MESSAGES, 1, 3):
        monkeypatch.setattr(store_snapshot, "SLICE_MESSAGES", slice_messages)
        index(journal, Location(2, (journal / data_file_name(2)).read_bytes().index(b"-qMa4")))
        start = read(journal)
        assert start is not None
        assert described(start.state) == described(state)
        assert start.state.usage.references == state.usage.references
        assert list(start.state.destinations) == list(state.destinations)
        assert list(start.state.sequences.items()) == list(state.sequences.items())
        assert start.state.declared.files == state.declared.files


@interpreted
def test_every_part_of_the_state_is_in_the_snapshot() -> None:
    known = {"destinations", "inflight", "prepared", "usage", "compacted", "sequences", "declared", "_seen"}
    known |= {
        "_committing",
        "_recalling",
        "_removed",
        "_unsubscribed",
    }  # empty in a snapshot: all of it is applied before
    assert vars(StoreState()).keys() == known, "what was added to the state belongs into the index, and its version up"


def test_a_start_reads_only_what_follows(journal: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(journal / data_file_name(2), batch(add(90), remove(8)) + batch(Trace("pybroker clean stop")))
    assert reasons(journal, caplog) == []
    assert follower(journal).finish().records.values()
    reader = follower(journal)
    reader.finish()
    assert reader.record_count == 3
    assert reader.resumed_at.file_id == 2


def test_a_long_queue_stays_in_columns_until_the_ids_are_cached(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_snapshot, "SLICE_MESSAGES", 3)
    index(journal, Location(2, (journal / data_file_name(2)).read_bytes().index(b"-qMa4")))
    reader = follower(journal)
    reader.finish()
    kinds = {str(each): type(contents.messages) for each, contents in reader.state.destinations.items()}
    assert kinds == {
        "queue://ORDERS": SnapshotMessages,
        "queue://ODD": dict,
        "queue://KEPT": dict,
        "topic://PRICES": dict,
    }
    reader.cache_ids()
    assert {type(contents.messages) for contents in reader.state.destinations.values()} == {dict}
    assert described(reader.state) == described(replayed(journal)[0])


@pytest.mark.parametrize(("count", "kind"), [(1, SnapshotMessages), (20, dict)])
def test_a_long_queue_is_materialised_before_many_records(
    journal: Path, monkeypatch: pytest.MonkeyPatch, count: int, kind: type
) -> None:
    monkeypatch.setattr(store_snapshot, "SLICE_MESSAGES", 3)
    index(journal, Location(2, (journal / data_file_name(2)).read_bytes().index(b"-qMa4")))
    write_file(journal, 3, [batch(*map(add, range(90, 90 + count)))])
    write_file(journal, 4, [batch(add(200), remove(8))])
    reader = follower(journal)
    reader.finish()
    assert type(reader.state.destinations[ORDERS].messages) is kind
    assert described(reader.state) == described(replayed(journal)[0])


@pytest.mark.parametrize(
    ("count", "ids", "run"), [(2, b"a", 2), (1, b"a\nb", 1), (1, b"a", 2), (3, b"a\nb\nc", 3)], ids=str
)
def test_columns_of_different_lengths_make_no_sense(count: int, ids: bytes, run: int) -> None:
    columns = store_snapshot._Columns(io.BytesIO(ids + bytes(8 * min(count, 2))))
    with pytest.raises(ValueError, match="columns of different lengths"):
        columns.read(Contents(is_topic=False), count, len(ids), True, [[1, run]])


@pytest.mark.parametrize("name", ["01-mixed", "02-consumed-gc", "03-durable", "05-xa-indoubt-kill9", "06-priority"])
def test_a_captured_store_starts_from_an_index(
    sample: Callable[[str], Any], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    directory = sample(name).kahadb
    reader = store_snapshot.Follower(directory)
    while not reader.advance().is_at_end:
        pass
    write(snapshot(reader.state, reader.location), directory, allowed)
    assert reasons(directory, caplog) == []


# ---------------------------------------------------------------- what it may not be used for


def test_no_index_is_no_event(journal: Path, caplog: pytest.LogCaptureFixture) -> None:
    (journal / SNAPSHOT_NAME).unlink()
    assert read(journal) is None
    assert reasons(journal, caplog) == []


def test_any_damaged_byte_is_noticed(journal: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = journal / SNAPSHOT_NAME
    sound = path.read_bytes()
    for offset in [*range(60), *random.Random(1).sample(range(60, len(sound)), 200)]:
        damaged = bytearray(sound)
        damaged[offset] ^= 1 << offset % 8
        path.write_bytes(damaged)
        with pytest.raises(UnusableSnapshot):
            read(journal)
    assert len(reasons(journal, caplog)) == 1


def test_any_truncation_is_noticed(journal: Path) -> None:
    path = journal / SNAPSHOT_NAME
    sound = path.read_bytes()
    for length in range(0, len(sound), 7):
        path.write_bytes(sound[:length])
        with pytest.raises(UnusableSnapshot):
            read(journal)


def test_another_version_is_not_read(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_snapshot, "VERSION", 99)
    with pytest.raises(UnusableSnapshot, match="version 1, and this pybroker reads version 99"):
        read(journal)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda path: path.write_bytes(path.read_bytes() + b"\0"), None),
        (lambda path: path.unlink(), "db-1.log is gone although something in it was alive"),
        (lambda path: write_file(path.parent, 1, [batch(add(1))]), "db-1.log was changed"),
    ],
)
def test_a_covered_file_that_is_not_the_same_is_noticed(
    journal: Path, caplog: pytest.LogCaptureFixture, change: Callable[[Path], object], reason: str | None
) -> None:
    change(journal / data_file_name(1))
    assert reasons(journal, caplog) == [reason or "db-1.log was changed"]


def test_a_last_file_that_is_not_the_same_is_noticed(journal: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_file(journal, 2, [batch(add(77)), batch(*everything()[20:])])
    expected = "db-2.log was replaced by a file that does not hold what was read"
    assert reasons(journal, caplog) == [expected]


def test_a_last_file_that_was_sealed_or_copied_is_the_same(journal: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = journal / data_file_name(2)
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content.rstrip(b"\0"))
    write_file(journal, 3, [batch(add(91))])
    assert reasons(journal, caplog) == []


def test_an_unknown_older_file_is_noticed(journal: Path, caplog: pytest.LogCaptureFixture) -> None:
    (journal / data_file_name(2)).rename(journal / data_file_name(5))
    assert len(reasons(journal, caplog)) == 1


def test_an_empty_directory_with_an_index_is_an_empty_store(journal: Path, caplog: pytest.LogCaptureFixture) -> None:
    for path in journal.glob("db-*.log"):
        path.unlink()
    assert len(reasons(journal, caplog)) == 1


# ---------------------------------------------------------------- writing


def test_a_master_that_lost_its_lock_leaves_the_index_alone(journal: Path) -> None:
    def lost() -> None:
        raise LockNotHeld("the lock was taken away")

    before = (journal / SNAPSHOT_NAME).read_bytes()
    with pytest.raises(LockNotHeld):
        write(snapshot(StoreState(), Location(2, 0)), journal, lost)
    assert (journal / SNAPSHOT_NAME).read_bytes() == before
    assert sorted(each.name for each in journal.iterdir()) == ["db-1.log", "db-2.log", SNAPSHOT_NAME]


def test_an_index_over_what_is_not_there_is_not_written(journal: Path) -> None:
    with pytest.raises(UnusableSnapshot):
        write(snapshot(StoreState(), Location(2, 17)), journal, allowed)


def test_a_snapshot_is_not_written_if_its_last_file_was_deleted(journal: Path) -> None:
    before = (journal / SNAPSHOT_NAME).read_bytes()
    with pytest.raises(UnusableSnapshot, match=r"db-3\.log was deleted since"):
        write(snapshot(StoreState(), Location(3, 0)), journal, allowed)
    assert (journal / SNAPSHOT_NAME).read_bytes() == before


def test_a_snapshot_stays_as_it_is(journal: Path) -> None:
    state = replayed(journal)[0]
    taken = snapshot(state, Location(2, (journal / data_file_name(2)).read_bytes().index(b"-qMa4")))
    before = described(replayed(journal)[0])
    state.apply(add(300), Location(3, 0))
    state.apply(remove(9), Location(3, 50))
    state.apply(RemoveMessage(PRICES, "ID:p:5", None, "client:s"), Location(3, 90))
    state.apply(subscribe("u"), Location(3, 130))
    write(taken, journal, allowed)
    start = read(journal)
    assert start is not None
    assert described(start.state) == before


class Gate:
    """A gate that holds a thread until the test opens it."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def __call__(self) -> None:
        assert self.opened.wait(20)


def indexer(
    directory: Path, check: Callable[[], None] = allowed, *, grown: int = 0, wanted: bool = True
) -> SnapshotWriter:
    """Return what writes the index of a directory."""
    return SnapshotWriter(
        directory,
        runtime=runtime(fence=check),
        has_space=lambda _: True,
        is_wanted=lambda: wanted,
        grown_bytes_min=grown,
    )


def test_one_index_is_written_at_a_time(journal: Path) -> None:
    gate = Gate()
    writer = indexer(journal, gate)
    covered = Location(2, (journal / data_file_name(2)).read_bytes().index(b"-qMa4"))
    taken = snapshot(replayed(journal)[0], covered)
    writer.begin(taken)
    assert writer.is_busy
    writer.begin(taken)
    assert not writer.is_due(covered, 10 * INTERVAL_MS)
    gate.opened.set()
    writer.end(covered, lambda: taken)
    assert not writer.is_busy
    assert read(journal) is not None


def test_a_snapshot_is_due_after_time_and_growth(tmp_path: Path) -> None:
    writer = indexer(tmp_path, grown=1500)
    (tmp_path / data_file_name(8)).write_bytes(bytes(1500))
    (tmp_path / data_file_name(9)).write_bytes(bytes(1000))
    assert not writer.is_due(Location(9, 0), 0)
    assert not writer.is_due(Location(9, 0), INTERVAL_MS - 1)
    assert writer.is_due(Location(9, 0), 2 * INTERVAL_MS)
    writer.set_covered(Location(9, 0), {})
    assert not writer.is_due(Location(10, 499), 4 * INTERVAL_MS)
    assert writer.is_due(Location(10, 500), 6 * INTERVAL_MS)
    assert not writer.is_due(Location(5000, 499), 8 * INTERVAL_MS), "numbers that no file has count nothing"


def test_a_clean_stop_writes_none_for_a_standby_or_small_journal(journal: Path) -> None:
    (journal / SNAPSHOT_NAME).unlink()

    def never() -> Any:
        raise AssertionError("no one wants it")

    indexer(journal, wanted=False).end(Location(2, 0), never)
    indexer(journal, grown=10_000).end(Location(2, 0), never)
    assert not (journal / SNAPSHOT_NAME).exists()


def test_a_directory_that_cannot_be_read_is_only_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    indexer(tmp_path / "gone").end(Location(2, 0), lambda: pytest.fail("there is nothing to write into"))
    assert "the next start may take longer" in caplog.text


def test_a_clean_stop_writes_one_if_a_covered_file_changed(journal: Path) -> None:
    covered = Location(2, (journal / data_file_name(2)).read_bytes().index(b"-qMa4"))
    taken = snapshot(replayed(journal)[0], covered)
    writer = indexer(journal, grown=10_000)
    writer.set_covered(covered, write(taken, journal, allowed).files)
    before = (journal / SNAPSHOT_NAME).stat().st_mtime_ns
    writer.end(covered, lambda: taken)
    assert (journal / SNAPSHOT_NAME).stat().st_mtime_ns == before
    os.utime(journal / data_file_name(1))
    writer.end(covered, lambda: taken)
    assert (journal / SNAPSHOT_NAME).stat().st_mtime_ns > before


def test_a_snapshot_that_cannot_be_written_is_only_logged(journal: Path, caplog: pytest.LogCaptureFixture) -> None:
    (journal / (SNAPSHOT_NAME + store_snapshot.UNFINISHED_SUFFIX)).mkdir()
    covered = Location(2, (journal / data_file_name(2)).read_bytes().index(b"-qMa4"))
    indexer(journal).end(covered, lambda: snapshot(replayed(journal)[0], covered))
    assert "the next start may take longer" in caplog.text
