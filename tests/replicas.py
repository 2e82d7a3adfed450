"""A master and a follower of the replication stream on directories of a test, over loopback."""

import asyncio
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from zlib import crc32

from pybroker.broker.domain.replica.frames import BatchPiece, ReplacePiece
from pybroker.broker.domain.replica.operations import (
    MARKER_BYTES,
    BeginFile,
    CutFile,
    Journal,
    Operation,
    RemoveFiles,
    ReplaceFile,
    WriteBatch,
)
from pybroker.broker.domain.replica.plan import PlanAction, PlanEntry, make_plan, wanted_prefixes
from pybroker.broker.domain.replica.ports import FollowerWishes, RegisterSnapshot, ReplicaMember
from pybroker.broker.domain.replica.reports import ComparisonResult
from pybroker.broker.domain.replica.store_ports import FileChange
from pybroker.store.journal.commands import Trace, encode
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import EOF_MARKER, data_file_name, encode_batch, encode_record
from pybroker.store.journal.reader import DataFileWalk, data_files, load
from pybroker.store.journal.store import JournalStore
from pybroker.store.replica.catch_up import MasterFiles
from pybroker.store.replica.receiver import ReceiverSettings, ReplicaReceiver
from pybroker.store.runtime import StoreRuntime
from pybroker.transports.replica.follower import ReplicaFollower
from pybroker.transports.replica.peer_certificates import PeerCertificates
from pybroker.transports.replica.server import ReplicaServer, StreamPolicy

CLUSTER = "cluster-1"
WAIT_SECONDS = 30.0
"""The time after which a test fails that waits for the other side."""

MASTER = ReplicaMember(cluster=CLUSTER, store="s-a", run="l-a", name="a")
FOLLOWER = ReplicaMember(cluster=CLUSTER, store="s-b", run="l-b", name="b")


def journals(root: Path) -> dict[Journal, Path]:
    """Return the directories of a store's journals."""
    return {Journal.MESSAGES: root / "kahadb", Journal.SCHEDULER: root / "scheduler"}


def batch(*payloads: bytes) -> bytes:
    """Return a batch of records."""
    return encode_batch([encode_record(payload) for payload in payloads])


class MasterJournals:
    """Both journals of a master, as its writers change them. Operations are reported before they are carried out.

    Attributes:
        sequence: of the last operation.
        report: takes each operation first.
        is_holding: operations are reported, and carried out by `release`: a master that was killed in between.
    """

    def __init__(self, root: Path, preallocate_bytes: int = 64 << 10) -> None:
        self.sequence = 0
        self.report: Callable[[int, Operation], None] = lambda _sequence, _operation: None
        self.synced: Callable[[int], None] = lambda _sequence: None
        self.is_holding = False
        self.held: list[tuple[int, Operation]] = []
        self.files = {journal: JournalFiles(path) for journal, path in journals(root).items()}
        self._preallocate_bytes = preallocate_bytes
        self._open: dict[Journal, tuple[int, int]] = {}
        self.ends: dict[Journal, tuple[int, int]] = {}
        for files in self.files.values():
            files.directory.mkdir(parents=True, exist_ok=True)
        self._seal(logical(root, may_be_torn=True))

    def _seal(self, contents: dict[tuple[Journal, int], bytes]) -> None:
        """Seal the files of a former master, as a take-over does."""
        for (journal, file_id), content in contents.items():
            self.files[journal].replace(file_id, (content, EOF_MARKER))

    def begin(self, journal: Journal, file_id: int = 0) -> int:
        """Begin a data file behind the last one, and return its number."""
        if journal in self.ends:
            last, end = self.ends[journal]
            self.do(CutFile(journal, last, end + MARKER_BYTES))
        else:
            last = max(data_files(self.files[journal].directory), default=0)
        file_id = file_id or last + 1
        self.ends[journal] = file_id, 0
        self.do(BeginFile(journal, file_id))
        return file_id

    def write(self, journal: Journal, *payloads: bytes) -> None:
        """Append a batch."""
        content = batch(*payloads)
        file_id, end = self.ends[journal]
        self.ends[journal] = file_id, end + len(content)
        self.do(WriteBatch(journal, file_id, end, (content[:10], content[10:])))

    def replace(self, journal: Journal, file_id: int, *payloads: bytes) -> None:
        """Give a finished file another content."""
        self.do(ReplaceFile(journal, file_id, (batch(*payloads), EOF_MARKER)))

    def remove(self, journal: Journal, *file_ids: int) -> None:
        """Remove files."""
        self.do(RemoveFiles(journal, sorted(file_ids)))

    def do(self, operation: Operation) -> None:
        """Report an operation, and carry it out."""
        self.sequence += 1
        self.report(self.sequence, operation)
        self.held.append((self.sequence, operation))
        if not self.is_holding:
            self.release()

    def release(self) -> None:
        """Carry out what was held."""
        held, self.held = self.held, []
        for sequence, operation in held:
            self._carry_out(operation)
            self.synced(sequence)

    def close(self) -> None:
        """Close the files, as a killed process does."""
        for journal, (_, descriptor) in self._open.items():
            self.files[journal].close(descriptor)
        self._open.clear()

    def _carry_out(self, operation: Operation) -> None:
        files = self.files[operation.journal]
        match operation:
            case BeginFile(journal, file_id):
                if (opened := self._open.pop(journal, None)) is not None:
                    files.close(opened[1])
                self._open[journal] = file_id, files.create(file_id, self._preallocate_bytes)
            case WriteBatch(journal, _, offset, content):
                descriptor = self._open[journal][1]
                files.write(descriptor, (*content, EOF_MARKER), offset)
                files.sync(descriptor)
            case CutFile(journal, _, length):
                files.truncate(self._open[journal][1], length)
            case ReplaceFile(_, file_id, content):
                files.replace(file_id, content)
            case RemoveFiles(_, file_ids):
                files.remove(*(files.path(file_id) for file_id in file_ids))


