"""A broker killed while its operator moves or removes messages: each is at one place, none is lost or there twice."""

import re
import shutil
import signal
from pathlib import Path

import pytest

from pybroker.store.journal.format import BATCH_MAGIC
from pybroker.store.journal.store import JournalStore
from tests.crash import children
from tests.crash.operations_child import COUNT, FROM, ROUNDS, TO
from tests.crash.workload import PRODUCER_ID, SETTINGS
from tests.runtimes import runtime

WRITING = ("create data", "write data", "sync data", "truncate data", "sync directory")
MOVES = [f"{moment} {operation}:{n}" for operation in WRITING for moment in ("before", "after") for n in (1, 4, 19)]
MOVES += [f"{moment} unlink data:{n}" for moment in ("before", "after") for n in (1, 2)]
REMOVALS = [f"{moment} {operation}:{n}" for operation in WRITING[1:3] for moment in ("before", "after") for n in (1, 2)]

ALL = [f"{PRODUCER_ID}:{number}" for number in range(1, COUNT + 1)]


def work(directory: Path, act: str, failpoint: str, *, status: int = -signal.SIGKILL) -> list[str]:
    """Run a process on the directory until its failpoint; return the operations that it reported as done."""
    done = children.run("tests.crash.operations_child", str(directory), act, failpoint)
    assert done.returncode == status, f"it was to end with {status} at {failpoint}: {done.stderr}"
    return done.stdout.splitlines()


def contents(directory: Path) -> tuple[list[str], list[str]]:
    """Return the ids in both queues, after taking over as the next master does."""
    store = JournalStore(directory, settings=SETTINGS, runtime=runtime())
    queues = store.recover().queues
    assert not store.damages
    for queue, message_ids in queues.items():
        assert [each.message_id for each in store.read(queue, message_ids)] == list(message_ids)
        assert {each.destination for each in store.read(queue, message_ids)} <= {queue}
    store.abandon()
    return list(queues.get(FROM, ())), list(queues.get(TO, ()))


@pytest.mark.parametrize("failpoint", MOVES)
def test_moved_messages_are_at_one_place_and_in_order(tmp_path: Path, failpoint: str) -> None:
    directory = tmp_path / "kahadb"
    done = work(directory, "move", failpoint)
    assert set(done) <= {f"move {COUNT} 0"}
    here, there = contents(directory)
    # The oldest are moved first. A new round may have begun before the report of the last one was written.
    assert ALL in (here + there, there + here)
    if len(done) % 2:
        assert here + there == ALL, "from there back to the first queue"
    elif there:
        assert there + here == ALL
    assert contents(directory) == (here, there)


def test_a_journal_that_ends_after_any_batch_has_each_message_once(tmp_path: Path) -> None:
    directory = tmp_path / "kahadb"
    assert work(directory, "move once", "nowhere:1", status=0) == [f"move once {COUNT} 0"]
    (file,) = directory.glob("db-*.log")
    data = file.read_bytes()
    ends = [match.start() for match in re.finditer(re.escape(BATCH_MAGIC), data)]
    assert len(ends) > 3 * COUNT, "each message is added, sent and removed in a batch of its own"
    splits: set[int] = set()
    for number, end in enumerate(ends[1:]):
        cut = tmp_path / f"cut-{number}"
        cut.mkdir()
        (cut / file.name).write_bytes(data[:end])
        here, there = contents(cut)
        assert there + here == ALL[: len(there + here)]
        splits.add(len(there))
        shutil.rmtree(cut)
    assert {0, COUNT} < splits


@pytest.mark.parametrize("failpoint", REMOVALS)
def test_removed_messages_are_the_oldest(tmp_path: Path, failpoint: str) -> None:
    directory = tmp_path / "kahadb"
    done = work(directory, "remove", failpoint)
    here, there = contents(directory)
    assert here == ALL[COUNT - len(here) :]
    assert not there
    if done:
        assert (done, here) == ([f"remove {COUNT} 0"], [])


def test_an_undisturbed_run_ends_where_it_began(tmp_path: Path) -> None:
    directory = tmp_path / "kahadb"
    assert work(directory, "move", "nowhere:1", status=0) == [f"move {COUNT} 0"] * ROUNDS
    assert contents(directory) == (ALL, [])
