"""The I/O: keeps a `ClientState` connected to some broker, as its `Reconnector` decides. All of it in one event loop.

Applications call the state from any thread, inside `with link:`, which locks it and sees to it that what was asked
for is sent. The asyncio API runs the link in the application's own loop, the synchronous one in a thread for it.
"""

import asyncio
import contextlib
import logging
import random
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pybroker.client import blocking
from pybroker.client.conversation import Conversation, Ended, Event, LoginFailed, Opened, Redirected
from pybroker.client.errors import (
    BrokerMissing,
    ClientError,
    ConnectionClosed,
    ConnectionFailed,
    ConnectionLost,
    FrameTooLarge,
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
from pybroker.client.wire import Dialler, Wire, seconds_until

DISCONNECT_SECONDS: Final = 5.0
"""How long a broker may take to answer a goodbye before the connection is simply cut."""

OUTBOX_BYTES_MAX: Final = 1 << 20
"""Bytes that threads have sent and the loop has not looked at yet: more make a sender wait that needs no answer."""

LIST_BYTES_MAX: Final = 64 * 1024
"""Of a file with brokers."""

_FATAL: Final = (LoginRefused, FrameTooLarge)
"""Trying again would not help, nor would another broker."""

_log = logging.getLogger(__name__)


class Link:
    """One connection's I/O. Use `with link:` around every call of the state.

    Attributes:
        state: what it keeps connected.
        first: the outcome of the first connection.
        address: the broker at present; None while there is none.
        down_since: since when there is none, by `time.monotonic`; None while there is.
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
    ) -> None:
        """Begin without a connection; `run` makes it.

        Args:
            uri: the brokers.
            state: see above.
            make: makes a conversation with a broker.
            ssl_context: for TLS; by default one that checks certificates against the system's authorities.
            on_interrupted: called when the connection is lost and another one will be tried, with why.
            on_resumed: called when everything is restored, with the broker's address.
        """
        self.state = state
        self.first_connection: PendingResult[None] = PendingResult()
        self.address: Address | None = None
        self.down_since: float | None = time.monotonic()
        self._uri = uri
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

    # ------------------------------------------------------------ for the application

    def __enter__(self) -> ClientState:
        """Lock the state."""
        self._lock.acquire()
        self._depth += 1
        return self.state

    def __exit__(self, *_: object) -> None:
        """Unlock it, and have sent what was asked for."""
        self._depth -= 1
        # Collected also while the loop is on its way: what it has not looked at is counted.
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
        """True when sends without answer should wait: the broker, or this side's loop, is slower than they come."""
        wire = self._wire  # read once: the loop may take it away between two reads
        return self._outbox_bytes > OUTBOX_BYTES_MAX or (wire is not None and wire.is_congested)

    def call_when_writable(self, callback: Callable[[], None]) -> None:
        """Have that called once there is no congestion any more, or no connection; at once if there is none now.

        With the lock held. It may be called twice.
        """
        wire = self._wire
        if self._outbox_bytes > OUTBOX_BYTES_MAX:
            self._on_outbox_emptied.add(callback)
            return
        if wire is not None and wire.is_congested:
            wire.on_writable.add(callback)
            if wire.is_congested:  # the loop clears this without the lock: it may have rung just before the watch
                return
        callback()

    def check_thread(self) -> None:
        """Check that the caller may wait: what it waits for could not come while the I/O's own thread does.

        Raises:
            ClientError: it is a callback.
        """
        if threading.get_ident() == self._loop_thread:
            raise ClientError("a callback of a connection cannot wait for it: do that in another thread")

    async def run(self) -> None:
        """Keep the state connected until it is closed, or no broker can be reached."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._task = asyncio.current_task()
        self._backups_changed = asyncio.Event()
        error: ClientError = ConnectionClosed("the connection is closed")
        try:
            if not self._is_closing:  # perhaps before it began
                error = await self._keep_connected()
        except asyncio.CancelledError:
            if not self._is_closing:
                raise
        except BaseException as bug:  # also SystemExit, which a callback raises: who waits must learn of it
            error = ConnectionFailed(f"the client failed: {bug!r}")
            error.__cause__ = bug
            raise
        finally:
            await self._end(error)
            self._loop_thread = 0  # the next thread may get this one's number

    def check_broker_available(self, seconds: float | None) -> None:
        """Check that there has been a broker in that time; None for no limit.

        Raises:
            Timeout: there has been none.
        """
        down_since = self.down_since
        if seconds is not None and down_since is not None and time.monotonic() - down_since >= seconds:
            raise Timeout(f"no broker for more than {seconds:g} s{self.failure_report}")

    @property
    def failure_report(self) -> str:
        """Reasons why there is no broker, for error messages: each broker that was tried and its error; or empty."""
        text = self._reconnector.report() if self.address is None else ""
        return f": {text}" if text else ""

    async def close(self, seconds: float, *, finished: bool) -> None:
        """Say goodbye to the broker, wait for its answer for so many seconds, and end; see `ClientState.close`."""
        self._is_closing = True
        wire = self._wire
        with self:
            was_open = self.state.is_open
            self.state.close(finished=finished)
        task = self._task
        try:
            if was_open and wire is not None:
                await asyncio.wait({wire.lost}, timeout=seconds)
        finally:  # also when this is cancelled: the connection ends all the same
            if task is not None:
                task.cancel()
        if task is not None:
            await asyncio.wait({task})

    def call_soon(self, action: Callable[[ClientState], object]) -> None:
        """Have the state changed later, by the loop: for finalizers, which may run while this thread changes it."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the connection
                self._loop.call_soon_threadsafe(self._do, action)

    def _do(self, action: Callable[[ClientState], object]) -> None:
        with self as state:
            action(state)

    # ------------------------------------------------------------ connections

    async def _keep_connected(self) -> ClientError:
        """Connect again and again; return why there is no point in going on."""
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
        """Connect to a broker and stay with it; return why that is over."""
        address, reconnector = step.address, self._reconnector
        try:
            wire = await self._use_backup(address) if step.is_backup else await self._dialler.dial(address)
        except (OSError, ClientError) as error:
            reconnector.failed(error, is_final=isinstance(error, UntrustedBroker))
            _log.debug("%s: %s", address, error)
            return error
        opened = self._opened = asyncio.get_running_loop().create_future()
        try:
            await self._log_in(wire)
            await asyncio.wait({opened, wire.lost}, return_when=asyncio.FIRST_COMPLETED)
            if not opened.done():
                reason = untrusted(wire.lost.result(), str(address)) or wire.lost.result()
                reconnector.failed(reason, is_final=isinstance(reason, UntrustedBroker))
                return reason
            reconnector.connected(time.monotonic())
            await self._stay_connected(address, wire)
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

    async def _stay_connected(self, address: Address, wire: Wire) -> None:
        """Note that everything is restored, and look for spares until the connection is lost."""
        is_again, down_since = self.first_connection.is_done, self.down_since
        self.address, self.down_since = address, None
        if is_again and down_since is not None:
            _log.info("resumed on %s after %.3f s", address, time.monotonic() - down_since)
            self._call(self._on_resumed, str(address))
        else:
            _log.info("connected to %s", address)
        with self:
            self.first_connection.complete()
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
        await asyncio.sleep(0)  # so that the transports are closed when this is over

    # ------------------------------------------------------------ bytes and time

    def _collect(self) -> bool:
        """Take over what is to be sent; tell whether the loop has something to do. With the lock held."""
        data = self.state.bytes_to_send()
        if data:
            self._outbox.append(data)
            self._outbox_bytes += len(data)
        return bool(self._outbox) or self.state.due_at < self._timer_at

    def _drain_outbox(self) -> list[bytes]:
        """Empty the outbox. With the lock held."""
        outbox, self._outbox, self._outbox_bytes = self._outbox, [], 0
        self._on_outbox_emptied.call()
        return outbox

    def _pump(self) -> None:
        """Send, and set the timer. In the loop."""
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
                self._set_timer(time.monotonic())  # what was agreed may ask for earlier checks
                if opened is not None and not opened.done():
                    opened.set_result(None)
            case LoginFailed(error=error):
                wire.drop(error)
            case Ended(reason=reason):
                self._pump()  # there may be a last word
                wire.finish(ConnectionLost(reason))
            case Redirected():
                if self._reconnector.redirected(event):
                    self._leave_broker("the broker sends the client to another one")
                if self._backups_changed is not None:
                    self._backups_changed.set()
            case _:
                pass

    def _leave_broker(self, reason: str) -> None:
        """Leave the present broker in order; the next one is the reconnector's choice."""
        wire = self._wire
        if wire is None or self._loop is None:
            return
        _log.info("leaving %s: %s", self.address, reason)
        with self:
            self.state.close(finished=False)
        self._loop.call_later(DISCONNECT_SECONDS, wire.drop, ConnectionLost(reason))

    # ------------------------------------------------------------ spares

    async def _maintain_backups(self) -> None:
        """Hold connections to other brokers ready, if the URI wants that."""
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
            raise ConnectionLost(f"the connection to {address} that was held ready is gone", address=str(address))
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
        attempts = "1 attempt" if step.rounds == 1 else f"{step.rounds} attempts"
        error = BrokerMissing(f"no broker after {attempts}: {report}")
    error.__cause__ = cause
    return error
