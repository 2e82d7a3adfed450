"""One follower of the master: its manifest and its plan, its catch-up, and the live stream.

```text
NEGOTIATING  -- HELLO, manifest, PLAN -->  CATCHING_UP  -- LIVE -->  LIVE
                                                ^                      |  more than 16 MB wait to be sent
                                                `----------------------'
```

The catch-up reads the master's files. It goes in rounds: each sends what was synced until it began. When little is left
the operations that follow are kept in memory; the rest up to there is sent, then LIVE, then what was kept. Sends never
wait for it.

Files may be replaced and removed meanwhile. A file is open while it is sent, so it can be read to its end. One that was
replaced before it was opened, which its inode number shows, is sent as a whole; one that is gone is left out. Removals
and replacements are sent as such before LIVE, in their order.

Used on the event loop; files are read in a thread.
"""

import asyncio
import enum
import logging
import time
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

from pybroker.broker.domain.errors import StoreError
from pybroker.broker.domain.replica.frames import (
    PIECE_BYTES,
    BatchPiece,
    Compared,
    Confirm,
    FrameBody,
    Hello,
    Leave,
    MasterPlan,
    Measure,
    Measured,
    Ping,
    ReadRecord,
    RecordPiece,
    RefusedFrame,
    RepairRequest,
    ReplacePiece,
    StatusReport,
    StatusRequest,
    StreamFrame,
    StreamLive,
    Verified,
    VerifyRequest,
    agreed_version,
    encode_operation,
)
from pybroker.broker.domain.replica.manifest import MalformedFrame, ManifestFile, manifest_ends
from pybroker.broker.domain.replica.operations import (
    MARKER,
    MARKER_BYTES,
    BeginFile,
    CutFile,
    FilePlace,
    Journal,
    Operation,
    RemoveFiles,
    ReplaceFile,
    WriteBatch,
)
from pybroker.broker.domain.replica.plan import (
    PlanAction,
    PlanEntry,
    Prefix,
    left_bytes,
    make_plan,
    wanted_prefixes,
)
from pybroker.broker.domain.replica.ports import (
    FollowerEvents,
    FollowerProgress,
    FollowerWishes,
    RegisterSnapshot,
    ReplicaMember,
)
from pybroker.broker.domain.replica.reports import ClusterReport, ComparisonResult
from pybroker.broker.domain.replica.store_ports import DataFileSource, MasterStore
from pybroker.counted import counted
from pybroker.transports.replica.comparison import StoreComparison
from pybroker.transports.replica.link import HIGH_WATER_BYTES, FollowerLink
from pybroker.transports.replica.opening import open_data_file
from pybroker.transports.replica.positions import JournalPositions
from pybroker.transports.replica.questions import RecordQuestions

NEVER: Final = float("-inf")
LAST_ROUND_BYTES: Final = 1 << 20
"""When fewer bytes of the journal are left to send, the catch-up ends and live replication begins."""

QUESTIONS_BYTES_MAX: Final = 128 << 20
"""A follower that has more waiting for it, and asks for comparisons, is refused: a live one never has so much."""

NANOSECONDS: Final = 1_000_000_000

_log = logging.getLogger(__name__)

T = TypeVar("T")


class SessionPhase(enum.Enum):
    """The phases of a follower's connection."""

    NEGOTIATING = "its manifest is awaited, or compared"
    CATCHING_UP = "it is sent what it lacks"
    LIVE = "it is sent each operation as it happens"


class SessionHost(Protocol):
    """The server, as a session sees it."""

    member: ReplicaMember
    store: MasterStore
    positions: JournalPositions
    epoch: int
    first_files: Mapping[Journal, int]
    shipped: int
    queue_bytes_max: int
    rate_bytes: int

    @property
    def register(self) -> RegisterSnapshot:
        """The register as it is known now."""
        ...

    @property
    def events(self) -> FollowerEvents:
        """Takes the events of followers."""
        ...

    def report(self) -> ClusterReport:
        """Return how far the members are."""
        ...

    def lag_seconds(self, sequence: int) -> float:
        """Return for how long there have been operations behind a sequence."""
        ...

    def in_thread(self, call: Callable[[], T]) -> Awaitable[T]:
        """Run a call that blocks."""
        ...

    async def wait_begun(self) -> None:
        """Wait for the epoch."""
        ...

    async def wait_synced(self, sequence: int) -> None:
        """Wait until the master has synced everything up to a sequence."""
        ...

    def admit(self, session: "FollowerSession", hello: Hello) -> int:
        """Return the number of a follower's connection.

        Raises:
            MalformedFrame: this follower is refused.
        """
        ...

    def refused(self, peer: str, reason: str) -> None:
        """Log that a peer is no follower."""
        ...

    def ended(self, session: "FollowerSession") -> None:
        """Forget a session."""
        ...