class SeenFollowers:
    """Implements `FollowerEvents`: what the master's followers did, and a way to wait for it."""

    def __init__(self) -> None:
        self.log: list[tuple[object, ...]] = []
        self.confirmed_by: dict[str, int] = {}
        self.joined_count = self.lost_count = 0
        self.promised_at = float("-inf")
        self._changed = asyncio.Event()

    def joined(self, store: str, connection: int) -> None:
        self.joined_count += 1
        self.confirmed_by[store] = 0
        self._add("joined", store, connection)

    def confirmed(
        self, store: str, connection: int, epoch: int, sequence: int, sent_at: float, has_promised: bool
    ) -> None:
        self.confirmed_by[store] = sequence
        if has_promised:
            self.promised_at = max(self.promised_at, sent_at)
        self._add("confirmed", store, connection, epoch, sequence)

    def leaving(self, store: str, connection: int) -> None:
        self._add("leaving", store, connection)

    def lost(self, store: str, connection: int) -> None:
        self.lost_count += 1
        self._add("lost", store, connection)

    def verified(self, store: str, name: str, result: ComparisonResult) -> None:
        self._add("verified", store, name, result)

    def _add(self, *entry: object) -> None:
        self.log.append(entry)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that is checked after each event."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_confirmed(self, sequence: int, store: str = FOLLOWER.store) -> None:
        """Wait until a follower has confirmed a sequence."""
        await self.until(lambda: self.confirmed_by.get(store, 0) >= sequence)


class TakenFrames:
    """Implements `CopyEvents`."""

    def __init__(self) -> None:
        self.epoch_allowed: Callable[[int], bool] = lambda _: True
        self.gives_grace = True
        self.registers: list[RegisterSnapshot] = []
        self.failures: list[Exception] = []
        self.handed: list[str] = []
        self.heard_count = 0
        self.has_failed = threading.Event()
        self.results: queue.SimpleQueue[ComparisonResult] = queue.SimpleQueue()

    def may_take(self, epoch: int) -> bool:
        return self.epoch_allowed(epoch)

    def promises(self, epoch: int) -> bool:
        return self.gives_grace

    def wishes(self) -> FollowerWishes:
        return FollowerWishes()

    def planned(self, register: RegisterSnapshot) -> None:
        self.registers.append(register)

    def heard(self, epoch: int) -> None:
        self.heard_count += 1

    def handed_over(self, sentence: str) -> None:
        self.handed.append(sentence)

    def failed(self, error: Exception) -> None:
        self.failures.append(error)
        self.has_failed.set()

    def verified(self, result: ComparisonResult) -> None:
        self.results.put(result)


class MasterNode:
    """A master with its journals and its server, on the test's loop."""

    def __init__(
        self,
        root: Path,
        policy: StreamPolicy | None = None,
        *,
        epoch: int = 1,
        secret: bytes = b"",
        member: ReplicaMember = MASTER,
        tls: PeerCertificates | None = None,
    ) -> None:
        self.journals = MasterJournals(root)
        self.events = SeenFollowers()
        register = RegisterSnapshot(7, b'{"epoch": 1}')
        self.server = ReplicaServer(
            MasterFiles(root, journals(root)),
            member,
            lambda: register,
            self.events,
            clock=time.monotonic,
            policy=policy,
            secret=secret,
            tls=tls,
        )
        self.epoch = epoch
        self.port = 0

    async def start(self) -> None:
        self.port = await self.server.listen("127.0.0.1", 0)
        self.server.begin_epoch(self.epoch, self.journals.sequence)
        self.journals.report = self.server.ship
        self.journals.synced = self.server.synced

    async def close(self) -> None:
        await self.server.close()
        self.journals.close()


