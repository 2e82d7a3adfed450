"""The sample journal: the generator's totals are what the store's own recovery finds."""

import hashlib
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.journal_generator import CAUSE, DEAD_LETTERS, Totals, generate
from pybroker.broker.domain.openwire.message import decode as decode_message
from pybroker.broker.domain.openwire.objects import decode_ack
from pybroker.store.journal.commands import AddMessage, CommandType, RemoveMessage, Trace, decode
from pybroker.store.journal.format import BATCH_BYTES_MAX
from pybroker.store.journal.marks import INTERVAL_MS, decode_mark
from pybroker.store.journal.reader import DataFileWalk, data_files
from pybroker.store.journal.replay import replay
from pybroker.store.journal.state import StoreState

ROOT = Path(__file__).resolve().parents[2]
SIZE = 12_000_000


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Totals]:
    directory = tmp_path_factory.mktemp("sample")
    return directory, generate(directory, SIZE, seed=7, per_second=1000, file_bytes_max=4_000_000)


def test_recovery_finds_what_the_totals_state(sample: tuple[Path, Totals]) -> None:
    directory, totals = sample
    state = StoreState()
    result = replay(directory, state)
    assert not result.damages
    assert not result.torn_tails
    assert sum(result.records.values()) == totals.records
    found = {each: list(state.destinations[each].messages) for each in state.queues()}
    assert {each: ids for each, ids in found.items() if ids} == totals.pending
    backlogs = {
        (place, key): [each for each in state.destinations[place].messages if each in subscription.pending]
        for place, key, subscription in state.subscriptions()
    }
    assert {each: ids for each, ids in backlogs.items() if ids} == totals.backlogs
    assert list(state.prepared) == totals.in_doubt
    assert len(result.unfinished) == 2, "local transactions that no one ended"


def test_everything_there_is_to_analyse_is_in_it(sample: tuple[Path, Totals]) -> None:
    directory, totals = sample
    result = replay(directory, StoreState())
    expected = {
        CommandType.TRACE,
        CommandType.ADD_MESSAGE,
        CommandType.REMOVE_MESSAGE,
        CommandType.PREPARE,
        CommandType.COMMIT,
        CommandType.ROLLBACK,
        CommandType.SUBSCRIPTION,
        CommandType.REMOVE_DESTINATION,
    }
    assert expected == result.records.keys()
    assert totals.file_count == len(data_files(directory)) >= 3
    assert totals.byte_count == sum(path.stat().st_size - 5 for path in data_files(directory).values()) >= SIZE
    assert min(totals.rolled_back, totals.dead, totals.consumed) > 0
    assert totals.sent[DEAD_LETTERS] == totals.dead
    assert totals.pending[DEAD_LETTERS]


def test_generated_record_agrees_with_its_message(sample: tuple[Path, Totals]) -> None:
    directory, totals = sample
    sizes: list[int] = []
    kinds: Counter[str] = Counter()
    causes = 0
    for file_id, path in data_files(directory).items():
        for _, payload in DataFileWalk(path.read_bytes(), file_id):
            command = decode(payload)
            if isinstance(command, AddMessage):
                fields = decode_message(command.data)
                assert str(fields.message_id) == command.message_id
                assert (fields.destination, fields.priority) == (command.destination, command.priority)
                assert 0 < fields.timestamp < fields.broker_in_time
                assert fields.expiration == 0 or fields.expiration > fields.timestamp
                sizes.append(len(fields.content or b""))
                kinds[fields.type.name] += 1
                causes += fields.properties.get("dlqDeliveryFailureCause") == CAUSE
            elif isinstance(command, RemoveMessage) and command.ack:
                decode_ack(command.ack)
    assert kinds.keys() == {"TEXT", "MAP", "BYTES"}
    assert 700 < sum(sizes) / len(sizes) < 1500
    assert causes == totals.dead


def test_time_goes_on_in_marks_of_a_second(sample: tuple[Path, Totals]) -> None:
    directory, _ = sample
    mark_count = 0
    for file_id, path in data_files(directory).items():
        walk = DataFileWalk(path.read_bytes(), file_id)
        times = [
            time_ms
            for _, payload in walk
            if payload[0] == CommandType.TRACE
            and isinstance(command := decode(payload), Trace)
            and (time_ms := decode_mark(command.message)) is not None
        ]
        assert times, "each data file can be read by itself"
        mark_count += len(times)
        assert all(later - earlier >= INTERVAL_MS for earlier, later in pairwise(times))
    assert mark_count >= 8


def test_batches_are_those_of_a_busy_broker(sample: tuple[Path, Totals]) -> None:
    directory, totals = sample
    batches = [
        end - begin
        for file_id, path in data_files(directory).items()
        for begin, end in DataFileWalk(path.read_bytes(), file_id).batches()
    ]
    assert max(batches) < BATCH_BYTES_MAX
    assert 20 < totals.records / len(batches) < 100


def test_a_seed_is_a_journal(tmp_path: Path) -> None:
    def digest(name: str, seed: int) -> str:
        generate(tmp_path / name, 200_000, seed=seed)
        return hashlib.sha256((tmp_path / name / "db-1.log").read_bytes()).hexdigest()

    assert digest("a", 1) == digest("b", 1) != digest("c", 2)


def test_a_journal_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    generate(tmp_path, 100_000)
    with pytest.raises(FileExistsError):
        generate(tmp_path, 100_000)


def test_the_command_prints_what_it_made(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.journal_generator",
            str(tmp_path / "kahadb"),
            "--size",
            "1mb",
            "--seed",
            "3",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "1 data files" in done.stdout
    assert (tmp_path / "kahadb" / "db-1.log").stat().st_size >= 1_000_000
