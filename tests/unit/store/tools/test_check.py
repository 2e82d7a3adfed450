"""Findings of a check on stores captured from ActiveMQ, and on damage and oddities made by hand."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.openwire import message as openwire
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from pybroker.store.journal.commands import (
    AckMessageFileMap,
    AddMessage,
    Command,
    Commit,
    Prepare,
    ProducerAudit,
    RemoveMessage,
    RewrittenDataFile,
    Trace,
    UpdateMessage,
)
from pybroker.store.journal.format import BATCH_HEADER_BYTES, EOF_MARKER
from pybroker.store.journal.replay import replay
from pybroker.store.journal.state import StoreState
from pybroker.store.journal.tools.check import CheckReport, check
from pybroker.store.journal.tools.findings import Finding, Level
from pybroker.store.journal.tools.journal_snapshot import JournalSnapshot
from pybroker.store.journal.tools.observed_replay import Writer
from tests.unit.store.tools.journals import QUEUE, ack, add, batch, subscribe, write

TX = LocalTransactionId("ID:c:1", 1)
XA = XATransactionId(1, b"g", b"b")


def checked(directory: Path, *, in_use: bool = False) -> CheckReport:
    with JournalSnapshot(directory) as snapshot:
        return check(snapshot, in_use=in_use)


def found(directory: Path, **how: bool) -> list[tuple[str, str]]:
    return [(finding.level.value, finding.kind) for finding in checked(directory, **how).findings]


def only(directory: Path) -> Finding:
    (finding,) = checked(directory).findings
    return finding


# ---------------------------------------------------------------- captured stores

CAPTURED = {
    "01-mixed": [],
    "02-consumed-gc": [],
    "03-durable": [],
    "04-localtx-kill9": ["unfinished transaction"],
    "05-xa-indoubt-kill9": ["unfinished transaction", "in doubt", "in doubt"],
    "06-priority": [],
    "07-large": [],
    "08-torn-tail": ["torn tail"],
    "09-scheduled": [],
    "10-corrupt-batch": ["damaged batch"] * 4,
    "11-redelivered-updates": ["updates"],
}


@pytest.mark.parametrize("name", CAPTURED)
def test_captured_stores_are_sound_but_for_what_was_done_to_them(sample: Callable[[str], Any], name: str) -> None:
    store = sample(name)
    result = checked(store.kahadb)
    assert [finding.kind for finding in result.findings] == CAPTURED[name]
    assert result.is_sound is (name != "10-corrupt-batch")
    assert result.files == sum(each["path"].startswith("kahadb/db-") for each in store.facts["files"])


def test_a_captured_scheduler_is_sound(sample: Callable[[str], Any]) -> None:
    store = sample("09-scheduled")
    result = checked(store.scheduler)
    assert (result.findings, result.records["ADD_SCHEDULED_JOB"]) == ([], 10)


def test_each_damage_is_reported_with_activemqs_reaction(sample: Callable[[str], Any]) -> None:
    """ActiveMQ's behaviour was tried out, with its index and without."""
    store = sample("10-corrupt-batch")
    (store.kahadb / "db.data").unlink()
    flipped, magic, zeroed, last = checked(store.kahadb).findings

    assert [(each.offset, each.length) for each in (flipped, magic, zeroed, last)] == [
        (21438, 1125),
        (43938, 1125),
        (11250, 1125),
        (2252, 1126),
    ]
    assert "silently takes these records as they are" in flipped.activemq
    assert magic.activemq == "refuses to start"
    assert zeroed.activemq == "silently loses the rest of this file, 47 sound records behind this"
    assert "drops the batch with a warning" in last.activemq
    assert "nothing can be rescued" in zeroed.remedy
    assert all("ID:vm-36257" in each.what for each in (flipped, magic, last))


def test_an_index_hides_damage_from_activemq(sample: Callable[[str], Any]) -> None:
    findings = checked(sample("10-corrupt-batch").kahadb).findings
    assert all(each.activemq.startswith("notices nothing until") for each in findings[:3])


# ---------------------------------------------------------------- damage made by hand


@pytest.mark.parametrize("seed", range(60))
def test_a_changed_byte_anywhere_is_found(tmp_path: Path, seed: int) -> None:
    """Except what no one reads: a checksum that became none."""
    dice = random.Random(seed)
    files: list[list[Command]] = [
        [add(1), add(2), ack(1)],
        [subscribe("s"), add(3, transaction=TX), Commit(TX), ack(2), add(6)],
    ]
    write(tmp_path, *files)
    path = tmp_path / f"db-{dice.choice((1, 2))}.log"
    data = bytearray(path.read_bytes())
    offset = dice.randrange(len(data))
    data[offset] ^= dice.randint(1, 255)
    path.write_bytes(data)
    findings = checked(tmp_path).findings
    assert findings
    assert any(
        finding.path == str(path) and (finding.offset or 0) <= offset < (finding.offset or 0) + (finding.length or 0)
        for finding in findings
    )


