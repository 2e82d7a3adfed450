# mypy: disable-error-code="arg-type"
"""Records one by one: every type, every filter, damage in between."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.store.journal.commands import (
    AckMessageFileMap,
    AddScheduledJob,
    Command,
    CommandType,
    Commit,
    DestroyScheduler,
    Prepare,
    ProducerAudit,
    RemoveDestination,
    RemoveScheduledJob,
    RemoveScheduledJobs,
    RescheduleJob,
    RewrittenDataFile,
    Rollback,
    Trace,
    Unsubscribe,
    UpdateMessage,
)
from pybroker.store.journal.format import Location
from pybroker.store.journal.tools.dump import DumpedGap, DumpedRecord, RecordFilter, dump
from pybroker.store.journal.tools.journal_snapshot import JournalSnapshot
from tests.unit.store.tools.journals import OTHER, QUEUE, TOPIC, ack, add, message_id, subscribe, write

TX = LocalTransactionId("ID:c:1", 1)

EVERY_TYPE: dict[CommandType, Command] = {
    CommandType.TRACE: Trace("started"),
    CommandType.ADD_MESSAGE: add(1, transaction=TX),
    CommandType.REMOVE_MESSAGE: ack(1, TOPIC, key="client:s"),
    CommandType.PREPARE: Prepare(TX),
    CommandType.COMMIT: Commit(TX),
    CommandType.ROLLBACK: Rollback(TX),
    CommandType.REMOVE_DESTINATION: RemoveDestination(QUEUE),
    CommandType.SUBSCRIPTION: subscribe("s"),
    CommandType.PRODUCER_AUDIT: ProducerAudit(b"x"),
    CommandType.ACK_MESSAGE_FILE_MAP: AckMessageFileMap(b"x"),
    CommandType.UPDATE_MESSAGE: UpdateMessage(add(1)),
    CommandType.ADD_SCHEDULED_JOB: AddScheduledJob("JMS", "job", 1, "", 2, 3, 4, add(5).data, 6),
    CommandType.RESCHEDULE_JOB: RescheduleJob("JMS", "job", 6, 7, 1),
    CommandType.REMOVE_SCHEDULED_JOB: RemoveScheduledJob("JMS", "job", -1),
    CommandType.REMOVE_SCHEDULED_JOBS: RemoveScheduledJobs("JMS", 0, 9),
    CommandType.DESTROY_SCHEDULER: DestroyScheduler("JMS"),
    CommandType.REWRITTEN_DATA_FILE: RewrittenDataFile(3),
}


def records(directory: Path, wanted: RecordFilter | None = None, **how: bool) -> list[DumpedRecord]:
    with JournalSnapshot(directory) as snapshot:
        return [item for item in dump(snapshot, wanted, **how) if isinstance(item, DumpedRecord)]


def test_every_type_of_record_has_its_own_fields(tmp_path: Path) -> None:
    write(tmp_path, list(EVERY_TYPE.values()))
    found = records(tmp_path, bodies=True)
    assert [record.type for record in found] == [kind.name for kind in CommandType]
    for record in found:
        assert record.problem is None
        json.dumps(record.as_json())
    by_type = {record.type: record.as_json() for record in found}
    assert by_type["TRACE"]["text"] == "started"
    assert (by_type["ADD_MESSAGE"]["transaction"], by_type["ADD_MESSAGE"]["body"]) == (str(TX), "text 1")
    assert (by_type["REMOVE_MESSAGE"]["kind"], by_type["REMOVE_MESSAGE"]["subscription"]) == (
        "acknowledgement",
        "client:s",
    )
    assert by_type["SUBSCRIPTION"]["client_id"] == "client"
    assert (by_type["ADD_SCHEDULED_JOB"]["job_id"], by_type["ADD_SCHEDULED_JOB"]["body"]) == ("job", "text 5")
    assert by_type["REWRITTEN_DATA_FILE"]["source_file"] == 3


def test_the_end_of_a_subscription_differs_from_its_creation(tmp_path: Path) -> None:
    write(tmp_path, [subscribe("s"), Unsubscribe(TOPIC, "client:s")])
    assert [record.as_json()["made"] for record in records(tmp_path)] == [True, False]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (RecordFilter(), [1, 2, 3, 4]),
        (RecordFilter(destinations=[QUEUE]), [1, 3]),
        (RecordFilter(destinations=["OTHER"]), [2]),
        (RecordFilter(destinations=[queue("A.>"), OTHER]), [2, 4]),
        (RecordFilter(types=[CommandType.REMOVE_MESSAGE]), [3]),
        (RecordFilter(file_ids=[2]), [3, 4]),
        (RecordFilter(start=Location(2, 0)), [3, 4]),
        (RecordFilter(stop=Location(1, 29)), [1]),
        (RecordFilter(destinations=[QUEUE], types=[CommandType.ADD_MESSAGE]), [1]),
    ],
)
def test_filters_leave_what_is_wanted(tmp_path: Path, wanted: RecordFilter, expected: list[int]) -> None:
    write(tmp_path, [add(1), add(2, OTHER)], [ack(3), add(4, queue("A.B"))])
    assert [record.message_id for record in records(tmp_path, wanted)] == [message_id(number) for number in expected]


def test_what_does_not_decode_is_shown_with_the_reason(tmp_path: Path) -> None:
    write(tmp_path, [b"\x01\x02\x03\x04", b"\x63\x00"])
    assert [(record.type, bool(record.problem)) for record in records(tmp_path)] == [
        ("ADD_MESSAGE", True),
        ("TYPE 99", True),
    ]


def test_damage_is_shown_in_place_with_rescued_records_marked(sample: Callable[[str], Any]) -> None:
    with JournalSnapshot(sample("10-corrupt-batch").kahadb) as snapshot:
        items = list(dump(snapshot))
    damaged = [number for number, item in enumerate(items) if isinstance(item, DumpedGap)]
    assert len(damaged) == 4
    behind = items[damaged[0] + 1]
    assert isinstance(behind, DumpedRecord)
    assert (behind.location, behind.as_json()["integrity"]) == (Location(1, 21466), "unproven")


def test_a_torn_tail_is_not_called_damage(sample: Callable[[str], Any]) -> None:
    with JournalSnapshot(sample("08-torn-tail").kahadb) as snapshot:
        (gap,) = [item for item in dump(snapshot) if isinstance(item, DumpedGap)]
    assert (gap.is_damage, gap.as_json()["kind"]) == (False, "torn tail")


def test_progress_ends_with_everything(tmp_path: Path) -> None:
    write(tmp_path, [add(1)], [add(2)])
    steps: list[tuple[int, int]] = []
    with JournalSnapshot(tmp_path) as snapshot:
        list(dump(snapshot, progress=lambda done, total: steps.append((done, total))))
    assert len(steps) == 2
    assert steps[-1][0] == steps[-1][1] > 0
