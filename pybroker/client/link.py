"""`ClientLink`, the I/O of one connection: keeps a `ClientState` connected to a broker, as its `Reconnector` decides.

The I/O runs in one event loop. Applications call the state in any thread, inside `with link:`, which locks the state
and sends its requests. The asyncio API runs the link in the application's loop, the synchronous API in a thread of its
own.
"""

import asyncio
import contextlib
import logging
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from math import inf
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pybroker import blocking
from pybroker.client import inheritance
from pybroker.client.conversation import Conversation, Ended, Event, LoginFailed, Opened, Redirected
from pybroker.client.errors import (
    BrokerMissing,
    ClientError,
    ConnectionClosed,
    ConnectionFailed,
    ConnectionLost,
    FrameTooLarge,
    InheritedConnection,
    LoginRefused,
    ProtocolViolation,
    Timeout,
    UntrustedBroker,
)
from pybroker.client.pending import Callbacks, PendingResult
from pybroker.client.reconnect import Connect, GiveUp, Pause, ReadList, Reconnector
from pybroker.client.state import ClientState
from pybroker.client.trust import untrusted
from pybroker.client.uri import Address, BrokerURI
from pybroker.client.wire import Dialler, Wire, seconds_until, silent
from pybroker.counted import counted

_SENT_ON: Final = "the broker sends the client to another one"

DISCONNECT_SECONDS: Final = 5.0
"""The time that a broker has to answer an orderly disconnect, before the client aborts the transport."""

OUTBOX_BYTES_MAX: Final = 1 << 20
"""The bytes in the outbox, which threads fill and the loop empties, above which a send without an answer blocks."""

LIST_BYTES_MAX: Final = 64 * 1024
"""The most bytes read from a file with brokers."""

_INHERITED: Final = "the connection belongs to the process from which this one was forked: open another one here"

_FATAL: Final = (LoginRefused, FrameTooLarge)
"""Errors after which neither another attempt nor another broker helps."""

_log = logging.getLogger(__name__)


