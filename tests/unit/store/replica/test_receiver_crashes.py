"""A follower that is killed at any file operation, and a power failure: its store is sound, and catches up.

Each scenario is run to its end once, which counts its file operations. Then it is killed before each of them.
"""

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast
from zlib import crc32

import pytest

from pybroker.broker.domain.replica.frames import BatchPiece, ReplacePiece
from pybroker.broker.domain.replica.operations import (
    MARKER_BYTES,
    BeginFile,
    CutFile,
    Journal,
    RemoveFiles,
)
from pybroker.broker.domain.replica.store_ports import FileChange
from pybroker.store.journal.files import System
from pybroker.store.journal.format import EOF_MARKER
from pybroker.store.replica.receiver import ReceiverSettings, ReplicaReceiver, is_unfinished
from tests import in_memory
from tests.replicas import (
    MasterJournals,
    assert_equal_stores,
    batch,
    catch_up,
    journals,
    logical,
    recover_copy,
    trace,
)
from tests.simulation.disk import SimDisk, SimSystem
from tests.simulation.world import EPOCH_MS, Killed, Process, World

M, S = Journal.MESSAGES, Journal.SCHEDULER
SETTINGS = ReceiverSettings(preallocate_bytes=64 << 10)


class Follower:
    """A follower's directory on a simulated disk, with processes that are killed."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        root.mkdir(parents=True)
        self.world = World(seed)
        self.disk = SimDisk(self.world, root)
        self.operation_count = 0
        self.kill_at = 0
        """The file operation before which the process is killed; 0: none."""

    @contextmanager
    def process(self) -> Generator[ReplicaReceiver]:
        """Run a process on the directory, and kill it at its end, or before."""
        process = Process(self.world, "follower")
        system = SimSystem(self.disk, process)
        system.failing = self._step
        try:
            files = cast("System", system)  # its methods cannot be set
            clock_ns = EPOCH_MS * 1_000_000
            yield ReplicaReceiver(self.root, journals(self.root), SETTINGS, files, lambda: clock_ns)
        except Killed:
            pass
        finally:
            process.kill()

    def _step(self, _operation: str) -> None:
        self.operation_count += 1
        if self.operation_count == self.kill_at:
            raise Killed


class Stream:
    """A follower's live stream, made of a master's operations; remembers what was confirmed."""

    def __init__(self) -> None:
        self.groups: list[list[FileChange]] = []
        self._ends = {M: (0, 0), S: (0, 0)}

    def begin(self, journal: Journal, file_id: int) -> list[FileChange]:
        self._ends[journal] = file_id, 0
        return [BeginFile(journal, file_id)]

    def write(self, journal: Journal, content: bytes, pieces: int = 1) -> list[FileChange]:
        file_id, end = self._ends[journal]
        self._ends[journal] = file_id, end + len(content)
        step = -(-len(content) // pieces)
        parts = [content[at : at + step] for at in range(0, len(content), step)]
        changes: list[FileChange] = []
        left, at = len(content), end
        for part in parts:
            left -= len(part)
            changes.append(BatchPiece(journal, file_id, at, left, part, is_live=True))
            at += len(part)
        return changes

    def cut(self, journal: Journal) -> list[FileChange]:
        file_id, end = self._ends[journal]
        return [CutFile(journal, file_id, end + MARKER_BYTES)]


def live_groups() -> list[list[FileChange]]:
    """Return what reads of the connection bring: everything that the live stream can have."""
    stream = Stream()
    small = batch(trace("small")) + EOF_MARKER
    return [
        [*stream.begin(M, 3), *stream.write(M, batch(trace("1"))), *stream.write(M, batch(trace("2")))],
        [*stream.begin(S, 2), *stream.write(S, batch(trace("job"))), *stream.write(M, batch(trace("3")))],
        stream.write(M, batch(trace("long" * 300)), pieces=3),
        [*stream.write(M, batch(trace("4"))), *stream.cut(M), *stream.begin(M, 4), *stream.write(M, batch(trace("5")))],
        [
            ReplacePiece(M, 3, len(small), crc32(small), 0, small[:20]),
            *stream.write(M, batch(trace("6"))),
            ReplacePiece(M, 3, len(small), crc32(small), 20, small[20:]),
        ],
        [*stream.write(M, batch(trace("7"))), RemoveFiles(M, [1, 3])],
        [*stream.write(S, batch(trace("job 2"))), *stream.write(M, batch(trace("8")))],
    ]


def contents_after(
    groups: list[list[FileChange]], start: dict[tuple[Journal, int], bytes]
) -> list[dict[tuple[Journal, int], bytes]]:
    """Return the logical contents after each group, beginning with the start's."""
    states = [dict(start)]
    incoming = b""
    for group in groups:
        files = dict(states[-1])
        for change in group:
            match change:
                case BeginFile(journal, file_id):
                    files[journal, file_id] = b""
                case BatchPiece(journal, file_id, _, _, content):
                    files[journal, file_id] += bytes(content)
                case ReplacePiece(journal, file_id, length, _, _, content):
                    incoming += bytes(content)
                    if len(incoming) == length:
                        files[journal, file_id] = incoming[:-MARKER_BYTES]
                case RemoveFiles(journal, file_ids):
                    for file_id in file_ids:
                        files.pop((journal, file_id), None)
                case CutFile():
                    pass
        states.append(files)
    return states


def first_master(root: Path) -> None:
    """Make the master's store from which the follower begins."""
    master = MasterJournals(root)
    master.begin(M, 1)
    master.write(M, trace("a"), trace("b"))
    master.begin(M, 2)
    master.write(M, trace("c"))
    master.begin(S, 1)
    master.write(S, trace("d"))
    master.close()


