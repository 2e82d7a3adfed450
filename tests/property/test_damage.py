"""Damage anywhere in a store: opening it never fails, never makes anything up, and locates all that is missing.

A store of several data files is damaged at one random place: a byte flipped, some bytes zeroed, or a file cut short.
Then it is opened, and compared record by record with what it was. `PYBROKER_TEST_STRICT=1` tries ten times as many
places.
"""

import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.journal.collector import DAMAGED_DIRECTORY
from pybroker.store.journal.commands import Trace, encode
from pybroker.store.journal.follower import Follower
from pybroker.store.journal.format import (
    BATCH_MAGIC,
    EOF_MARKER,
    Location,
    data_file_name,
    encode_batch,
    encode_record,
)
from pybroker.store.journal.reader import Damage, DataFileWalk, data_files, load
from pybroker.store.journal.replay import replay
from pybroker.store.journal.state import StoreState
from pybroker.store.journal.store import JournalStore
from tests.crash.workload import ORDERS, PRICES, message
from tests.runtimes import runtime

SEEDS = range(2000 if os.environ.get("PYBROKER_TEST_STRICT") == "1" else 200)
SEEDS_PER_TEST = 20
ZEROED_BYTES_MAX = 600
"""A disk's sector, and a bit more."""

Records = dict[Location, bytes]


def opened(directory: Path) -> JournalStore:
    store = JournalStore(
        directory,
        settings=JournalSettings(file_bytes_max=8000, batch_bytes_max=3000),
        runtime=runtime(),
    )
    store.recover()
    return store