class _Note(NamedTuple):
    """A replacement or removal during a catch-up."""

    sequence: int
    journal: Journal
    replaced: int
    removed: Sequence[int]


class FollowerSession:
    """One connection of a follower. Made by the server, for a link."""

    def __init__(self, host: SessionHost, link: FollowerLink) -> None:
        self._host = host
        self._link = link
        self._phase = SessionPhase.NEGOTIATING
        self._task: asyncio.Task[None] | None = None
        self._hello: asyncio.Future[Hello] | None = None
        self._measured: asyncio.Future[Measured] | None = None
        self.member: ReplicaMember | None = None
        self.connection = 0
        """0: not admitted."""
        self._cursors: dict[Journal, FilePlace] = {}
        self._inodes: dict[tuple[Journal, int], int] = {}
        self._known: set[tuple[Journal, int]] = set()
        """The files that the follower has."""
        self._notes: list[_Note] | None = None
        self._kept: list[tuple[int, Operation]] | None = None
        """Operations behind the catch-up's end; None while that is not decided."""
        self._kept_bytes = 0
        self._left_bytes = 0
        self._begun_at = time.monotonic()
        self._sent = 0
        self._confirmed = 0
        self._wishes = FollowerWishes()
        self._pinged_ns = 0
        self._promised_ns = 0
        self.is_leaving = False
        self._comparison: StoreComparison | None = None
        self._comparing: asyncio.Task[None] | None = None
        self._records = RecordQuestions(self.send)
        self.compared_at = NEVER
        """The time at which the latest comparison began, or the follower became live, by `time.monotonic`."""

    # ------------------------------------------------------------ the link's side

    def authenticated(self) -> None:
        """Begin to serve the follower."""
        loop = asyncio.get_running_loop()
        self._hello, self._measured = loop.create_future(), loop.create_future()
        self._task = loop.create_task(self._run(self._serve))

    def received(self, frame: StreamFrame) -> None:
        """Take a frame of the follower.

        Raises:
            MalformedFrame: it may not come now.
        """
        match frame.body:
            case Confirm() as confirm:
                self._take_confirm(frame.sequence, confirm)
            case Hello() as hello if self._hello is not None and not self._hello.done():
                self._hello.set_result(hello)
            case Measured() as measured if self._measured is not None and not self._measured.done():
                self._measured.set_result(measured)
            case Leave(sentence) if self.member is not None and self.connection:
                _log.info("%s leaves the cluster's in-sync set: %s", self.member.name, sentence)
                self.is_leaving = True
                self._host.events.leaving(self.member.store, self.connection)
            case RefusedFrame(sentence):
                raise MalformedFrame(f"the follower refused: {sentence}")
            case StatusRequest():
                if self._link.queued_bytes < HIGH_WATER_BYTES:  # one that asks and takes no answers fills no memory
                    self.send(StatusReport(self._host.report()))
            case VerifyRequest() | RepairRequest() if self._link.queued_bytes > QUESTIONS_BYTES_MAX:
                raise MalformedFrame("it asks for comparisons, and takes no answers")
            case VerifyRequest() if self.connection:
                self.compare()
            case RepairRequest(files) if self.connection:
                self.compare(files)
            case RecordPiece() as piece if self._records.take(piece):
                pass
            case Compared(crc) if self._comparison is not None and self._comparison.answer(crc):
                pass
            case _:
                raise MalformedFrame(f"{type(frame.body).__name__} does not come now")

    def lost(self, reason: str) -> None:
        """End the session."""
        for task in (self._task, self._comparing):
            if task is not None:
                task.cancel()
        self._records.end()
        self._host.ended(self)
        if self.connection and self.member is not None:
            _log.info("%s: the connection of follower %s has ended: %s", self._link.peer, self.member.name, reason)
            self._host.events.lost(self.member.store, self.connection)
        else:
            self._host.refused(self._link.peer, reason)

    def _take_confirm(self, sequence: int, confirm: Confirm) -> None:
        if self.member is None or not self.connection:
            raise MalformedFrame("a confirmation before HELLO")
        if sequence > self._sent or confirm.clock > self._pinged_ns:
            raise MalformedFrame(f"a confirmation of {sequence}, and {self._sent} was sent")
        self._confirmed = max(self._confirmed, sequence)
        self._wishes = confirm.wishes
        if confirm.has_promised:
            self._promised_ns = max(self._promised_ns, confirm.clock)
        sent_at = confirm.clock / NANOSECONDS if confirm.clock else NEVER
        has_promised = confirm.has_promised and confirm.clock > 0
        self._host.events.confirmed(
            self.member.store, self.connection, self._host.epoch, sequence, sent_at, has_promised
        )

    # ------------------------------------------------------------ the server's side

    @property
    def progress(self) -> FollowerProgress | None:
        """How far the follower is; None before it is admitted."""
        if self.member is None or not self.connection:
            return None
        return FollowerProgress(
            store=self.member.store,
            name=self.member.name,
            connection=self.connection,
            is_live=self._phase is SessionPhase.LIVE,
            confirmed=self._confirmed,
            left_bytes=max(self._left_bytes, 0),
            queued_bytes=self._link.queued_bytes + self._kept_bytes,
            may_stand=self._wishes.may_stand,
            wants_to_serve=self._wishes.wants_to_serve,
            # What a former connection has confirmed is not known here, and nothing was sent before this one.
            lag_seconds=min(self._host.lag_seconds(self._confirmed), time.monotonic() - self._begun_at),
        )

    @property
    def is_closed(self) -> bool:
        """True when nothing is sent or taken any more."""
        return self._link.is_closed

    @property
    def is_live(self) -> bool:
        """True while it receives operations as they happen."""
        return self._phase is SessionPhase.LIVE and not self._link.is_closed

    @property
    def is_comparing(self) -> bool:
        """True during a comparison."""
        return self._comparison is not None

    async def record(self, journal: Journal, file_id: int, offset: int) -> bytes:
        """Return the follower's copy of a record, with its header; nothing if it has none, or has gone."""
        return await self._records.ask(ReadRecord(journal, file_id, offset)) if self.is_live else b""

    async def drain(self) -> None:
        """Wait until the connection takes more."""
        await self._link.drain()

    def compare(self, repaired: Sequence[tuple[Journal, int]] = (), *, is_slow: bool = False) -> None:
        """Begin to compare the follower's store, after sending it some files as a whole; its end is reported."""
        if not self.is_live or self.is_comparing:
            problem = "another comparison is under way" if self.is_live else "the follower is still catching up"
            self.send(Verified(ComparisonResult(problem=problem)))
            return
        self._comparison = StoreComparison(self._host.store, self, self._host.in_thread, is_slow=is_slow)
        self.compared_at = time.monotonic()
        self._comparing = asyncio.get_running_loop().create_task(
            self._run(partial(self._compare, self._comparison, repaired))
        )

    async def _compare(self, comparison: StoreComparison, repaired: Sequence[tuple[Journal, int]]) -> None:
        try:
            result = await comparison.run(repaired)
        finally:
            self._comparison = None
        assert self.member is not None, "it was admitted"
        self._host.events.verified(self.member.store, self.member.name, result)
        self.send(Verified(result))

    @property
    def heard_at(self) -> float:
        """When something came last."""
        return self._link.heard_at

    def ship(self, sequence: int, operation: Operation, size: int) -> None:
        """Send an operation, or keep in mind what the catch-up must know of it.

        Args:
            sequence: of the operation.
            operation: the operation, which `positions` knows already.
            size: bytes that it appends.
        """
        if self._phase is SessionPhase.LIVE:
            self._sent = sequence
            if self._comparison is not None:
                self._comparison.note(operation)
            for pieces in encode_operation(self._link.seal, sequence, operation):
                self._link.send_pieces(pieces)
            if self._link.queued_bytes > self._host.queue_bytes_max:
                self._fall_back()
            return
        if self._notes is None:
            return
        self._left_bytes += size
        match operation:
            case ReplaceFile(journal, file_id, _):
                self._notes.append(_Note(sequence, journal, file_id, ()))
            case RemoveFiles(journal, file_ids):
                self._notes.append(_Note(sequence, journal, 0, file_ids))
            case _:
                pass
        if self._kept is not None:
            self._keep(sequence, operation)

    def ping(self, clock_ns: int, committed: int) -> None:
        """Send a ping, once the follower is admitted."""
        if self.connection and not self._link.is_closed:
            self._pinged_ns = clock_ns
            self._link.send(StreamFrame(0, Ping(clock_ns, committed)))

    def send(self, body: FrameBody) -> None:
        """Send a frame that is no operation."""
        self._link.send(StreamFrame(0, body))

    def hang_up(self, reason: str) -> None:
        """Close the connection."""
        self._link.refuse(reason)

    # ------------------------------------------------------------ negotiation

    async def _run(self, part: Callable[[], Awaitable[None]]) -> None:
        """Run a part of the session, and close the connection if that fails."""
        try:
            await part()
        except MalformedFrame as error:
            self._link.refuse(str(error))
        except StoreError as error:
            _log.error("%s: a follower cannot catch up: %s", self._link.peer, error)
            self._link.refuse("the master cannot read its data files")
        except ConnectionError:
            pass  # the link reports it
        except Exception as error:
            _log.exception("%s: a follower cannot be served", self._link.peer)
            self._link.refuse(f"an error of the master: {type(error).__name__}")

    async def _serve(self) -> None:
        """Serve the follower until it is live."""
        plan = await self._negotiate()
        await self._send_planned(plan)
        await self._catch_up()

    async def _negotiate(self) -> Sequence[PlanEntry]:
        """Admit the follower, and send its plan."""
        host, link = self._host, self._link
        assert self._hello is not None, "the handshake is over"
        assert self._measured is not None, "the handshake is over"
        hello = await self._hello
        await host.wait_begun()
        self.connection = host.admit(self, hello)
        self.member = hello.member
        host.events.joined(hello.member.store, self.connection)
        self._notes = []
        await host.wait_synced(host.shipped)
        manifest = await host.in_thread(host.store.manifest)
        wanted = wanted_prefixes(manifest.files, hello.manifest)
        of_follower: dict[Prefix, int] = {}
        if wanted.of_follower:
            link.send(StreamFrame(0, Measure(wanted.of_follower)))
            measured = await self._measured
            if len(measured.checksums) != len(wanted.of_follower):
                raise MalformedFrame(f"{len(measured.checksums)} checksums, asked for {len(wanted.of_follower)}")
            of_follower = dict(zip(wanted.of_follower, measured.checksums, strict=True))
        of_master = await host.in_thread(partial(_checksums, host.store, wanted.of_master))
        made = make_plan(manifest.files, hello.manifest, of_master, of_follower, host.first_files)
        plan = await host.in_thread(partial(_sparing_sound_copies, host.store, made, hello.manifest))
        self._inodes = {each[:2]: inode for each, inode in zip(manifest.files, manifest.inodes, strict=True)}
        self._known = {each[:2] for each in hello.manifest}
        self._cursors = manifest_ends(manifest.files)
        self._left_bytes += left_bytes(plan)
        self._log_plan(plan)
        self._phase = SessionPhase.CATCHING_UP
        link.send(StreamFrame(0, MasterPlan(agreed_version(hello), host.epoch, host.member, host.register, plan)))
        return plan

    def _log_plan(self, plan: Sequence[PlanEntry]) -> None:
        assert self.member is not None, "it was admitted"
        counts = Counter(entry.action for entry in plan)
        text = ", ".join(f"{counted(counts[each], 'data file')} to {each.name.lower()}" for each in sorted(counts))
        _log.info("%s: follower %s joins: %s", self._link.peer, self.member.name, text or "no data files")

    # ------------------------------------------------------------ catch-up

    async def _catch_up(self) -> None:
        """Send rounds until the follower is live."""
        while self._phase is not SessionPhase.LIVE:
            await self._link.drain()  # what is kept for the live stream comes on top of what waits
            is_last = self._left_bytes <= LAST_ROUND_BYTES
            sequence, ends = self._host.shipped, dict(self._host.positions.ends)
            if is_last:
                self._kept, self._kept_bytes = [], 0
            self._left_bytes = 0
            await self._host.wait_synced(sequence)
            for journal in Journal:
                if (end := ends.get(journal)) is not None:
                    await self._send_round(journal, end)
            await self._send_notes(sequence)
            if self._kept is not None:
                self._go_live(sequence)

    def _go_live(self, sequence: int) -> None:
        kept = self._kept
        assert kept is not None, "the last round"
        self._kept, self._notes, self._kept_bytes, self._left_bytes = None, None, 0, 0
        self._sent = sequence
        self._link.send(StreamFrame(sequence, StreamLive()))
        self._phase = SessionPhase.LIVE
        self.compared_at = time.monotonic()
        for later, operation in kept:
            self._sent = later
            for pieces in encode_operation(self._link.seal, later, operation):
                self._link.send_pieces(pieces)
        assert self.member is not None, "it was admitted"
        _log.info("%s: follower %s has caught up", self._link.peer, self.member.name)

    def _keep(self, sequence: int, operation: Operation) -> None:
        """Keep an operation for the live stream; too many of them make this round not the last one."""
        assert self._kept is not None, "the last round"
        self._kept.append((sequence, operation))
        self._kept_bytes += _size(operation)
        if self._kept_bytes > self._host.queue_bytes_max:
            self._kept, self._kept_bytes = None, 0

    def _fall_back(self) -> None:
        """Go back to the catch-up: what waits is sent, and what follows is read from the files."""
        assert self.member is not None, "it was admitted"
        _log.warning(
            "%s: follower %s is too slow: %d bytes wait for it, and it goes back to the catch-up",
            self._link.peer,
            self.member.name,
            self._link.queued_bytes,
        )
        self._phase = SessionPhase.CATCHING_UP
        self._notes = []
        self._left_bytes = 0
        self._inodes, self._known = {}, set()
        self._cursors = dict(self._host.positions.ends)
        self._known.update((journal, place.file_id) for journal, place in self._cursors.items())
        self._task = asyncio.get_running_loop().create_task(self._run(self._catch_up))

    async def _send_planned(self, plan: Sequence[PlanEntry]) -> None:
        """Send what the plan has the follower fetch."""
        for entry in plan:
            journal, file_id, action, start, end = entry
            is_finished = self._cursors.get(journal, FilePlace(0, 0)).file_id != file_id
            if action is PlanAction.FETCH:
                await self._send_file(journal, file_id, start, end, is_finished=is_finished)
            elif action is PlanAction.REPLACE:
                await self._send_replacement(journal, file_id, end)

    async def _send_round(self, journal: Journal, end: FilePlace) -> None:
        """Send a journal from where the follower is up to an end, all of which is synced."""
        cursor = self._cursors.get(journal, FilePlace(0, 0))
        behind = self._host.positions.files_behind(journal, cursor.file_id)
        for file_id in (cursor.file_id, *behind) if cursor.file_id else behind:
            if file_id > end.file_id:
                break
            start = cursor.offset if file_id == cursor.file_id else 0
            if file_id == end.file_id:
                stop = end.offset
            else:
                length = self._host.positions.length(journal, file_id)
                stop = start if length is None else length
            await self._send_file(journal, file_id, start, stop, is_finished=file_id != end.file_id)
            self._cursors[journal] = FilePlace(file_id, stop)

    async def _send_file(self, journal: Journal, file_id: int, start: int, end: int, *, is_finished: bool) -> None:
        """Send a part of a file up to its end; a file that was replaced as a whole, and one that is gone not at all."""
        source = await open_data_file(self._host.store, self._host.in_thread, journal, file_id)
        if source is None:
            return
        key = journal, file_id
        try:
            if self._inodes.setdefault(key, source.inode) != source.inode or source.size < end or start > end:
                self._inodes[key] = source.inode
                await self._send_whole(source, journal, file_id, max(source.size - MARKER_BYTES, 0))
                return
            if key not in self._known:
                self._known.add(key)
                self.send(BeginFile(journal, file_id))
            left = 0
            while start < end:
                part = await self._host.in_thread(partial(source.read, start, end, left))
                content, left = part
                await self._send_part(BatchPiece(journal, file_id, start, left, content, is_live=False), len(content))
                start += len(content)
            if is_finished:
                self.send(CutFile(journal, file_id, end + MARKER_BYTES))
        finally:
            source.close()

    async def _send_replacement(self, journal: Journal, file_id: int, end: int | None) -> None:
        """Send a file as a whole, up to an end, or all of it."""
        source = await open_data_file(self._host.store, self._host.in_thread, journal, file_id)
        if source is None:
            return
        try:
            is_same = self._inodes.setdefault((journal, file_id), source.inode) == source.inode
            if end is None or not is_same or source.size < end:
                self._inodes[journal, file_id] = source.inode
                end = max(source.size - MARKER_BYTES, 0)
            await self._send_whole(source, journal, file_id, end)
        finally:
            source.close()

    async def _send_whole(self, source: DataFileSource, journal: Journal, file_id: int, end: int) -> None:
        """Send a file's logical contents, with an EOF marker, as its new content."""
        checksum = await self._host.in_thread(partial(source.checksum, end))
        crc, length, at = zlib.crc32(MARKER, checksum), end + MARKER_BYTES, 0
        while at < length:
            content = await self._host.in_thread(partial(source.piece, at, end)) if at < end else b""
            if at + len(content) == end and len(content) + MARKER_BYTES <= PIECE_BYTES:
                content += MARKER
            await self._send_part(ReplacePiece(journal, file_id, length, crc, at, content), len(content))
            at += len(content)
        self._known.add((journal, file_id))

    async def _send_notes(self, sequence: int) -> None:
        """Send the replacements and removals up to a sequence, in their order."""
        notes = self._notes
        assert notes is not None, "a catch-up"
        while notes and notes[0].sequence <= sequence:
            note = notes.pop(0)
            if note.replaced:
                await self._send_replacement(note.journal, note.replaced, None)
            else:
                self.send(RemoveFiles(note.journal, note.removed))

    async def _send_part(self, body: FrameBody, size: int) -> None:
        """Send a part of the catch-up, when the connection takes it."""
        await self._link.drain()
        self.send(body)
        self._left_bytes -= size
        if self._host.rate_bytes:
            await asyncio.sleep(size / self._host.rate_bytes)