class ClientLink:
    """The I/O of one connection. Every call of the state must be inside `with link:`.

    Attributes:
        state: the state that the link keeps connected.
        first_connection: the result of the first connection.
        address: the present broker's address; None while there is none.
        down_since: the time of the loss of the last broker, by `time.monotonic`; None while there is one.
        is_inherited: the connection belongs to a former process, from which this one was forked.
    """

    def __init__(
        self,
        uri: BrokerURI,
        state: ClientState,
        *,
        make: Callable[[Address], Conversation],
        ssl_context: ssl.SSLContext | None = None,
        on_interrupted: Callable[[Exception], object] | None = None,
        on_resumed: Callable[[str], object] | None = None,
        first_seconds: float | None = None,
    ) -> None:
        """Create a link without a connection; `run` connects.

        Args:
            uri: the brokers and options.
            state: the state to keep connected.
            make: returns a conversation for a broker.
            ssl_context: the TLS context; by default one that verifies certificates with the system's authorities.
            on_interrupted: called with the reason when the connection is lost and the client reconnects.
            on_resumed: called with the broker's address when the state is restored.
            first_seconds: the time for which the caller waits for the first connection. Each broker has a part of it to
                answer, so that one whose machine is off leaves time for the others.
        """
        self.state = state
        self.first_connection: PendingResult[None] = PendingResult()
        self.address: Address | None = None
        self.down_since: float | None = time.monotonic()
        self.is_inherited = False
        self._uri = uri
        self._silent_seconds = inf if first_seconds is None else first_seconds / len(uri.addresses)
        self._dialler = Dialler(make, ssl_context)
        self._on_interrupted = on_interrupted
        self._on_resumed = on_resumed
        self._reconnector = Reconnector(uri, random.Random())  # noqa: S311 -- spreads load, keeps no secrets
        self._lock = threading.RLock()
        self._depth = 0
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._on_outbox_emptied = Callbacks()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._task: asyncio.Task[None] | None = None
        self._is_pump_scheduled = False
        self._is_closing = False
        self._wire: Wire | None = None
        self._opened: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._backups: dict[Address, tuple[Wire, asyncio.Task[None]]] = {}
        self._backups_changed: asyncio.Event | None = None
        inheritance.register(self)

    # ------------------------------------------------------------ for the application

    def __enter__(self) -> ClientState:
        """Lock the state.

        Raises:
            InheritedConnection: this process is a forked child.
        """
        if self.is_inherited:
            raise InheritedConnection(_INHERITED)
        self._lock.acquire()
        self._depth += 1
        return self.state

    def __exit__(self, *_: object) -> None:
        """Unlock the state, and send its requests."""
        self._depth -= 1
        # Collect even if `_pump` is scheduled, because `is_congested` counts the bytes in the outbox.
        needs_pump = self._depth == 0 and self._loop is not None and self._collect() and not self._is_pump_scheduled
        self._is_pump_scheduled = self._is_pump_scheduled or needs_pump
        self._lock.release()
        if not needs_pump or self._loop is None:
            return
        if threading.get_ident() == self._loop_thread:
            self._pump()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the connection
                self._loop.call_soon_threadsafe(self._pump)

    @property
    def is_congested(self) -> bool:
        """True while a send without an answer must wait: the broker or the event loop is too slow (backpressure)."""
        wire = self._wire  # read once: the loop may change it between two reads
        return self._outbox_bytes > OUTBOX_BYTES_MAX or (wire is not None and wire.is_congested)

    def call_when_writable(self, callback: Callable[[], None]) -> None:
        """Call a function when there is no congestion or no connection; at once if that is so now.

        The caller holds the lock. The function may be called twice.
        """
        wire = self._wire
        if self._outbox_bytes > OUTBOX_BYTES_MAX:
            self._on_outbox_emptied.add(callback)
            return
        if wire is not None and wire.is_congested:
            wire.on_writable.add(callback)
            if wire.is_congested:  # check again: the loop clears this without the lock
                return
        callback()

    def check_thread(self) -> None:
        """Check that the caller may wait. A callback must not, because it blocks the thread of the I/O.

        Raises:
            ClientError: the caller is a callback.
            InheritedConnection: this process is a forked child.
        """
        if self.is_inherited:
            raise InheritedConnection(_INHERITED)
        if threading.get_ident() == self._loop_thread:
            raise ClientError("a callback of a connection cannot wait for it: do that in another thread")

    def mark_inherited(self) -> Iterable[int]:
        """Refuse use in a forked child, see `inheritance`. The lock stays as it is: nothing takes it any more."""
        self.is_inherited = True
        self.address = None
        wires = [wire for wire in (self._wire, *(wire for wire, _ in self._backups.values())) if wire is not None]
        sockets = [wire.socket() for wire in wires if not wire.lost.done()]
        return [sock.fileno() for sock in sockets if sock is not None and sock.fileno() >= 0]

    async def run(self) -> None:
        """Keep the state connected until the application closes it, or no broker is available."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._task = asyncio.current_task()
        self._backups_changed = asyncio.Event()
        error: ClientError = ConnectionClosed("the connection is closed")
        try:
            if not self._is_closing:  # `close` may come first
                error = await self._keep_connected()
        except asyncio.CancelledError:
            if not self._is_closing:
                raise
        except BaseException as bug:  # includes a callback's SystemExit: pending calls must fail, not hang
            error = ConnectionFailed(f"the client failed: {bug!r}")
            error.__cause__ = bug
            raise
        finally:
            await self._end(error)
            self._loop_thread = 0  # the next thread may get this one's number

    def check_broker_available(self, seconds: float | None) -> None:
        """Check that there was a broker in the last so many seconds; None for no limit.

        Raises:
            Timeout: there was none.
        """
        down_since = self.down_since
        if seconds is not None and down_since is not None and time.monotonic() - down_since >= seconds:
            raise Timeout(f"no broker for more than {seconds:g} s{self.failure_report}")

    @property
    def failure_report(self) -> str:
        """The error of each broker tried, as the end of an error message; empty while there is a broker."""
        text = self._reconnector.report() if self.address is None else ""
        return f": {text}" if text else ""

    async def close(self, seconds: float, *, finished: bool) -> None:
        """Disconnect in order, wait so many seconds for the broker's answer, and end the link.

        Args:
            seconds: the longest wait; then the client aborts the transport.
            finished: see `ClientState.close`.
        """
        self._is_closing = True
        wire = self._wire
        with self:
            was_open = self.state.is_open
            self.state.close(finished=finished)
        task = self._task
        try:
            if was_open and wire is not None:
                await asyncio.wait({wire.lost}, timeout=seconds)
        finally:  # a cancellation also ends the link
            if task is not None:
                task.cancel()
        if task is not None:
            await asyncio.wait({task})

    def call_soon(self, action: Callable[[ClientState], object]) -> None:
        """Change the state later, in the loop: for finalizers, which may interrupt a change in this thread."""
        if self._loop is not None and not self.is_inherited:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the connection
                self._loop.call_soon_threadsafe(self._do, action)

    def _do(self, action: Callable[[ClientState], object]) -> None:
        with self as state:
            action(state)

    # ------------------------------------------------------------ connections

    async def _keep_connected(self) -> ClientError:
        """Connect repeatedly; return the reason when another attempt does not help."""
        reconnector = self._reconnector
        while not self._is_closing:
            for warning in reconnector.warnings:
                _log.warning("%s", warning)
            reconnector.warnings.clear()
            step = reconnector.next_step()
            match step:
                case Pause():
                    if step.warning:
                        _log.warning("%s", step.warning)
                    await asyncio.sleep(step.seconds)
                case ReadList(url=url):
                    await self._read_list(url)
                case GiveUp():
                    return _final_failure(step, reconnector.report())
                case Connect():
                    error = await self._use_broker(step)
                    if isinstance(error, _FATAL):
                        return error
        return ConnectionClosed("the connection is closed")

    async def _use_broker(self, step: Connect) -> Exception:
        """Connect to a broker and stay connected; return the reason of the failure or loss."""
        address, reconnector = step.address, self._reconnector
        seconds = inf if self.first_connection.is_done else self._silent_seconds
        due_at = asyncio.get_running_loop().time() + seconds
        try:
            wire = await self._use_backup(address) if step.is_backup else await self._dialler.dial(address, seconds)
        except (OSError, ClientError) as error:
            reconnector.failed(error, is_final=isinstance(error, UntrustedBroker))
            _log.debug("%s: %s", address, error)
            return error
        opened = self._opened = asyncio.get_running_loop().create_future()
        try:
            try:
                await self._log_in(wire)
                if due_at < inf:
                    wire.drop_if_silent(due_at, silent(address))
            except LoginRefused as error:  # it has no form in the protocol
                reconnector.failed(error, is_final=True)
                return error
            await asyncio.wait({opened, wire.lost}, return_when=asyncio.FIRST_COMPLETED)
            if not opened.done():
                reason = untrusted(wire.lost.result(), str(address)) or wire.lost.result()
                reconnector.failed(reason, is_final=isinstance(reason, UntrustedBroker))
                return reason
            moves = reconnector.connected(time.monotonic())
            await self._stay_connected(address, wire, moves=moves)
            reconnector.lost(wire.lost.result(), time.monotonic())
            return wire.lost.result()
        finally:
            wire.drop(ConnectionClosed("the connection is closed"))
            self._detach()
            if opened.done():
                self._interrupted(address, wire.lost.result())

    async def _log_in(self, wire: Wire) -> None:
        wire.on_data = self._receive
        with self._lock:
            self._drain_outbox()
            self._wire = wire
            is_again = self.first_connection.is_done
            self.state.attach(wire.conversation, is_failover=self._uri.failover is not None, is_again=is_again)
        self._set_timer(time.monotonic())
        self._pump()

    async def _stay_connected(self, address: Address, wire: Wire, *, moves: bool) -> None:
        """Report the connection, and maintain backup connections until it is lost."""
        is_again, down_since = self.first_connection.is_done, self.down_since
        self.address, self.down_since = address, None
        if is_again and down_since is not None:
            _log.info("resumed on %s after %.3f s", address, time.monotonic() - down_since)
            self._call(self._on_resumed, str(address))
        else:
            _log.info("connected to %s", address)
        with self:
            self.first_connection.complete()
        if moves:
            self._leave_broker(_SENT_ON)
        maintenance = asyncio.create_task(self._maintain_backups())
        try:
            await asyncio.wait({wire.lost})
        finally:
            maintenance.cancel()
            await asyncio.wait({maintenance})

    def _detach(self) -> None:
        with self._lock:
            self._wire = self._opened = None
            self._drain_outbox()
            self.state.interrupted()
        self._set_timer(float("inf"))

    def _interrupted(self, address: Address, error: Exception) -> None:
        self.address, self.down_since = None, time.monotonic()
        if self._is_closing:
            return
        _log.warning("connection to %s lost: %s", address, error)
        if self._uri.failover is not None and not isinstance(error, _FATAL):
            self._call(self._on_interrupted, error)

    def _call(self, callback: Callable[..., object] | None, *arguments: object) -> None:
        if callback is None:
            return
        try:
            callback(*arguments)
        except Exception:
            _log.exception("a callback of the application failed")
        except BaseException as end:
            _log.error("a callback of the application raised %r: the connection ends", end)
            raise

    async def _read_list(self, url: str) -> None:
        path = Path(url2pathname(urlsplit(url).path) if url.startswith("file:") else url)
        try:
            text = await blocking.call(lambda: _read_start(path))
        except (OSError, ValueError) as error:
            _log.warning("the list of brokers cannot be read: %s", error)
        else:
            self._reconnector.list_read(text)

    async def _end(self, error: ClientError) -> None:
        self._is_closing = True
        for wire, keep_alive in self._backups.values():
            wire.drop(error)
            keep_alive.cancel()
        self._backups.clear()
        self._set_timer(float("inf"))
        with self._lock:
            self.state.fail(error)
            self.first_connection.complete(error=error)
        await asyncio.sleep(0)  # lets the transports close first

    # ------------------------------------------------------------ bytes and time

    def _collect(self) -> bool:
        """Move the state's bytes to the outbox; return True if the loop has work. The caller holds the lock."""
        data = self.state.bytes_to_send()
        if data:
            self._outbox.append(data)
            self._outbox_bytes += len(data)
        return bool(self._outbox) or self.state.due_at < self._timer_at

    def _drain_outbox(self) -> list[bytes]:
        """Empty the outbox and return its content. The caller holds the lock."""
        outbox, self._outbox, self._outbox_bytes = self._outbox, [], 0
        self._on_outbox_emptied.call()
        return outbox

    def _pump(self) -> None:
        """Send the outbox, and set the timer. Called in the loop."""
        with self._lock:
            self._is_pump_scheduled = False
            self._collect()
            outbox = self._drain_outbox()
            wire, due_at = self._wire, self.state.due_at
            if wire is not None and not wire.lost.done():
                self.state.written()
        if wire is not None:
            wire.write(b"".join(outbox))
            if due_at < self._timer_at:
                self._set_timer(due_at)

    def _set_timer(self, due_at: float) -> None:
        if due_at == self._timer_at and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, due_at
        if due_at != float("inf") and self._loop is not None:
            self._timer = self._loop.call_later(seconds_until(due_at) or 0, self._tick)

    def _tick(self) -> None:
        wire = self._wire
        if wire is None:
            return
        try:
            with self._lock:
                due_at = self.state.tick()
                self._collect()
        except ClientError as error:
            wire.drop(error)
            return
        self._set_timer(due_at)
        self._pump()

    def _receive(self, chunk: bytes) -> None:
        with self._lock:
            events = self.state.receive(chunk)
        for event in events:
            self._handle(event)
        self._pump()

    def _handle(self, event: Event) -> None:
        wire, opened = self._wire, self._opened
        if wire is None:
            return
        match event:
            case Opened():
                self._set_timer(time.monotonic())  # the agreement may require an earlier check
                if opened is not None and not opened.done():
                    opened.set_result(None)
            case LoginFailed(error=error):
                wire.drop(error)
            case Ended(reason=reason):
                self._pump()  # sends the last bytes of the conversation
                wire.finish(ConnectionLost(reason))
            case Redirected():
                if self._reconnector.redirected(event):
                    self._leave_broker(_SENT_ON)
                if self._backups_changed is not None:
                    self._backups_changed.set()
            case _:
                pass

    def _leave_broker(self, reason: str) -> None:
        """Disconnect from the present broker in order; the reconnector chooses the next one."""
        wire = self._wire
        if wire is None or self._loop is None:
            return
        _log.info("leaving %s: %s", self.address, reason)
        with self:
            self.state.close(finished=False)
        self._loop.call_later(DISCONNECT_SECONDS, wire.drop, ConnectionLost(reason))

    # ------------------------------------------------------------ backups

    async def _maintain_backups(self) -> None:
        """Open backup connections as the reconnector decides."""
        reconnector, changed = self._reconnector, cast("asyncio.Event", self._backups_changed)
        while True:
            step = reconnector.backup_step(time.monotonic())
            if isinstance(step, Connect):
                await self._connect_backup(step.address)
                continue
            changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(step.seconds if step is not None else None):
                    await changed.wait()

    async def _connect_backup(self, address: Address) -> None:
        try:
            wire = await self._dialler.dial(address)
        except (OSError, ClientError):
            self._reconnector.backup_failed(time.monotonic())
            return
        self._backups[address] = wire, asyncio.create_task(self._keep_backup_alive(address, wire))
        if self._reconnector.backup_ready(address):
            self._leave_broker(f"{address} is preferred")

    async def _keep_backup_alive(self, address: Address, wire: Wire) -> None:
        await wire.keep_alive()
        if self._backups.pop(address, None) is not None:
            self._reconnector.backup_lost(address, time.monotonic())
            if self._backups_changed is not None:
                self._backups_changed.set()

    async def _use_backup(self, address: Address) -> Wire:
        wire, keep_alive = self._backups.pop(address, (None, None))
        if keep_alive is not None:
            keep_alive.cancel()
            await asyncio.wait({keep_alive})
        if wire is None or wire.lost.done():
            raise ConnectionLost(f"the backup connection to {address} is lost", address=str(address))
        return wire


def _read_start(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.read(LIST_BYTES_MAX)


def _final_failure(step: GiveUp, report: str) -> ClientError:
    cause = step.error
    if isinstance(cause, ProtocolViolation) or (step.is_final and isinstance(cause, ClientError)):
        return cause
    error: ClientError
    if step.rounds == 0:
        error = ConnectionLost(f"the connection broke: {cause}")
    else:
        error = BrokerMissing(f"no broker after {counted(step.rounds, 'attempt')}: {report}")
    error.__cause__ = cause
    return error