def test_a_message_that_was_consumed_later_is_no_loss(tmp_path: Path) -> None:
    write(tmp_path, [add(1), add(2)], [ack(1)])
    path = tmp_path / "db-1.log"
    path.write_bytes(path.read_bytes().replace(b"text 1", b"text X"))
    assert "of the messages 1 had been consumed" in only(tmp_path).what


def test_a_cut_batch_in_an_earlier_file_is_damage(tmp_path: Path) -> None:
    write(tmp_path, [add(1), add(2)], [add(3)])
    path = tmp_path / "db-1.log"
    path.write_bytes(path.read_bytes()[:-40])
    finding = only(tmp_path)
    assert (finding.level, finding.kind, finding.activemq) == (Level.DAMAGE, "damaged batch", "refuses to start")


def test_a_damaged_length_costs_activemq_nothing(tmp_path: Path) -> None:
    write(tmp_path, [add(1), add(4)], [add(2)])
    path = tmp_path / "db-1.log"
    data = bytearray(path.read_bytes())
    data[18] ^= 1
    path.write_bytes(data)
    assert only(tmp_path).activemq == "notices nothing, and loses nothing"


@pytest.mark.parametrize(("in_use", "kind"), [(False, "torn tail"), (True, "being written")])
def test_a_torn_tail_is_no_damage(tmp_path: Path, in_use: bool, kind: str) -> None:
    write(tmp_path, [add(1), add(2)])
    path = tmp_path / "db-1.log"
    path.write_bytes(path.read_bytes()[:-40])
    assert found(tmp_path, in_use=in_use) == [("notice", kind)]


def test_a_message_that_does_not_decode_is_damage(tmp_path: Path) -> None:
    write(tmp_path, [add(1), AddMessage(QUEUE, "ID:x", b"\x1c\x00"), b"\x01\x02\x03\x04"], [add(2)])
    assert found(tmp_path) == [("damage", "damaged record")] * 2


def test_properties_that_do_not_decode_are_a_clients(tmp_path: Path) -> None:
    command = add(1)
    assert isinstance(command, AddMessage)
    message = openwire.decode(command.data)
    message.marshalled_properties = b"\0\0"
    write(tmp_path, [command._replace(data=openwire.encode(message))], [add(2)])
    assert found(tmp_path) == [("notice", "unreadable properties")]


def test_a_record_of_a_newer_version_is_reported_and_skipped(tmp_path: Path) -> None:
    write(tmp_path, [add(1), b"\x63\x00", add(2)])
    result = checked(tmp_path)
    assert [finding.kind for finding in result.findings] == ["newer record"]
    assert result.records == {"ADD_MESSAGE": 2}


def test_a_checksum_that_switches_itself_off_is_damage(tmp_path: Path) -> None:
    write(tmp_path, [add(1)])
    path = tmp_path / "db-1.log"
    data = bytearray(path.read_bytes())
    data[BATCH_HEADER_BYTES - 8] ^= 0x80
    path.write_bytes(data)
    assert found(tmp_path) == [("damage", "damaged checksum")]


def test_batches_without_checksums_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "db-1.log").write_bytes(batch(add(1), checksum=False) + EOF_MARKER)
    assert found(tmp_path) == [("notice", "unchecked batches")]


@pytest.mark.parametrize("count", [1, 4])
def test_a_cut_marker_that_activemq_stumbles_over_is_a_hazard(tmp_path: Path, count: int) -> None:
    write(tmp_path, [add(1)], marker=EOF_MARKER[:count])
    write(tmp_path, [add(2)], first=2)
    assert found(tmp_path) == [("hazard", "cut marker")]


@pytest.mark.parametrize("zeros", [0, 100])
def test_a_missing_end_is_damage_where_markers_are_written(tmp_path: Path, zeros: int) -> None:
    write(tmp_path, [add(1)])
    write(tmp_path, [add(2)], first=2, marker=bytes(zeros))
    write(tmp_path, [add(3)], first=3)
    assert found(tmp_path) == [("damage", "missing end")]
    assert "the loss is unknown" in only(tmp_path).what
    (tmp_path / "db-1.log").unlink()
    assert found(tmp_path) == [], "the writer may know no markers"
    write(tmp_path, [Trace("pybroker started"), add(2)], first=2, marker=bytes(zeros))
    assert found(tmp_path) == [("damage", "missing end")]