def _checksums(store: MasterStore, prefixes: Sequence[Prefix]) -> dict[Prefix, int]:
    """Return the checksums of the beginnings that are there."""
    found = {prefix: store.checksum(*prefix) for prefix in prefixes}
    return {prefix: crc for prefix, crc in found.items() if crc is not None}


def _sparing_sound_copies(
    store: MasterStore, plan: Sequence[PlanEntry], follower: Sequence[ManifestFile]
) -> Sequence[PlanEntry]:
    """Return the plan without replacements of a follower's files by damaged ones of the master. Blocks.

    A damaged file differs from its copy, or seems to end before it if its last batch is damaged. The copy is kept if it
    ends where the master's file does. What the master still writes is not looked at.
    """
    lengths = {each[:2]: each.length for each in follower}
    newest = {entry.journal: entry.file_id for entry in plan if entry.action is not PlanAction.DROP}
    spared: list[PlanEntry] = []
    for entry in plan:
        journal, file_id, action, _, total = entry
        length = lengths.get((journal, file_id), 0)
        is_at_risk = action in (PlanAction.REPLACE, PlanAction.CUT) and file_id != newest[journal]
        if is_at_risk and _length(store, journal, file_id) == length and not store.is_sound(journal, file_id, total):
            _log.error("db-%d.log is damaged in the store of the master: a follower keeps its own", file_id)
            spared.append(PlanEntry(journal, file_id, PlanAction.KEEP, length, length))
        else:
            spared.append(entry)
    return spared


def _length(store: MasterStore, journal: Journal, file_id: int) -> int:
    """Return where a finished file ends, whatever is in it; -1 if it is gone."""
    source = store.open(journal, file_id)
    if source is None:
        return -1
    source.close()
    return source.size - MARKER_BYTES


def _size(operation: Operation) -> int:
    """Return about how much memory an operation takes."""
    match operation:
        case ReplaceFile(content=content) | WriteBatch(content=content):
            return sum(map(len, content))
        case _:
            return 100
