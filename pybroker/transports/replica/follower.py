"""A follower's end of the stream: a thread that dials the master, and writes what it sends.

```text
sync and examine the store -> dial -> handshake -> HELLO -> PLAN -> [ read -> decode -> write, sync -> CONFIRM ] …
        ^                                                                       |
        `------ after a pause: the connection has ended, a frame was refused ---'
```

Frames are taken on this connection alone, after its PLAN, of the epoch that the register names, and at exactly the ends
of the files. Anything else closes the connection, and the next one begins with a new comparison.

`ReplicaCopy` documents the methods.
"""

import contextlib
import errno
import logging
import os
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from pybroker.broker.domain.errors import StoreError
from pybroker.broker.domain.replica.frames import (
    FROM_MASTER,
    PIECE_BYTES,
    PROTOCOL_VERSION,
    PROTOCOL_VERSION_MIN,
    BatchPiece,
    Compare,
    Compared,
    Confirm,
    FrameBody,
    HandOver,
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
    StreamDecoder,
    StreamFrame,
    StreamLive,
    Verified,
    VerifyRequest,
    encode_frame,
)
from pybroker.broker.domain.replica.manifest import MalformedFrame, Manifest, manifest_ends
from pybroker.broker.domain.replica.operations import BeginFile, CutFile, Journal, RemoveFiles
from pybroker.broker.domain.replica.plan import left_bytes
from pybroker.broker.domain.replica.ports import CopyEvents, CopyProgress, ReplicaMember
from pybroker.broker.domain.replica.reports import DIFFERENCES_MAX, ComparisonResult
from pybroker.broker.domain.replica.seals import FrameSeal
from pybroker.broker.domain.replica.store_ports import FileChange, FollowerDiskFull, FollowerStore
from pybroker.errors import PybrokerError
from pybroker.transports.replica.handshake import (
    GREETING_BYTES,
    NONCE_BYTES,
    TLS_BEGINNINGS,
    ConnectionSeals,
    Handshake,
    require_protection,
)
from pybroker.transports.replica.link import set_options
from pybroker.transports.replica.peer_certificates import PeerCertificates, described

READ_BYTES: Final = 1 << 20
"""One read of the connection, and so one sync: what came while the one before was written."""

DIAL_SECONDS: Final = 2.0
PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 1.0
STATUS_SECONDS: Final = 1.0
"""The interval at which the master is asked for the state of the cluster, when frames have come from it."""

FULL_DISK_SECONDS: Final = 10.0
"""Pause after the disk was full; it doubles up to a minute. While a connection goes on: the interval of looking."""

FULL_DISK_SECONDS_MAX: Final = 60.0

NOTHING: Final = CopyProgress(
    is_connected=False, is_live=False, sequence=0, committed=0, left_bytes=0, ends=(), refusal=""
)

_log = logging.getLogger(__name__)


class StreamEnded(PybrokerError):
    """The connection has ended. The text is the reason."""