def fill(store: JournalStore) -> None:
    """Do some of everything, in batches of one record and of many."""
    chance = random.Random(0)
    store.subscribe(
        DurableSubscription(client_id="client", name="s", destination=PRICES, subscribed_destination=topic("PRICES"))
    )
    for number in range(1, 200):
        destination = (ORDERS, PRICES, queue("IN.TX"))[number % 3]
        transaction = LocalTransactionId("ID:c:1", number // 12) if number % 3 == 2 else None
        store.add(message(destination, number, chance.choice((0, 40, 700))), transaction)
        if number % 12 == 11:
            store.commit(LocalTransactionId("ID:c:1", number // 12))
        if number % 4 == 0:
            store.remove(ORDERS, message(ORDERS, chance.randrange(1, number + 1)).message_id)
            store.acknowledge(PRICES, "client:s", message(PRICES, chance.randrange(1, number + 1)).message_id)
        if chance.random() < 0.5:
            store._writer.end_batch()
    branch = XATransactionId(1, b"global", b"branch")
    store.add(message(queue("IN.XA"), 1000), branch)
    store.prepare(branch)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store after an orderly stop, so that every byte of it was confirmed."""
    directory = tmp_path_factory.mktemp("pristine")
    store = opened(directory)
    fill(store)
    store.close()
    assert len(data_files(directory)) >= 6
    return directory


def records(directory: Path) -> tuple[Records, list[Damage]]:
    """Return every record of a walk, and the damage it reports."""
    found: Records = {}
    damages: list[Damage] = []
    for file_id, path in data_files(directory).items():
        walk = DataFileWalk(load(path), file_id)
        found.update(walk)
        damages += walk.damages
    return found, damages


# ------------------------------------------------------------ damage


def flipped(path: Path, chance: random.Random) -> str:
    data = bytearray(path.read_bytes())
    where = chance.randrange(len(data))
    data[where] ^= chance.randrange(1, 256)
    path.write_bytes(data)
    return f"{path.name}: byte {where} flipped"


def zeroed(path: Path, chance: random.Random) -> str:
    data = bytearray(path.read_bytes())
    where = chance.randrange(len(data))
    length = min(chance.randrange(1, ZEROED_BYTES_MAX), len(data) - where)
    data[where : where + length] = bytes(length)
    path.write_bytes(data)
    return f"{path.name}: {length} bytes zeroed from {where} on"


def cut(path: Path, chance: random.Random) -> str:
    data = path.read_bytes()
    where = chance.randrange(len(data))
    is_last = path.name == data_file_name(max(data_files(path.parent)))
    while not where or (is_last and data.startswith(BATCH_MAGIC, where)):
        where += 1  # that cannot be known: see the last tests
    os.truncate(path, where)
    return f"{path.name}: cut at {where}"


HARMS: Sequence[Callable[[Path, random.Random], str]] = (flipped, zeroed, cut)


def is_covered(location: Location, size: int, damages: Sequence[Damage]) -> bool:
    """Return True if a report covers all of a record; one at a file's end covers what was behind it, too."""
    return any(
        damage.file_id == location.file_id
        and damage.offset <= location.offset
        and (damage.at_end or location.offset + size <= damage.offset + damage.length)
        for damage in damages
    )


@pytest.mark.parametrize("first", SEEDS[::SEEDS_PER_TEST])
def test_what_is_missing_is_reported_and_nothing_is_made_up(tmp_path: Path, pristine: Path, first: int) -> None:
    before, _ = records(pristine)
    for seed in range(first, first + SEEDS_PER_TEST):
        chance = random.Random(seed)
        directory = tmp_path / str(seed)
        shutil.copytree(pristine, directory)
        path = directory / data_file_name(chance.choice(list(data_files(directory))))
        what = f"seed {seed}: {HARMS[seed % len(HARMS)](path, chance)}"
        result = replay(directory, StoreState())
        reported = [*result.damages, *result.torn_tails]
        after, damages = records(directory)
        assert after.items() <= before.items(), f"{what}: a record no one wrote"
        assert {(each.file_id, each.offset) for each in damages} <= {(each.file_id, each.offset) for each in reported}
        for location, payload in before.items():
            if location not in after:
                assert is_covered(location, len(payload), reported), f"{what}: {location} is missing without a word"
        shutil.rmtree(directory)


@pytest.mark.parametrize("seed", SEEDS[:12])
def test_a_damaged_store_opens_and_goes_on(tmp_path: Path, pristine: Path, seed: int) -> None:
    chance = random.Random(seed)
    directory = tmp_path / "store"
    shutil.copytree(pristine, directory)
    for path in chance.sample(list(data_files(directory).values()), 3):
        chance.choice((flipped, zeroed, cut))(path, chance)
    intact, found = records(directory)
    store = opened(directory)
    store.add(message(ORDERS, 5000))
    store.close()
    after, _ = records(directory)
    if (directory / DAMAGED_DIRECTORY).exists():  # needed no more, but not deleted
        after |= records(directory / DAMAGED_DIRECTORY)[0]
    for location, payload in intact.items():
        is_whole = not any(damage.file_id == location.file_id for damage in found)
        assert after.get(location) == payload or is_whole, "what is readable in a damaged file is never thrown away"
    new_master = opened(directory)
    assert new_master.last_sequence(message(ORDERS, 5000).message_id.rpartition(":")[0]) == 5000
    new_master.abandon()


def boundaries(data: bytes) -> list[int]:
    """Return where batches begin."""
    return [at for at in range(len(data)) if data.startswith(BATCH_MAGIC, at)]


@pytest.mark.parametrize("missing", [1, 3])
@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("is_zeroed", [False, True])
def test_a_whole_batch_missing_from_its_beginning_on_is_noticed(
    tmp_path: Path, pristine: Path, number: int, missing: int, is_zeroed: bool
) -> None:
    """The file ends where a batch ended, so all that is left of it is sound; it is whole except for its EOF marker."""
    directory = tmp_path / "store"
    shutil.copytree(pristine, directory)
    file_id = list(data_files(directory))[number]
    path = directory / data_file_name(file_id)
    data = path.read_bytes()
    assert data.endswith(EOF_MARKER)
    where = boundaries(data)[-missing]
    path.write_bytes(data[:where] + bytes(len(data) - where) * is_zeroed)
    result = replay(directory, StoreState())
    assert [(each.file_id, each.offset) for each in result.damages] == [(file_id, where)]
    assert "its end is missing" in str(result.damages[0])

    follower = Follower(directory)
    assert follower.finish().damages == result.damages
    new_master = opened(directory)
    assert new_master.damages == result.damages
    new_master.cleanup()
    new_master.close()
    kept = [path, directory / DAMAGED_DIRECTORY / path.name]
    assert sum(each.exists() for each in kept) == 1, "what is left of it is never deleted"


def test_a_marker_that_is_cut_itself_is_no_loss(tmp_path: Path, pristine: Path) -> None:
    directory = tmp_path / "store"
    shutil.copytree(pristine, directory)
    path = directory / data_file_name(list(data_files(directory))[2])
    os.truncate(path, path.stat().st_size - 1)
    assert not replay(directory, StoreState()).damages


def test_a_journal_of_a_writer_without_markers_is_complete(tmp_path: Path) -> None:
    """An early ActiveMQ; and what a later version adds to its store has markers."""
    for file_id in range(1, 6):
        batch = encode_batch([encode_record(encode(Trace(f"LOADED {file_id}")))])
        (tmp_path / data_file_name(file_id)).write_bytes(batch + EOF_MARKER * (file_id > 3))
    assert not replay(tmp_path, StoreState()).damages
    assert not Follower(tmp_path).finish().damages
    os.truncate(tmp_path / data_file_name(4), 0)
    assert not replay(tmp_path, StoreState()).damages, "a file without a byte is one that no one came to write"


def test_the_end_of_the_last_file_may_always_be_missing(tmp_path: Path, pristine: Path) -> None:
    """Its writer may have been killed before it wrote more; so too below the empty file of a killed new master."""
    directory = tmp_path / "store"
    shutil.copytree(pristine, directory)
    last = max(data_files(directory))
    path = directory / data_file_name(last)
    os.truncate(path, boundaries(path.read_bytes())[-1])
    assert not replay(directory, StoreState()).damages
    (directory / data_file_name(last + 1)).write_bytes(EOF_MARKER)
    assert not replay(directory, StoreState()).damages