def test_below_an_empty_file_the_end_may_be_missing(tmp_path: Path) -> None:
    write(tmp_path, [add(1)])
    write(tmp_path, [add(2)], first=2, marker=b"")
    (tmp_path / "db-3.log").write_bytes(EOF_MARKER)
    assert found(tmp_path) == []


# ---------------------------------------------------------------- one against the other


def test_acks_of_unknown_messages_in_whole_journals_are_damage(tmp_path: Path) -> None:
    write(tmp_path, [add(1), add(2)], [ack(1), ack(7), add(3)])
    finding = only(tmp_path)
    assert (finding.level, finding.kind) == (Level.DAMAGE, "acknowledged, never added")
    assert ":7" in finding.what


def test_adds_dropped_by_compaction_are_not_missed(tmp_path: Path) -> None:
    write(tmp_path, [add(1)], [ack(7)])
    assert found(tmp_path) == []


@pytest.mark.parametrize(
    ("files", "first"),
    [
        ([[add(2)], [ack(1)]], 2),  # db-1.log was collected
        ([[add(2)], [Trace("compacted in place")], [ack(1)]], 1),
        ([[add(1)], [ack(1), ack(1)]], 1),
    ],
    ids=["collected", "compacted", "twice"],
)
def test_acknowledgements_whose_messages_may_be_gone_are_normal(
    tmp_path: Path, files: list[list[Command]], first: int
) -> None:
    write(tmp_path, *files, first=first)
    assert found(tmp_path) == []


def test_live_messages_in_a_skipped_file_are_a_hazard(tmp_path: Path) -> None:
    write(tmp_path, [add(1)], [add(2), ack(1)], [RewrittenDataFile(2), ack(1), add(3)])
    finding = only(tmp_path)
    assert (finding.level, finding.kind) == (Level.HAZARD, "skipped file")
    assert finding.what.startswith("1 live message in")
    (tmp_path / "db-2.log").unlink()
    assert found(tmp_path) == []


def test_copied_acks_behind_their_commit_are_a_hazard(tmp_path: Path) -> None:
    write(tmp_path, [add(1)], [Commit(TX)], [RewrittenDataFile(9), ack(1, transaction=TX)])
    assert found(tmp_path) == [("hazard", "late acknowledgements")]


def test_updates_are_a_hazard(tmp_path: Path) -> None:
    write(tmp_path, [add(1), UpdateMessage(add(1, text="again"))])
    assert found(tmp_path) == [("hazard", "updates")]


def test_transactions_without_an_end_are_noticed(tmp_path: Path) -> None:
    write(tmp_path, [add(1, transaction=TX), add(2, transaction=XA), ack(9, transaction=XA), Prepare(XA)])
    assert found(tmp_path) == [
        ("notice", "unfinished transaction"),
        ("notice", "in doubt"),
        ("hazard", "in doubt without ack"),
    ]
    assert "under way" in checked(tmp_path, in_use=True).findings[0].what


def test_copies_half_made_are_noticed(tmp_path: Path) -> None:
    write(tmp_path, [add(1)])
    (tmp_path / "db-1.log.sealed").write_bytes(b"x")
    assert found(tmp_path) == [("notice", "leftovers")]


def test_a_check_agrees_with_recovery_about_damage(sample: Callable[[str], Any]) -> None:
    directory = sample("10-corrupt-batch").kahadb
    recovered = replay(directory, StoreState()).damages
    findings = checked(directory).findings
    assert [(each.offset, each.length) for each in findings] == [(each.offset, each.length) for each in recovered]


def test_removes_need_no_add_of_a_topic_without_subscriptions(tmp_path: Path) -> None:
    write(tmp_path, [RemoveMessage(QUEUE, "ID:gone", transaction=TX), Commit(TX)])
    assert found(tmp_path) == []


# ---------------------------------------------------------------- the writer


@pytest.mark.parametrize(
    ("records", "writer"),
    [
        ([add(1)], None),
        ([Trace("pybroker 1 started"), add(1)], Writer.PYBROKER),
        ([Trace("pybroker 1 started"), Trace("LOADED Thu"), add(1), Trace()], Writer.ACTIVEMQ),
        ([Trace("LOADED Thu"), ProducerAudit(b"x"), Trace("pybroker time 1700000000000")], Writer.PYBROKER),
        ([Trace("pybroker time 1700000000000"), AckMessageFileMap(b"x")], Writer.PYBROKER),
    ],
)
def test_the_last_writer_is_told_by_its_own_records(
    tmp_path: Path, records: list[Command], writer: Writer | None
) -> None:
    assert checked(write(tmp_path, records)).last_writer is writer
