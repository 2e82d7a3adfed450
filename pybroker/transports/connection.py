"""One TCP connection on asyncio: a session's `Link`.

Output gathers per connection and leaves in one write per turn of the event loop. The transport's own buffer limit is
zero, so `pause_writing` means exactly "the kernel takes no more", and `written` is called when all output has left the
process: only then does a session acknowledge what needs no answer from the client.

Much output is handed to the transport in chunks. Where a message of megabytes goes to a hundred clients that all begin
to read, the transports would copy all of it within one turn, and TLS would keep a copy of its own for each.

Input is processed as it is read, or waits in the `fair_queue`; while it waits, the peer is not read. What came before
the peer's end is processed before the session is lost.

A close lingers: the output is sent, the sending side shut, and the peer's bytes are read and dropped for a moment.
Closing at once with unread bytes would make the kernel send a reset, and the peer would lose the ERROR with the cause.

```text
        close                     peer closes too, time is up
 OPEN ---------> LINGERING ------------------------------------> GONE
   |                                                              ^
   +---- peer closes, abort, too many refused already ------------+
```
"""

import asyncio
import enum
import logging
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Final, Protocol, TypeAlias, cast

from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import BrokerError
from pybroker.transports.fair_queue import CHUNK_BYTES
from pybroker.transports.frame_memory import FrameMemory
from pybroker.transports.output_memory import LARGE_BYTES, OutputMemory
from pybroker.transports.session import Link, Session
from pybroker.transports.turn import Turn
from pybroker.transports.work_thread import WorkThread

_log = logging.getLogger(__name__)

_FLUSH_BYTES = 256 << 10
"""The limit to collected output, which above it is written within the turn, to save memory in a long dispatch."""

_CHUNK_BYTES: Final = 256 << 10
"""The most output that is handed to the transport at a time. So it keeps no more that the kernel has not taken."""

_FLUSHED_BYTES: Final = 512 << 10
"""The limit to the output of one connection in one turn: the peer may read it as fast as it is written."""

_JOINED_BYTES_MAX = 4 << 10
"""Pieces of output that are longer on average leave by a gathering write, as they are; shorter ones are joined first,
because each piece costs the transport more than its bytes."""

UNREAD_BYTES_MAX = 4 << 20
"""The limit of output that a peer leaves unread; above it the peer is not read either: a few ten thousand receipts."""

_COUNTED_BYTES: Final = 32 << 10
"""The steps in which output behind a kernel that takes no more is counted: 32 MB in 1,000 connections."""

_LINGER_SECONDS = 2.0
"""The time for which a connection lingers after its last bytes, until its peer closes too."""

_STUCK_SECONDS = 10.0
"""The time limit for the last bytes of a closing connection."""


class ReplaceableLink(Link, Protocol):
    """A link whose session may be replaced."""

    def become(self, session: Session) -> None:
        """Replace the session, from the next event on."""
        ...


Piece: TypeAlias = bytes | memoryview
"""A piece of output, or what is left of it."""

MakeSession = Callable[[ReplaceableLink], Session]
"""Makes the session of a new connection."""


class Registry(Protocol):
    """The server, as its connections see it."""

    def admit(self, connection: "SocketConnection") -> bool:
        """Add a connection; False if it was refused instead."""
        ...

    def forget(self, connection: "SocketConnection") -> None:
        """Remove a connection that is gone."""
        ...

    @property
    def frames(self) -> FrameMemory:
        """The memory of large unfinished frames."""
        ...

    @property
    def unread(self) -> OutputMemory:
        """The memory of output that peers leave unread."""
        ...

    @property
    def turn(self) -> Turn:
        """The callbacks for the end of the loop's turn."""
        ...

    @property
    def work_thread(self) -> WorkThread:
        """The thread for work of long duration."""
        ...


class ConnectionState(enum.Enum):
    """The state of a connection."""

    OPEN = "passes bytes in both directions"
    LINGERING = "sends its last bytes, drops what it reads, waits for the peer to close"
    GONE = "closed or aborted"


_OPEN: Final = ConnectionState.OPEN
"""A module constant: looking a member up in its enum costs as much as the rest of a `write`."""


