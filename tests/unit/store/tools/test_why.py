"""Why files stay: each cause by hand, and never another decision than the collector's."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.reserved_queues import SESSION_RECORDS
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from pybroker.store.journal.cleanup import removable
from pybroker.store.journal.commands import (
    AckMessageFileMap,
    Command,
    Prepare,
    ProducerAudit,
    Trace,
)
from pybroker.store.journal.declared_queues import encode_declared
from pybroker.store.journal.replay import replay
from pybroker.store.journal.state import StoreState
from pybroker.store.journal.tools.journal_snapshot import JournalSnapshot
from pybroker.store.journal.tools.why import Cause, ExplainedFile, Reason, why, why_jobs
from tests.unit.store.tools.journals import OTHER, PRODUCER, QUEUE, TOPIC, ack, add, message_id, subscribe, write

XA = XATransactionId(1, b"g", b"b")
TX = LocalTransactionId("ID:c:1", 1)


def explained(directory: Path) -> dict[int, ExplainedFile]:
    with JournalSnapshot(directory) as snapshot:
        return {file.file_id: file for file in why(snapshot).files}


def reasons(directory: Path, *files: Sequence[Command], of: int = 1) -> tuple[Reason, ...]:
    """Return what holds a file, when one more is being written."""
    return explained(write(directory, *files, [Trace("written")]))[of].reasons


def test_a_file_of_dead_messages_can_go(tmp_path: Path) -> None:
    write(tmp_path, [add(1)], [ack(1)], [Trace("written")])
    files = explained(tmp_path)
    assert [file.is_held for file in files.values()] == [False, False, True]
    assert files[1].note == "goes at the next cleanup"
    assert [reason.cause for reason in files[3].reasons] == [Cause.WRITTEN]


def test_live_messages_are_counted_by_destination(tmp_path: Path) -> None:
    found = reasons(tmp_path, [*(add(number) for number in range(1, 6)), add(9, OTHER), ack(1)])
    assert [(reason.cause, reason.what, reason.count) for reason in found] == [
        (Cause.MESSAGES, f"messages of {QUEUE}", 4),
        (Cause.MESSAGES, f"message of {OTHER}", 1),
    ]
    assert found[0].examples == tuple(message_id(number) for number in (2, 3, 4))
    assert found[0].remedy == f"look at them: pybroker browse {QUEUE}; then let their consumer take them"


def test_a_queues_name_with_a_blank_is_one_argument_of_the_remedy(tmp_path: Path) -> None:
    (found,) = reasons(tmp_path, [add(1, parse("queue://my orders"))])
    assert found.remedy.startswith("look at them: pybroker browse 'queue://my orders'; then")


def test_a_topics_messages_name_the_subscriptions_that_want_them(tmp_path: Path) -> None:
    found = reasons(tmp_path, [subscribe("a"), subscribe("b"), add(1, TOPIC), ack(1, TOPIC, key="client:a")])
    message, *subscriptions = found
    assert (message.cause, message.count) == (Cause.MESSAGES, 1)
    assert "client:b" in message.remedy
    assert "client:a" not in message.remedy
    assert [(reason.what, reason.count) for reason in subscriptions] == [
        (f"durable subscription client:a to {TOPIC}", 0),
        (f"message pending for durable subscription client:b to {TOPIC}", 1),
    ]


def test_an_idle_subscription_is_written_again(tmp_path: Path) -> None:
    write(tmp_path, [subscribe("a")], [Trace("written")])
    file = explained(tmp_path)[1]
    assert file.is_held
    assert file.note.startswith("goes once its idle subscriptions are written again")


def test_an_earlier_record_of_a_subscription_stays_for_older_messages(tmp_path: Path) -> None:
    older: list[Sequence[Command]] = [[subscribe("a")], [add(1, TOPIC)], [subscribe("a"), add(2, TOPIC)]]
    assert [each.cause for each in reasons(tmp_path / "older", *older)] == [Cause.SUBSCRIPTION]
    gone = [*older, [ack(1, TOPIC, key="client:a")]]
    assert reasons(tmp_path / "gone", *gone) == ()
    assert {each.cause for each in reasons(tmp_path / "gone", *gone, of=3)} == {Cause.SUBSCRIPTION, Cause.MESSAGES}


def test_records_of_reserved_queues_have_no_consumer(tmp_path: Path) -> None:
    (found,) = reasons(tmp_path, [add(1, SESSION_RECORDS.destination)])
    assert found.what == f"message of {SESSION_RECORDS.destination}"
    assert found.remedy == "none: pybroker writes them again when that frees 8 times their bytes"


def test_open_transactions_hold_their_files(tmp_path: Path) -> None:
    found = reasons(tmp_path, [add(1, transaction=TX), add(2, transaction=XA), Prepare(XA)])
    assert [(reason.cause, reason.what) for reason in found] == [
        (Cause.TRANSACTION, f"operation of {TX}, which is not ended"),
        (Cause.TRANSACTION, f"operation of {XA}, which is in doubt"),
    ]
    assert found[1].examples == (message_id(2),)


def test_acks_are_followed_along_chains_to_their_root(tmp_path: Path) -> None:
    write(tmp_path, [add(1), add(2)], [ack(2), add(3), add(4)], [ack(3), ack(4)], [Trace("written")])
    files = explained(tmp_path)
    (second,), (third,) = files[2].reasons, files[3].reasons
    assert (second.cause, second.files, second.because, second.count) == (Cause.ANSWERS, (1,), (1,), 1)
    assert second.what == "acknowledgement, outcome or end for records in db-1.log, which stay"
    assert (third.files, third.because, third.count) == ((2,), (2, 1), 2)
    assert third.examples == (message_id(3), message_id(4))
    assert "db-1.log" in third.remedy
    assert files[3].note.startswith("stays for its acknowledgements alone")


def test_what_metadata_records_will_repeat_holds_nothing(tmp_path: Path) -> None:
    write(tmp_path, [add(1), ack(1), encode_declared([QUEUE])], [Trace("written")])
    file = explained(tmp_path)[1]
    assert not file.is_held
    assert [(reason.cause, reason.count, reason.examples) for reason in file.reasons] == [
        (Cause.METADATA, 1, (str(PRODUCER),)),
        (Cause.METADATA, 1, (str(QUEUE),)),
    ]


def test_what_only_activemq_keeps_is_reported(tmp_path: Path) -> None:
    found = reasons(tmp_path, [ProducerAudit(b"x"), AckMessageFileMap(b"x")])
    assert [reason.cause for reason in found] == [Cause.ACTIVEMQ] * 2


@pytest.mark.parametrize(
    "name",
    ["02-consumed-gc", "03-durable", "04-localtx-kill9", "05-xa-indoubt-kill9", "07-large", "11-redelivered-updates"],
)
def test_the_decision_is_the_collectors_and_has_a_reason(sample: Callable[[str], Any], name: str) -> None:
    directory = sample(name).kahadb
    state = StoreState()
    replay(directory, state)
    with JournalSnapshot(directory) as snapshot:
        files = why(snapshot).files
        free = removable(state, snapshot.files, min(snapshot.writable))
    assert [file.file_id for file in files if not file.is_held] == free
    for file in files:
        assert file.reasons or not file.is_held
        for reason in file.reasons:
            assert reason.remedy
            if reason.cause is Cause.ANSWERS:
                root = next(each for each in files if each.file_id == reason.because[-1])
                assert any(each.cause is not Cause.ANSWERS for each in root.reasons)


def test_a_scheduler_names_its_jobs(sample: Callable[[str], Any]) -> None:
    with JournalSnapshot(sample("09-scheduled").scheduler) as snapshot:
        (file,) = why_jobs(snapshot).files
    assert [(reason.cause, reason.count) for reason in file.reasons] == [(Cause.WRITTEN, 0), (Cause.JOBS, 6)]


def test_a_damaged_file_is_not_deleted(tmp_path: Path) -> None:
    write(tmp_path, [add(1), ack(1)], [Trace("written")])
    path = tmp_path / "db-1.log"
    path.write_bytes(path.read_bytes().replace(b"text 1", b"text X"))
    file = explained(tmp_path)[1]
    assert (file.is_held, file.note) == (False, "moves to damaged at the next cleanup, since it is damaged")


def test_damage_is_reported(sample: Callable[[str], Any]) -> None:
    with JournalSnapshot(sample("10-corrupt-batch").kahadb) as snapshot:
        assert why(snapshot).is_damaged
    with JournalSnapshot(sample("08-torn-tail").kahadb) as snapshot:
        assert not why(snapshot).is_damaged