@pytest.fixture
def root() -> Iterator[Path]:
    """Return a directory in memory: the simulated disk decides what is durable."""
    with tempfile.TemporaryDirectory(dir=in_memory.place()) as directory:
        yield Path(directory)


@pytest.mark.parametrize("fails_power", [False, True], ids=["killed", "power failure"])
def test_killed_in_the_live_stream(root: Path, fails_power: bool) -> None:
    """Everything that was confirmed is there, and of what followed a beginning."""
    first_master(root / "a")
    groups = live_groups()
    states = contents_after(groups, logical(root / "a"))

    def run(follower: Follower) -> int:
        """Return how many groups were confirmed."""
        confirmed = 0
        with follower.process() as receiver:
            catch_up(root / "a", receiver)
            for group in groups:
                receiver.apply(group, is_live=True)
                confirmed += 1
        return confirmed

    for kill_at in range(1, 1 + _operations(root / "count", run, lambda _: None)):
        follower = Follower(root / f"f{kill_at}", kill_at)
        follower.kill_at = kill_at
        confirmed = run(follower)
        if fails_power:
            follower.disk.fail_power()
        with follower.process() as receiver:
            manifest = receiver.examine()
        found = logical(follower.root, may_be_torn=True)
        assert {each[:2]: (each.length, each.crc) for each in manifest} == {
            key: (len(content), crc32(content)) for key, content in found.items()
        }
        if confirmed or not is_unfinished(follower.root):
            _assert_between(found, states[confirmed], states[min(confirmed + 1, len(groups))], bool(confirmed))
        recover_copy(follower.root, root / "scratch")
        with follower.process() as receiver:
            catch_up(root / "a", receiver)
        assert logical(follower.root) == states[0]
        shutil.rmtree(follower.root)


def _assert_between(
    found: dict[tuple[Journal, int], bytes],
    old: dict[tuple[Journal, int], bytes],
    new: dict[tuple[Journal, int], bytes],
    is_begun: bool,
) -> None:
    """Check that a store has at least one state, and at most the next."""
    for key, content in old.items():
        if not is_begun:
            assert content.startswith(found.get(key, b""))  # in the first catch-up
        elif key not in found:
            assert key not in new, f"{key} is gone"
        else:
            assert found[key].startswith(content) or found[key] == new[key], f"{key} lacks what was confirmed"
    for key, content in found.items():
        assert new.get(key, old.get(key, b"")).startswith(content) or content == old.get(key), f"{key} has other bytes"


def _operations(root: Path, run: Callable[[Follower], object], prepare: Callable[[Follower], None]) -> int:
    """Return how many file operations a run makes."""
    follower = Follower(root, 0)
    prepare(follower)
    follower.operation_count = 0
    run(follower)
    return follower.operation_count


def second_master(root: Path) -> None:
    """Make another master's store: cut, collected, compacted, and gone on."""
    shutil.copytree(root.parent / "a", root)
    master = MasterJournals(root)
    master.begin(M, 9)
    master.write(M, trace("new master"))
    master.begin(M, 10)
    master.write(M, trace("e"))
    master.begin(S, 5)
    master.write(S, trace("f"))
    master.replace(M, 2, trace("compacted"))
    master.remove(M, 1)
    master.close()


def divergent(follower: Follower) -> None:
    """Give the follower a former master's tail: longer, and with a file that nobody else has."""
    stream = Stream()
    with follower.process() as receiver:
        catch_up(follower.root.parent / "a", receiver)
        tail = batch(trace("tail"))
        end = len(logical(follower.root)[S, 1])
        receiver.apply([BatchPiece(S, 1, end, 0, tail, is_live=True)], is_live=True)
        receiver.apply([*stream.begin(M, 3), *stream.write(M, batch(trace("nobody's")))], is_live=True)
        receiver.close()
    follower.disk.make_names_durable(None, len(follower.disk.renamed))


@pytest.mark.parametrize("fails_power", [False, True], ids=["killed", "power failure"])
def test_killed_in_a_rejoin_with_a_divergent_tail(root: Path, fails_power: bool) -> None:
    """An interrupted rejoin that passes through other states is marked, goes on, and ends as the master's store."""
    first_master(root / "a")
    second_master(root / "b")

    def run(follower: Follower) -> bool:
        is_done = False
        with follower.process() as receiver:
            catch_up(root / "b", receiver, epoch=9)
            is_done = True
        return is_done

    count = _operations(root / "count", run, divergent)
    unfinished = 0
    for kill_at in range(1, count + 1):
        follower = Follower(root / f"f{kill_at}", kill_at)
        divergent(follower)
        before = logical(follower.root)
        follower.operation_count, follower.kill_at = 0, kill_at
        is_done = run(follower)
        if fails_power:
            follower.disk.fail_power()
        found = logical(follower.root, may_be_torn=True)
        unfinished += is_unfinished(follower.root)
        if not is_unfinished(follower.root) and not is_done:
            assert found in (before, logical(root / "b")), "a state between, and no mark"
        recover_copy(follower.root, root / "scratch")
        assert run(follower)
        assert_equal_stores(root / "b", follower.root)
        assert not is_unfinished(follower.root)
        kept = [path.read_bytes() for path in (follower.root / "replica" / "discarded").rglob("db-*.log")]
        for lost in (trace("tail"), trace("nobody's")):
            assert any(batch(lost) in content for content in kept)
        shutil.rmtree(follower.root)
    assert unfinished > count / 3
