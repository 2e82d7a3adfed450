# mypy: disable-error-code="arg-type"
"""A salvage: the rescued, the lost and the refused."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.store.journal.commands import AddMessage, RewrittenDataFile, decode
from pybroker.store.journal.replay import replay
from pybroker.store.journal.state import StoreState
from pybroker.store.journal.tools.check import check
from pybroker.store.journal.tools.export import Export
from pybroker.store.journal.tools.journal_snapshot import JournalSnapshot
from pybroker.store.journal.tools.salvage import LostBytes, RescuedRecord, SalvagedFile, prepare_target, salvage
from pybroker.store.journal.tools.scan import Record, RecordIntegrity, Scan
from tests.unit.store.tools.journals import QUEUE, ack, add, batch, message_id, write


def salvaged(source: Path, target: Path, **how: bool) -> list[LostBytes | RescuedRecord | SalvagedFile]:
    prepare_target(target, source)
    with JournalSnapshot(source) as snapshot:
        return list(salvage(snapshot, target, **how))


def alive(directory: Path) -> list[str]:
    with JournalSnapshot(directory) as snapshot:
        return [str(item.as_json().get("message_id")) for item in Export(snapshot)]


def findings(directory: Path) -> list[str]:
    with JournalSnapshot(directory) as snapshot:
        return [finding.kind for finding in check(snapshot).findings]


@pytest.mark.parametrize(
    "name", ["01-mixed", "02-consumed-gc", "03-durable", "04-localtx-kill9", "06-priority", "11-redelivered-updates"]
)
def test_a_sound_store_is_rescued_whole(sample: Callable[[str], Any], tmp_path: Path, name: str) -> None:
    source = sample(name).kahadb
    items = salvaged(source, tmp_path / "new")
    assert {type(item) for item in items} == {SalvagedFile}
    assert alive(tmp_path / "new") == alive(source)


def test_every_readable_record_is_rescued_in_place(sample: Callable[[str], Any], tmp_path: Path) -> None:
    source = sample("10-corrupt-batch").kahadb
    items = salvaged(source, tmp_path / "new")
    lost = [item for item in items if isinstance(item, LostBytes)]
    rescued = [item.record for item in items if isinstance(item, RescuedRecord)]
    assert [(each.location, each.size, each.is_damage) for each in lost] == [((2, 11250), 1125, True)]
    assert [record.integrity for record in rescued] == [
        RecordIntegrity.UNPROVEN,
        RecordIntegrity.PROVEN,
        RecordIntegrity.UNPROVEN,
    ]

    sequence = [int(each.rpartition(":")[2]) for each in alive(tmp_path / "new")]
    assert sequence == [number for number in range(6, 121) if number != 69]
    assert findings(tmp_path / "new") == []


def test_strict_leaves_out_what_nothing_proves(sample: Callable[[str], Any], tmp_path: Path) -> None:
    items = salvaged(sample("10-corrupt-batch").kahadb, tmp_path / "new", strict=True)
    lost = [item for item in items if isinstance(item, LostBytes)]
    assert [each.about.get("message_id", "")[-3:] for each in lost] == [":20", "", "119"]
    assert [item.record.integrity for item in items if isinstance(item, RescuedRecord)] == [RecordIntegrity.PROVEN]


def test_a_torn_tail_is_left_out_and_not_called_lost(sample: Callable[[str], Any], tmp_path: Path) -> None:
    items = salvaged(sample("08-torn-tail").kahadb, tmp_path / "new")
    (tail,) = [item for item in items if isinstance(item, LostBytes)]
    assert not tail.is_damage
    assert len(alive(tmp_path / "new")) == 385


def test_of_a_file_that_was_cut_later_the_last_batch_counts_too(tmp_path: Path) -> None:
    """It is not the file that was written last, so what is left of the batch was acknowledged."""
    source = write(tmp_path / "old", [], [add(9)])
    (source / "db-1.log").write_bytes(batch(add(1), add(2), add(3))[:-40])
    salvaged(source, tmp_path / "new")
    assert alive(tmp_path / "new") == [message_id(number) for number in (1, 2, 9)]


def test_a_schedulers_journal_is_rescued_too(sample: Callable[[str], Any], tmp_path: Path) -> None:
    source = sample("09-scheduled").scheduler
    assert [type(item) for item in salvaged(source, tmp_path / "new")] == [SalvagedFile]
    with JournalSnapshot(source) as before, JournalSnapshot(tmp_path / "new") as after:
        assert [payloads(each) for each in (before, after)] == [payloads(before)] * 2


def payloads(snapshot: JournalSnapshot) -> list[bytes]:
    return [
        item.payload
        for file_id in snapshot.files
        for item in Scan(snapshot.load(file_id), file_id)
        if isinstance(item, Record)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_one_changed_byte_costs_one_message_at_most(tmp_path: Path, seed: int) -> None:
    """Messages rescued as proven are as they were; the rest retains its order."""
    dice = random.Random(seed)
    source = write(tmp_path / "old", [add(number) for number in range(1, 6)], [add(6), ack(2), add(7)])
    path = source / f"db-{dice.choice((1, 2))}.log"
    data = bytearray(path.read_bytes())
    data[dice.randrange(len(data))] ^= dice.randint(1, 255)
    path.write_bytes(data)

    salvaged(source, tmp_path / "new")

    expected = [message_id(number) for number in (1, 3, 4, 5, 6, 7)]
    found = [each for each in alive(tmp_path / "new") if each != message_id(2)]
    assert found == [each for each in expected if each in found]
    assert len(found) >= len(expected) - 1
    state = StoreState()
    assert replay(tmp_path / "new", state).damages == []


def test_records_that_a_recovery_would_trip_over_are_left_out(tmp_path: Path) -> None:
    source = write(
        tmp_path / "old", [add(1), b"\x63\x00", AddMessage(QUEUE, "ID:x", b"\x1c"), b"\x01\x02\x03\x04", add(2)]
    )
    items = salvaged(source, tmp_path / "new")
    lost = [item for item in items if isinstance(item, LostBytes)]
    assert [each.about["record"] for each in lost] == ["TYPE 99", "ADD_MESSAGE", "ADD_MESSAGE"]
    assert all(each.reason for each in lost)
    assert alive(tmp_path / "new") == [message_id(1), message_id(2)]
    assert findings(tmp_path / "new") == []


def test_a_compacted_file_no_longer_steps_back_for_its_source(tmp_path: Path) -> None:
    """ActiveMQ would skip the rest of the file, whose messages are nowhere else."""
    source = write(tmp_path / "old", [add(1)], [RewrittenDataFile(1), ack(1), add(2)])
    salvaged(source, tmp_path / "new")
    with JournalSnapshot(tmp_path / "new") as snapshot:
        assert decode(payloads(snapshot)[1]) == RewrittenDataFile(1, 1, False)
    assert findings(tmp_path / "new") == []


def test_a_file_with_nothing_to_rescue_is_not_written(tmp_path: Path) -> None:
    source = write(tmp_path / "old", [add(1)], [], [add(2)])
    items = salvaged(source, tmp_path / "new")
    assert [item.size > 0 for item in items if isinstance(item, SalvagedFile)] == [True, False, True]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["db-1.log", "db-3.log"]


def test_the_source_is_not_changed(sample: Callable[[str], Any], tmp_path: Path) -> None:
    source = sample("10-corrupt-batch").kahadb
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in source.iterdir()}
    salvaged(source, tmp_path / "new")
    assert {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in source.iterdir()} == before


@pytest.mark.parametrize("target", ["old", "old/new", "full", "file"])
def test_a_target_that_will_not_do_is_refused(tmp_path: Path, target: str) -> None:
    source = write(tmp_path / "old", [add(1)])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable) as raised:
        prepare_target(tmp_path / target, source)
    assert raised.value.hint