class SocketConnection(asyncio.Protocol):
    """One TCP connection; a session's `Link`."""

    def __init__(self, registry: Registry, peer: str, make_session: MakeSession, refusal: bytes) -> None:
        """Wait for its transport.

        Args:
            registry: the server.
            peer: the other end, for logs.
            make_session: makes its session after it is admitted.
            refusal: sent to the peer if it is not; may be empty.
        """
        self.peer = peer
        self.closed_by_peer = "closed by the client"
        """The `ending` of a connection that the peer closes."""
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._registry = registry
        self._fair = registry.turn.input
        self.virtual_finish = 0.0
        self.is_sparse = True
        self.served_turn = 0
        self._is_waiting = False  # input waits in the fair queue, or until the peer is read
        self._is_parked = False  # it waits until the peer is read
        self._is_lost = False  # the connection ended while input waited
        self._chunks: list[bytes] = []  # received while input waited
        self.make_session = make_session
        self._refusal = refusal
        self._transport: asyncio.Transport
        self._is_attached = False  # between `connection_made` and `connection_lost`
        self._session: Session | None = None
        self._output: list[Piece] = []
        self._output_bytes = 0
        self._output_step = _FLUSH_BYTES
        """Collected bytes above which output is sent, or counted as unread."""
        self._gathers = False
        self._flush_scheduled = False
        self._write_paused = False
        self._read_holds = 0
        self._unread_hold = False
        self._holds_frame = False
        self._input_holds = 0
        """The login, and the core, may hold the input."""
        self._reading_since: float | None = None
        self._state = _OPEN
        self._linger_seconds = 0.0
        self.ending = ""
        self._timer: asyncio.TimerHandle | None = None  # OPEN: the session's; LINGERING: cuts the connection

    # ------------------------------------------------------------ link

    @property
    def certificate(self) -> str | None:
        """The subject of the peer's certificate; see `Link`."""
        return None

    @property
    def reading_since(self) -> float | None:
        """The time since which the peer is read; None while it is not."""
        return self._reading_since

    @property
    def is_input_waiting(self) -> bool:
        """True while received input waits for a slice."""
        return self._is_waiting

    @property
    def is_connected(self) -> bool:
        """True once its client was admitted by the broker."""
        return self._session is not None and self._session.is_connected

    @property
    def is_in_handshake(self) -> bool:
        """True until a TLS handshake is over."""
        return False

    @property
    def is_idle(self) -> bool:
        """True if no input waits, nor is held, as during a login."""
        return not self._is_waiting

    def write(self, data: Piece) -> None:
        """Queue bytes."""
        if self._state is not _OPEN:
            return
        self._output.append(data)
        self._output_bytes += len(data)
        if not self._flush_scheduled:
            self._schedule_flush()
        if self._output_bytes > self._output_step:
            self._relieve()

    def write_pieces(self, pieces: Sequence[bytes]) -> None:
        """Queue a frame that is in pieces."""
        for piece in pieces:
            self.write(piece)

    def close(self, linger_seconds: float | None = None) -> None:
        """Close after the output has left."""
        if self._state is not _OPEN:
            return
        has_left = self._send()
        if self._session is not None:
            self._session.handed_over()
        self._cancel_timer()
        self._state = ConnectionState.LINGERING
        self._linger_seconds = _LINGER_SECONDS if linger_seconds is None else linger_seconds
        self.release_frame()
        self._chunks.clear()
        self._loop.call_soon(self._lost)
        if has_left:
            self._shut()
        else:
            self._abort_at(self._loop.time() + _STUCK_SECONDS)
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def time(self) -> float:
        """Monotonic seconds."""
        return self._loop.time()

    def wake_at(self, when: float | None) -> None:
        """Call the session's `on_timer` at a time."""
        if self._state is _OPEN:
            self._cancel_timer()
            if when is not None:
                self._timer = self._loop.call_at(when, self._on_time)

    def pause_reading(self) -> None:
        """Stop reading until every pause is taken back."""
        self._read_holds += 1
        if self._read_holds == 1:
            self._reading_since = None
            if self._is_readable():
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        """End one pause."""
        self._read_holds -= 1
        if self._read_holds == 0:
            self._reading_since = self._loop.time()
            if self._is_readable():
                self._transport.resume_reading()
        elif self._is_parked and (self._read_holds == 1 or self._is_lost):
            self._is_parked = False
            self._fair.add(self)

    def hold_input(self) -> None:
        """Process no more input until every hold is released."""
        self._input_holds += 1
        if self._input_holds > 1:
            return
        self.pause_reading()
        if not self._is_waiting:  # as if the slice were over, but without a place in the fair queue
            self._is_waiting = self._is_parked = True
            self.pause_reading()
        if self._session is not None:
            self._session.hold()

    def release_input(self) -> None:
        """Release one hold; after the last, process input again when the fair queue has a slice for it."""
        self._input_holds -= 1
        if self._input_holds:
            return
        if self._session is not None:
            self._session.release()
        self.resume_reading()

    def is_slice_over(self) -> bool:
        """Return True if other connections should go first."""
        return self._fair.is_slice_over()

    def reserve_frame(self, size: int, received: int) -> None:
        """Reserve memory for a large frame of which only a part has come, and do not read on without it."""
        if self._state is _OPEN:
            self._holds_frame = True
            self._registry.frames.update(self, size, received)

    def release_frame(self) -> None:
        """Release what was reserved."""
        if self._holds_frame:
            self._holds_frame = False
            self._registry.frames.end(self)

    def in_thread(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run work of long duration in a thread, and then call `done` in the loop's thread."""
        self._registry.work_thread.run(work, done)

    def become(self, session: Session) -> None:
        """Replace the session, from the next event on."""
        self._session = session

    # ------------------------------------------------------------ frame memory

    @property
    def leaves_unread(self) -> bool:
        """True while the peer is not read because it leaves its output unread."""
        return self._unread_hold

    def give_up(self, error: BrokerError) -> None:
        """Close with an error that no command of the peer brings about."""
        if self._session is not None:
            self._session.give_up(error)
        elif self._state is _OPEN:
            _log.info("%s closed: %s", self.peer, error)
            self.close()

    # ------------------------------------------------------------ asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a session, or refuse the connection."""
        # Only uvloop's `writelines` passes all pieces to the kernel in one call. asyncio's joins them, up to Python
        # 3.11, or does not always report that the kernel did not take all. A subclass that encrypts needs one piece.
        self._gathers = not isinstance(transport, asyncio.Transport) and type(self)._put is SocketConnection._put
        # A cast, not a check: uvloop's transports have the methods of asyncio.Transport and are no subclass of it.
        self._transport = transport = cast("asyncio.Transport", transport)
        self._is_attached = True
        transport.set_write_buffer_limits(high=0)
        self._reading_since = self._loop.time()
        if self._registry.admit(self):
            self._begin()

    def data_received(self, data: bytes) -> None:
        """Pass the chunk to the session, or have it wait."""
        session = self._session
        if self._state is not _OPEN or session is None:
            return
        fair = self._fair
        fair.credit -= len(data) + CHUNK_BYTES
        if fair.credit < 0 or self._is_waiting:
            self._receive_measured(data)
        elif session.receive(data):
            fair.end(self, is_left=True)
            self._wait_for_slice()
        elif fair.is_measuring:
            fair.end(self)
        elif EFFORT.is_large:
            fair.measure_all()

    def pause_writing(self) -> None:
        """React to a kernel that takes no more."""
        self._write_paused = True
        self._output_step = self._output_bytes + _COUNTED_BYTES
        self._registry.unread.update(self, self._held_bytes, map(_whole, filter(_is_large, self._output)))
        if self._session is not None:
            self._session.handed_over()
            self._session.pause_writing()

    def resume_writing(self) -> None:
        """React to a kernel that has taken all."""
        self._write_paused = False
        self._output_step = _FLUSH_BYTES
        self._registry.unread.end(self)
        # Not inside the transport's write, which would handle an error of this code as its own.
        self._schedule_flush()

    def attempt_cancelled(self) -> None:
        """End, if `connection_made` was called: uvloop closes the socket of a cancelled attempt without a word."""
        if self._is_attached:
            self._state = ConnectionState.GONE
            self.connection_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """React to the end of the connection, once what came before is processed."""
        if not self._is_attached:
            return
        self._is_attached = False
        is_open = self._state is _OPEN
        self._state = ConnectionState.GONE
        self.ending = self.ending or (self.closed_by_peer if exc is None else f"broken: {exc}")
        self._cancel_timer()
        self._drop()
        release_references(self._transport)
        if is_open and self._is_waiting and not self._fair.is_closed:
            self._is_lost = True
            if self._is_parked:
                self._is_parked = False
                self._fair.add(self)
        else:
            self._registry.turn.spread(self._end)

    # ------------------------------------------------------------ fair queue

    def proceed(self) -> bool:
        """Process one slice of the input that waits; return True if it has to wait for another one."""
        try:
            is_left = self._proceed()
        except Exception as error:
            context = {"message": f"{self.peer}: its input failed", "exception": error, "protocol": self}
            self._loop.call_exception_handler(context)
            self.abort()
            return False
        if not is_left and self._is_waiting and not self._is_parked:
            self._is_waiting = False
            self._on_input_processed()
        return is_left

    def drop_input(self) -> None:
        """Drop the input that waits."""
        self._chunks.clear()
        if self._is_lost:
            self._is_lost = False
            self._loop.call_soon(self._end)

    # ------------------------------------------------------------ server

    def refuse(self) -> None:
        """Send the refusal, and close."""
        if self._refusal:
            self.write(self._refusal)
        self.close()

    def stop(self, linger_seconds: float) -> None:
        """Close after the output has left, and what the session has to say of the broker's stop."""
        if self._session is not None:
            self._session.stopping()
        self.close(linger_seconds)

    def abort(self) -> None:
        """Abort the connection, and drop its input; the session's `lost` is called in the next turn."""
        self.drop_input()
        self._state = ConnectionState.GONE
        self.ending = self.ending or "aborted by the broker"
        self._cancel_timer()
        self._drop()
        self._transport.abort()

    @property
    def unsent_bytes(self) -> int:
        """The bytes of output that the kernel has not taken."""
        return self._transport.get_write_buffer_size() + self._output_bytes

    # ------------------------------------------------------------ private

    @property
    def _held_bytes(self) -> int:
        """The bytes of output in memory: a piece of which a part has left is there as a whole."""
        first = self._output[0] if self._output else b""
        if isinstance(first, memoryview):  # the transport has a part of it
            return self._output_bytes + len(_whole(first)) - len(first)
        return self.unsent_bytes

    def _begin(self) -> None:
        self._session = self.make_session(self)

    def _end(self) -> None:
        self._registry.forget(self)
        self._lost()
        if not self.gone.done():
            self.gone.set_result(None)

    def _receive_measured(self, data: bytes) -> None:
        """Pass the chunk to the session if there is time left for it in this turn, or have it wait."""
        fair = self._fair
        if self._is_waiting or not fair.begin(self):
            self._chunks.append(data)
            self._wait_for_slice()
        elif self._session is not None:
            is_left = self._session.receive(data)
            fair.end(self, is_left=is_left)
            if is_left:
                self._wait_for_slice()

    def _wait_for_slice(self) -> None:
        """Stop reading, and wait for a slice."""
        if not self._is_waiting and self._state is _OPEN:
            self._is_waiting = True
            self.pause_reading()
            self._fair.add(self)

    def _proceed(self) -> bool:
        """Process frames that are left, then chunks; return True if the slice ended before all were processed."""
        chunks = self._chunks
        is_first = True
        while self._session is not None and (self._state is _OPEN or self._is_lost):
            if self._input_holds or (self._read_holds > 1 and not self._is_lost):
                self._is_parked = True  # `resume_reading` adds it again
                return False
            if is_first:
                is_first = False
                if self._session.proceed():
                    if self._is_lost and self._read_holds > 1 and not self._fair.is_slice_over():
                        self._is_parked = True  # the session waits for a thread, and then ends its pause
                        return False
                    return True
            elif not chunks:
                return False
            elif self._fair.is_slice_over() or self._session.receive(chunks.pop(0)):
                return True
        return False

    def _on_input_processed(self) -> None:
        """Read on, or end, after all input that waited was processed."""
        if self._is_lost:
            self._is_lost = False
            self._end()
        else:
            self.resume_reading()

    def _is_readable(self) -> bool:
        """Return True if reading may be paused; a connection that lingers is read to the end."""
        return self._state is _OPEN and not self._transport.is_closing()

    def _relieve(self) -> None:
        """Send much output, or stop reading a peer that takes none."""
        if not self._write_paused:
            self._send()
            return
        unread = self._registry.unread
        unread.update(self, self._held_bytes)
        self._output_step = self._output_bytes + _COUNTED_BYTES
        behind = self._output_bytes - len(self._output[0])  # a long message may be on its way
        if behind > UNREAD_BYTES_MAX or unread.is_full:
            self._hold()

    def _hold(self) -> None:
        """Stop reading a peer until it has taken all output."""
        if not self._unread_hold:
            self._unread_hold = True
            self.pause_reading()

    def _schedule_flush(self) -> None:
        self._flush_scheduled = True
        self._registry.turn.output(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._write_paused or self._state is ConnectionState.GONE:
            return
        if not self._send():
            return
        if self._state is not _OPEN:
            self._shut()
            return
        if self._unread_hold:
            self._unread_hold = False
            self.resume_reading()
        if self._session is not None:
            self._session.written()

    def _send(self) -> bool:
        """Write the output to the kernel; False if it did not take all, or has to wait for another turn."""
        left = _FLUSHED_BYTES
        while self._output and not self._write_paused:
            if left <= 0:
                self.pause_writing()
                self._registry.turn.output(self._end_turn)
                return False
            size = self._output_bytes
            if size <= _CHUNK_BYTES:
                output, self._output = self._output, []
            else:
                output, size = self._next_chunk(), _CHUNK_BYTES
            self._output_bytes -= size
            left -= size
            first = output[0]
            if isinstance(first, memoryview) and not (self._output and _whole(self._output[0]) is first.obj):
                output[0] = bytes(first)  # the end of a long piece, which the transport would keep as a whole
            if len(output) == 1:
                self._put(output[0])
            elif self._gathers and size > _JOINED_BYTES_MAX * len(output):
                self._transport.writelines(output)
            else:
                self._put(b"".join(output))
        return not self._write_paused

    def _end_turn(self) -> None:
        """End a wait for another turn, unless the kernel takes no more meanwhile."""
        if not self._transport.get_write_buffer_size():
            self.resume_writing()

    def _next_chunk(self) -> list[Piece]:
        """Remove a chunk from the output, of which there is more."""
        chunk: list[Piece] = []
        space = _CHUNK_BYTES
        for piece in self._output:
            if len(piece) > space:
                break
            chunk.append(piece)
            space -= len(piece)
        del self._output[: len(chunk)]
        if space:
            view = memoryview(self._output[0])
            chunk.append(view[:space])
            self._output[0] = view[space:]
        return chunk

    def _drop(self) -> None:
        """Drop the output and the memory that is reserved, as the connection is gone."""
        self._output = []
        self._output_bytes = 0
        self.release_frame()
        self._registry.unread.end(self)

    def _put(self, data: Piece) -> None:
        self._transport.write(data)

    def _shut(self) -> None:
        """Shut the sending side, as all bytes have left, and give the peer a moment to close too."""
        if self._state is not ConnectionState.LINGERING or self._transport.is_closing():
            return
        try:
            self._transport.write_eof()
        except OSError as error:
            # The peer's reset has arrived (ENOTCONN), and the loop has not seen it yet.
            _log.debug("%s: aborted instead of closed: %s", self.peer, error)
            self.abort()
        else:
            self._abort_at(self._loop.time() + self._linger_seconds)

    def _abort_at(self, when: float) -> None:
        self._cancel_timer()
        self._timer = self._loop.call_at(when, self.abort)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_time(self) -> None:
        """Have the session's timer run when this turn, or a later one, has time."""
        self._timer = None
        self._registry.turn.spread(self._on_timer)

    def _on_timer(self) -> None:
        if self._session is not None and self._state is _OPEN and self._timer is None:
            self._session.on_timer()

    def _lost(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.lost()


def _is_large(piece: Piece) -> bool:
    """Return True if other connections may write the same piece, of which a part may have left here."""
    return len(_whole(piece)) >= LARGE_BYTES


def _whole(piece: Piece) -> bytes:
    """Return the whole of a piece of which a part has left."""
    return cast("bytes", piece.obj) if isinstance(piece, memoryview) else piece


def release_references(transport: asyncio.BaseTransport) -> None:
    """Break the reference cycles of a transport that has ended, so that it is freed without a garbage collection.

    A transport of asyncio's own loop has bound methods of itself as attributes, which it does not call any more, and is
    kept by them, with its socket and addresses. One of uvloop has neither.
    """
    attributes: dict[str, object] = getattr(transport, "__dict__", {})
    for name, value in list(attributes.items()):
        if isinstance(value, MethodType) and value.__self__ is transport:
            del attributes[name]