def follower(
    root: Path,
    port: int,
    *,
    epoch: int = 1,
    events: TakenFrames | None = None,
    settings: ReceiverSettings | None = None,
    member: ReplicaMember = FOLLOWER,
    secret: bytes = b"",
    timeout: float = 2.0,
    tls: PeerCertificates | None = None,
) -> ReplicaFollower:
    """Return a follower that is not started."""
    root.mkdir(exist_ok=True)
    store = ReplicaReceiver(root, journals(root), settings)
    return ReplicaFollower(
        store,
        ("127.0.0.1", port),
        epoch,
        member,
        TakenFrames() if events is None else events,
        secret=secret,
        timeout=timeout,
        tls=tls,
        pause_seconds=0.001,
    )


def logical(root: Path, *, may_be_torn: bool = False) -> dict[tuple[Journal, int], bytes]:
    """Return the logical contents of a store's data files, which are sound; the last one may have a torn end."""
    contents: dict[tuple[Journal, int], bytes] = {}
    for journal, directory in journals(root).items():
        paths = data_files(directory) if directory.is_dir() else {}
        for file_id, path in paths.items():
            data = load(path)
            walk = DataFileWalk(data, file_id)
            for _ in walk.batches():
                pass
            is_last = may_be_torn and file_id == max(paths)
            assert not [damage for damage in walk.damages if not (is_last and damage.at_end)], walk.damages
            contents[journal, file_id] = data[: walk.end]
    return contents


def assert_equal_stores(master: Path, copy: Path) -> None:
    """Check that both have the same logical contents, and the same finished files."""
    one, other = logical(master), logical(copy)
    assert sorted(one) == sorted(other)
    for (journal, file_id), content in one.items():
        assert content == other[journal, file_id], f"{journal.name} {file_id} differs"
    for journal, directory in journals(master).items():
        for file_id in sorted(data_files(directory))[:-1]:
            name = data_file_name(file_id)
            assert (directory / name).read_bytes() == (journals(copy)[journal] / name).read_bytes(), name


async def closed(*copies: ReplicaFollower) -> None:
    """Close followers without blocking the loop that serves them."""
    for each in copies:
        await asyncio.to_thread(each.close)


def payloads(count: int, size: int = 20) -> Sequence[bytes]:
    """Return different payloads."""
    return [b"%d:" % number + b"x" * size for number in range(count)]


def trace(text: str) -> bytes:
    """Return a record that each journal takes and ignores."""
    return encode(Trace(text))


def catch_up(master: Path, store: ReplicaReceiver, epoch: int = 1) -> None:
    """Make a follower's store that of a master which changes nothing, without a connection."""
    theirs = store.examine()
    source = MasterFiles(master, journals(master))
    mine = source.manifest().files
    wanted = wanted_prefixes(mine, theirs)
    of_master = {prefix: crc for prefix in wanted.of_master if (crc := source.checksum(*prefix)) is not None}
    of_follower = {prefix: store.checksum(*prefix) for prefix in wanted.of_follower}
    plan = make_plan(mine, theirs, of_master, of_follower)
    store.begin(epoch, plan)
    newest = {each.journal: each.file_id for each in mine}
    known = {each[:2] for each in theirs}
    for entry in plan:
        is_finished = newest.get(entry.journal) != entry.file_id
        for change in _changes(source, entry, is_known=entry[:2] in known, is_finished=is_finished):
            store.apply([change], is_live=False)
    store.apply([], is_live=True)


def _changes(source: MasterFiles, entry: PlanEntry, *, is_known: bool, is_finished: bool) -> Iterator[FileChange]:
    """Return the changes that carry out a plan's entry."""
    journal, file_id, action, start, end = entry
    opened = source.open(journal, file_id)
    if opened is None or action not in (PlanAction.FETCH, PlanAction.REPLACE):
        return
    if action is PlanAction.REPLACE:
        content = opened.piece(0, end) + EOF_MARKER
        yield ReplacePiece(journal, file_id, len(content), crc32(content), 0, content)
    else:
        if not is_known:
            yield BeginFile(journal, file_id)
        left = 0
        while start < end:
            content, left = opened.read(start, end, left)
            yield BatchPiece(journal, file_id, start, left, content, is_live=False)
            start += len(content)
        if is_finished:
            yield CutFile(journal, file_id, end + MARKER_BYTES)
    opened.close()


def recover_copy(root: Path, scratch: Path) -> None:
    """Take over a copy of a store as a new master does, and check that nothing in it is damaged."""
    shutil.copytree(root, scratch)
    runtime = StoreRuntime(
        call_soon=lambda _: None, post=lambda _: None, clock=lambda: 0, fence=lambda: None, on_failure=_fail
    )
    for directory in journals(scratch).values():
        if data_files(directory):
            store = JournalStore(directory, runtime=runtime)
            store.recover()
            assert not store.damages, store.damages
            store.abandon()
    shutil.rmtree(scratch)


def _fail(error: Exception) -> None:
    raise error