class ReplicaFollower:
    """Implements `ReplicaCopy`.

    Args:
        store: the follower's data files, which nothing else uses meanwhile.
        address: host and port of the master.
        epoch: of the master; frames of others are refused.
        member: who the follower is.
        revision: returns the revision of the register that is known, 0 for none.
        events: decides, and takes reports.
        timeout: `replicate_timeout` in seconds.
        secret: the cluster's; empty for none.
        tls: for TLS with certificates on both sides.
        server_name: the name in the master's certificate; empty: the host.
        pause_seconds: before the second attempt to dial; it doubles up to a second.
    """

    def __init__(
        self,
        store: FollowerStore,
        address: tuple[str, int],
        epoch: int,
        member: ReplicaMember,
        events: CopyEvents,
        *,
        revision: Callable[[], int] = lambda: 0,
        timeout: float = 2.0,
        secret: bytes = b"",
        tls: PeerCertificates | None = None,
        server_name: str = "",
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        require_protection(address[0], is_protected=bool(secret) or tls is not None)
        self._store = store
        self._address = address
        self._epoch = epoch
        self._member = member
        self._events = events
        self._revision = revision
        self._timeout = timeout
        self._secret = secret
        self._tls = tls
        self._server_name = server_name or address[0]
        self._pause_seconds = pause_seconds
        self._thread = threading.Thread(target=self._run, name="replica-follower", daemon=True)
        self._closing = threading.Event()
        self._left = threading.Event()
        """The connection on which LEAVE was sent has ended, or there was none."""
        self._is_leaving = False
        self._lock = threading.Lock()
        """Guards the connection, which `close` ends in another thread."""
        self._connection: socket.socket | None = None
        self._seal: FrameSeal | None = None
        self._progress = NOTHING
        self._has_failed = False
        self._full_disk_pause = 0.0
        """Seconds of the latest pause for a full disk; 0: the stream has been live since."""
        self._looked_at = float("-inf")
        """The time at which space was looked for, or there was enough."""
        self._wants_comparison = False
        self._wanted: Sequence[tuple[Journal, int]] = ()
        """Files of which whole copies are to be requested."""
        self._manifest: Manifest | None = None
        """The manifest of the store; None after a change. An unchanged store is not examined again to dial."""
        self._reset()

    def _reset(self) -> None:
        """Begin a new connection's state."""
        self._is_planned = self._is_live = self._has_promised = self._has_sent_leave = False
        self._taken = 0
        """The last operation of which something was taken; before the first, the catch-up's end."""
        self._is_partial = False
        """More pieces of it follow."""
        self._clock = 0
        self._is_comparing = False
        self._asked_at = float("-inf")

    # ------------------------------------------------------------ ReplicaCopy

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def leave(self, timeout: float) -> bool:
        """Ask the master to take this store out of the in-sync set, and wait for that."""
        self._left.clear()
        self._is_leaving = True
        if not self._progress.is_connected:
            return True  # nothing was confirmed on this connection
        return self._left.wait(timeout)  # LEAVE is sent with the answer to the next ping

    def close(self) -> None:
        """Take no frame any more, sync everything that was written, and end the thread."""
        self._closing.set()
        with self._lock:
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(self._connection, socket.SHUT_RDWR)  # TLS's own is not for two threads
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def verify(self) -> None:
        """Ask the master soon to compare the stores."""
        self._wants_comparison = True

    def repair(self, files: Sequence[tuple[Journal, int]]) -> None:
        """Ask the master soon for whole files, and for another comparison."""
        self._wanted = tuple(files)

    @property
    def progress(self) -> CopyProgress:
        """How far it is."""
        return self._progress

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        """Dial until `close`."""
        pause = self._pause_seconds
        try:
            while not self._closing.is_set() and not self._is_leaving:
                try:
                    self._connect()
                except FollowerDiskFull as error:
                    pause = self._pause_after_full_disk(error)
                except (StreamEnded, MalformedFrame, OSError) as error:
                    self._report(error)
                    pause = self._pause_seconds if self._is_planned else min(2 * pause, PAUSE_SECONDS_MAX)
                self._progress = self._progress._replace(is_connected=False, is_live=False)
                self._closing.wait(pause)
        except StoreError as error:
            self._fail(error)
        except Exception as error:  # a mistake of ours: nothing is confirmed any more
            _log.exception("the follower ends")
            self._fail(error)
        finally:
            self._left.set()
            self._close_store()

    def _pause_after_full_disk(self, error: FollowerDiskFull) -> float:
        """Return the seconds until the next connection, whose plan may free space: it removes what was collected."""
        if not self._full_disk_pause:
            _log.error("the disk is full, so the master is followed again later: %s", error)
        self._progress = self._progress._replace(refusal=str(error))
        self._full_disk_pause = min(max(2 * self._full_disk_pause, FULL_DISK_SECONDS), FULL_DISK_SECONDS_MAX)
        return self._full_disk_pause

    def _fail(self, error: Exception) -> None:
        self._progress = self._progress._replace(is_connected=False, is_live=False, refusal=str(error))
        if not self._has_failed:
            self._has_failed = True
            self._events.failed(error)

    def _close_store(self) -> None:
        try:
            self._store.close()
        except StoreError as error:
            self._fail(error)

    def _report(self, error: Exception) -> None:
        text = described(error) if isinstance(error, OSError) else str(error)
        if text != self._progress.refusal and not self._closing.is_set():
            _log.warning("following %s:%d: %s", *self._address, text)
        self._progress = self._progress._replace(refusal=text)

    def _connect(self) -> None:
        """Follow the master on one connection.

        Raises:
            StreamEnded: it has ended.
            MalformedFrame: the master has sent what does not fit.
            OSError: it cannot be reached.
            StoreError: the store cannot be used.
        """
        self._reset()
        manifest = self._manifest
        if manifest is None or self._store.is_short_of_space:
            manifest = self._manifest = self._store.examine()
        connection = self._dial()
        try:
            connection.settimeout(2 * self._timeout)
            set_options(connection, 2 * self._timeout)
            if self._tls is not None:
                connection = secured = self._tls.wrap(connection, self._server_name)
                self._own(secured)
                self._tls.shake_hands(secured)
            self._own(connection)
            self._seal, receive = self._shake_hands(connection)
            self._send(Hello(PROTOCOL_VERSION_MIN, PROTOCOL_VERSION, self._member, self._revision(), manifest))
            self._progress = self._progress._replace(ends=tuple(manifest_ends(manifest).items()))
            self._follow(connection, StreamDecoder(FROM_MASTER, receive))
        except MalformedFrame as error:
            with contextlib.suppress(OSError):
                self._send(RefusedFrame(str(error)))
            raise
        except TimeoutError:
            raise StreamEnded(f"nothing came for {2 * self._timeout:g} s") from None
        finally:
            with self._lock:
                self._connection, self._seal = None, None
            connection.close()
            self._end_comparison(ComparisonResult(problem="the connection to the master has ended"))
            self._left.set()

    def _dial(self) -> socket.socket:
        """Connect to the master, whose machine may be gone; `close` does not wait for that, nor does a promotion.

        Raises:
            OSError: it cannot be reached.
        """
        problem = OSError("it has no address")
        host, port = self._address
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            connection = socket.socket(family, kind, protocol)
            with self._lock:
                self._connection = connection
                connection.setblocking(False)
                code = errno.ECANCELED if self._closing.is_set() else connection.connect_ex(address)
            if code == errno.EINPROGRESS:
                code = _outcome(connection, min(DIAL_SECONDS, 2 * self._timeout))
            if not code:
                return connection
            problem = OSError(code, os.strerror(code))
            with self._lock:
                self._connection = None
            connection.close()
        raise problem

    def _own(self, connection: socket.socket) -> None:
        """Have `close` end this connection, which may have replaced another one that it knows.

        Raises:
            StreamEnded: it was called.
        """
        with self._lock:
            self._connection = connection
            if self._closing.is_set():
                raise StreamEnded("the copy ends")

    def _shake_hands(self, connection: socket.socket) -> ConnectionSeals:
        """Run the handshake, and return the seals of the frames."""
        shake = Handshake(self._secret, secrets.token_bytes(NONCE_BYTES), is_master=False)
        hint = handshake_hint(is_tls=self._tls is not None, has_secret=bool(self._secret))
        connection.sendall(shake.greeting)
        shake.receive_greeting(read_exactly(connection, GREETING_BYTES, hint))
        connection.sendall(shake.proof())
        shake.check_proof(read_exactly(connection, shake.proof_bytes, hint))
        return shake.seals()

    def _follow(self, connection: socket.socket, decoder: StreamDecoder) -> None:
        """Take what comes until the connection ends."""
        with memoryview(bytearray(READ_BYTES)) as buffer:
            while not self._closing.is_set():
                count = connection.recv_into(buffer)
                if not count:
                    raise StreamEnded("the master closed the connection")
                if self._closing.is_set():
                    return
                self._take(decoder.receive(buffer[:count]))
                if self._is_leaving and not self._has_sent_leave and self._is_planned:
                    self._has_sent_leave = True
                    self._send(Leave(f"{self._member.name} stops in order"))
                if self._is_planned:
                    self._send_questions()
                self._look_for_space()

    def _look_for_space(self) -> None:
        """End a connection on which this member has left the set for a full disk, once there is space again.

        Raises:
            StreamEnded: there is; the next connection may bring it back into the set.
        """
        now = time.monotonic()
        if not (self._is_live and self._store.is_short_of_space):
            self._looked_at = now
        elif now - self._looked_at >= FULL_DISK_SECONDS:
            self._looked_at = now
            if self._store.regain_space():
                raise StreamEnded("there is space on the disk again: following from the start")

    # ------------------------------------------------------------ frames

    def _take(self, frames: Sequence[StreamFrame]) -> None:
        """Take the frames of one read: write, sync, and confirm."""
        if self._is_planned and frames:
            self._require_master()
        changes: list[FileChange] = []
        is_pinged = False
        for sequence, body in frames:
            match body:
                case BatchPiece() | ReplacePiece() | BeginFile() | CutFile() | RemoveFiles():
                    self._require_next(sequence, body)
                    changes.append(body)
                case Compare() | ReadRecord():
                    self._apply(changes)
                    changes = []
                    self._answer(body)
                case StreamLive():
                    self._go_live(sequence, changes)
                    changes = []
                case Ping(clock, committed):
                    self._clock = clock
                    self._progress = self._progress._replace(committed=committed)
                    is_pinged = True
                case _:
                    self._take_other(body)
        self._apply(changes)
        if self._is_planned and frames:
            self._events.heard(self._epoch)
        if is_pinged:
            self._has_promised = self._is_planned and self._events.promises(self._epoch)
        if is_pinged or (self._is_live and frames):
            self._confirm()

    def _apply(self, changes: Sequence[FileChange]) -> None:
        if changes:
            self._store.apply(changes, is_live=self._is_live)
            self._report_progress(changes)

    def _take_other(self, body: FrameBody) -> None:
        """Take a frame that changes no file and is no ping."""
        match body:
            case MasterPlan() as plan if not self._is_planned:
                self._begin(plan)
            case Measure(prefixes) if not self._is_planned:
                self._send(Measured([self._store.checksum(*prefix) for prefix in prefixes]))
            case HandOver(sentence) if self._is_planned:
                self._events.handed_over(sentence)
            case StatusReport(report):
                self._progress = self._progress._replace(report=report)
            case Verified(result):
                self._is_comparing = True  # the master may have begun the comparison, and its result counts as well
                self._end_comparison(result)
            case RefusedFrame(sentence):
                raise StreamEnded(f"the master closed the connection: {sentence}")
            case _:
                raise MalformedFrame(f"{type(body).__name__} does not come now")

    def _begin(self, plan: MasterPlan) -> None:
        """Carry out the plan, if it is the register's master's."""
        if not PROTOCOL_VERSION_MIN <= plan.version <= PROTOCOL_VERSION:
            raise MalformedFrame(f"the master speaks version {plan.version} of the protocol")
        if self._member.cluster not in ("", plan.member.cluster):
            raise MalformedFrame("the master belongs to another cluster")
        if plan.epoch != self._epoch:
            raise MalformedFrame(f"the master serves epoch {plan.epoch}, and the register says {self._epoch}")
        self._events.planned(plan.register)
        self._require_master()
        self._manifest = None
        self._store.begin(plan.epoch, plan.entries)
        self._is_planned = True
        self._progress = self._progress._replace(
            is_connected=True, is_live=False, sequence=0, left_bytes=left_bytes(plan.entries), refusal=""
        )

    # ------------------------------------------------------------ comparisons

    def _send_questions(self) -> None:
        """Ask for the state of the cluster, and for what was requested."""
        now = time.monotonic()
        if now - self._asked_at >= STATUS_SECONDS:
            self._asked_at = now
            self._send(StatusRequest())
        if not self._is_live or self._is_comparing:
            return
        if self._wanted:
            files, self._wanted = self._wanted, ()
            self._is_comparing = True
            last = {(journal, end.file_id) for journal, end in self._store.ends()}
            if last & set(files):
                self._manifest = None  # the plan of another connection replaces it
                raise StreamEnded("a data file that is being written differs: the stores are compared again")
            for journal, file_id in files[:DIFFERENCES_MAX]:
                self._store.keep_replaced(journal, file_id)
            self._send(RepairRequest(files[:DIFFERENCES_MAX]))
        elif self._wants_comparison:
            self._wants_comparison, self._is_comparing = False, True
            self._send(VerifyRequest())

    def _answer(self, question: Compare | ReadRecord) -> None:
        """Answer a question about a file, as it is at this place of the stream."""
        if not self._is_live:
            raise MalformedFrame(f"{type(question).__name__} before the end of the catch-up")
        if isinstance(question, ReadRecord):
            record = memoryview(self._store.record(*question))
            for at in range(0, len(record) or 1, PIECE_BYTES):
                piece = record[at : at + PIECE_BYTES]
                self._send(RecordPiece(len(record) - at - len(piece), piece))
            return
        journal, file_id, offset, length, left = question
        self._send(Compared(self._store.part_checksum(journal, file_id, offset, length)))
        self._progress = self._progress._replace(compare_left=left)

    def _end_comparison(self, result: ComparisonResult) -> None:
        """Report the end of a comparison, if there was one."""
        self._progress = self._progress._replace(compare_left=-1)
        if self._is_comparing:
            self._is_comparing = False
            self._events.verified(result)

    def _require_master(self) -> None:
        if not self._events.may_take(self._epoch):
            raise MalformedFrame(f"the register does not name the master of epoch {self._epoch} any more")

    def _require_next(self, sequence: int, change: FileChange) -> None:
        """Check that a change comes after the plan, and that no operation is left out or repeated."""
        if not self._is_planned:
            raise MalformedFrame("a frame before the plan")
        is_operation = sequence > 0
        if isinstance(change, BatchPiece) and change.is_live is not is_operation:
            raise MalformedFrame("a batch is no operation, or an operation is no batch")
        if not is_operation:
            if self._is_partial and self._is_live:
                raise MalformedFrame("a part of the catch-up within an operation")
            return
        if not self._is_live:
            raise MalformedFrame("an operation before the end of the catch-up")
        if sequence != (self._taken if self._is_partial else self._taken + 1):
            raise MalformedFrame(f"operation {sequence} comes after {self._taken}")
        self._taken = sequence
        self._is_partial = _is_partial(change)

    def _go_live(self, sequence: int, changes: Sequence[FileChange]) -> None:
        """Sync the catch-up: operations follow."""
        if not self._is_planned or self._is_partial or sequence < self._taken:
            raise MalformedFrame(f"the stream cannot be live from {sequence} on")
        self._store.apply(changes, is_live=True)
        self._taken = sequence
        self._is_live = True
        _log.info("following %s:%d: this store has caught up", *self._address)
        self._full_disk_pause = 0.0
        self._progress = self._progress._replace(
            is_live=True, sequence=sequence, left_bytes=0, ends=tuple(self._store.ends())
        )

    def _confirm(self) -> None:
        """Confirm everything that was taken: it is synced."""
        sequence = self._taken - self._is_partial if self._is_live else 0
        is_short = self._store.is_short_of_space
        wishes = self._events.wishes()
        self._send(Confirm(self._taken, self._clock, self._has_promised, is_short, wishes), sequence)
        if is_short and self._is_planned and not self._has_sent_leave:
            self._has_sent_leave = True
            self._send(Leave(f"the disk of {self._member.name} is full"))

    def _report_progress(self, changes: Sequence[FileChange]) -> None:
        progress = self._progress
        if self._is_live:
            sequence = self._taken - self._is_partial
            self._progress = progress._replace(sequence=sequence, ends=tuple(self._store.ends()))
            if self._is_comparing and isinstance(piece := changes[-1], ReplacePiece):
                # A repair of many files takes minutes, and one without progress counts as failed.
                self._progress = self._progress._replace(compare_left=piece.length - piece.offset)
        else:
            size = sum(len(each.content) for each in changes if isinstance(each, BatchPiece | ReplacePiece))
            self._progress = progress._replace(left_bytes=max(0, progress.left_bytes - size))

    def _send(self, body: FrameBody, sequence: int = 0) -> None:
        if self._connection is not None and self._seal is not None:
            self._connection.sendall(encode_frame(self._seal, StreamFrame(sequence, body)))


def _outcome(connection: socket.socket, seconds: float) -> int:
    """Wait until a connection is there, and return 0, or the number of the error."""
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    if not poll.poll(seconds * 1000):
        return errno.ETIMEDOUT
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def _is_partial(change: FileChange) -> bool:
    """Return True if more pieces of an operation follow this one."""
    match change:
        case BatchPiece(left=left):
            return left > 0
        case ReplacePiece(length=length, offset=offset, content=content):
            return offset + len(content) < length
        case _:
            return False


def handshake_hint(*, is_tls: bool, has_secret: bool) -> str:
    """Return why a master probably ends a connection during the handshake, as a question."""
    if is_tls:
        return "does it accept this member's certificate?"
    if has_secret:
        return "does it have the same secret?"
    return "does it have a secret, or TLS, and this member has not?"


def read_exactly(connection: socket.socket, count: int, hint: str) -> bytes:
    """Return so many bytes; `hint` is the likely reason if the connection ends before.

    Raises:
        StreamEnded: the connection has ended before.
    """
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            if data.startswith(TLS_BEGINNINGS):
                raise StreamEnded("the master speaks TLS, and this member has no replicate_tls_certificate")
            raise StreamEnded(f"the master closed the connection during the handshake: {hint}")
        data += part
    return data
