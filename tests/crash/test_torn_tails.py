"""Whatever a crash leaves of the last write, at whichever byte: all before it is there, and nothing of it."""

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from pybroker.broker.domain.recovery import Recovery
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.store.journal.appender import JournalSettings, Preallocation
from pybroker.store.journal.commands import AddMessage, Commit, encode
from pybroker.store.journal.format import EOF_MARKER, encode_batch, encode_record
from pybroker.store.journal.store import JournalStore
from tests.crash.workload import IN_TX, ORDERS, message
from tests.runtimes import runtime
from tests.soundness import assert_sound

SETTINGS = JournalSettings(preallocation=Preallocation.NONE)
TRANSACTION = LocalTransactionId("ID:c:1", 1)


def opened(directory: Path) -> tuple[JournalStore, Recovery]:
    store = JournalStore(
        directory,
        settings=SETTINGS,
        runtime=runtime(clock=lambda: 0),
    )
    return store, store.recover()


def add(number: int, transaction: LocalTransactionId | None = None) -> bytes:
    each = message(ORDERS if transaction is None else IN_TX, number)
    command = AddMessage(each.destination, each.message_id, each.data, transaction=transaction)
    return encode_record(encode(command))


WHOLE = encode_batch([add(1), add(2)]) + encode_batch([add(3, TRANSACTION), add(4)])
LAST = encode_batch([add(5), add(6, TRANSACTION), encode_record(encode(Commit(TRANSACTION)))])


def truncated(keep: int) -> bytes:
    """Return what is left when the file ends in the middle of the last write."""
    return LAST[:keep]


def zeroed(keep: int) -> bytes:
    """Return what is left when the rest of the preallocated file is a hole."""
    return LAST[:keep] + bytes(4096)


def garbled(keep: int) -> bytes:
    """Return what is left when the rest of the write is something else altogether."""
    return LAST[:keep] + random.Random(keep).randbytes(len(LAST) - keep)


@pytest.mark.parametrize("tear", [truncated, zeroed, garbled])
def test_a_last_write_torn_at_any_byte(tmp_path: Path, tear: Callable[[int], bytes]) -> None:
    for keep in _cuts():
        directory = tmp_path / str(keep)
        directory.mkdir()
        (directory / "db-1.log").write_bytes(WHOLE + tear(keep))
        if tear is not garbled:  # which looks like damage, where it begins within the control record
            assert_sound(directory)

        store, recovery = opened(directory)
        assert _found(recovery) == [1, 2, 4], f"torn at byte {keep}"
        assert not store.damages
        store.add(message(ORDERS, 8))
        store.close()

        store, recovery = opened(directory)
        assert _found(recovery) == [1, 2, 4, 8]
        store.abandon()
        assert (directory / "db-1.log").read_bytes() == WHOLE + EOF_MARKER


def test_the_whole_last_write_counts(tmp_path: Path) -> None:
    (tmp_path / "db-1.log").write_bytes(WHOLE + LAST)
    store, recovery = opened(tmp_path)
    store.abandon()
    assert _found(recovery) == [1, 2, 4, 5]
    assert len(recovery.queues[IN_TX]) == 2


def _cuts() -> Iterable[int]:
    """Return every byte of the control record and the commit, and some of the long bodies between."""
    return [*range(40), *range(40, len(LAST) - 80, 17), *range(len(LAST) - 80, len(LAST))]


def _found(recovery: Recovery) -> list[int]:
    return [int(each.rpartition(":")[2]) for each in recovery.queues.get(ORDERS, ())]
