"""One member of a pair, alive: waits for the lock, serves while it holds it, steps back when it must.

The shell around `core.mastership`: events come from the lock, the store, the listeners and from signals; each is
decided there and performed here. What one term of mastership needs (store, core, server) is made when the term begins
and thrown away when it ends, so that a broker that stepped back begins afresh.
"""

import asyncio
import contextlib
import gc
import logging
import math
import socket
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from pybroker.broker.app import schedulers, wiring
from pybroker.broker.app.config import Config
from pybroker.broker.app.large_pages import LargePages
from pybroker.broker.app.layout import Creatable
from pybroker.broker.app.machine import MACHINE, Machine
from pybroker.broker.app.readiness import Readiness
from pybroker.broker.app.standby import Standby
from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.core.mastership import Action, Role, RoleEvent, decide
from pybroker.broker.core.selector import compile_selector
from pybroker.broker.domain.admin import Totals
from pybroker.broker.domain.errors import BrokerError, ConfigError, LockError, LockNotHeld, StoreUnavailable
from pybroker.broker.domain.jobs import Job, JobStore
from pybroker.broker.domain.ports import LockProvider, MessageStore
from pybroker.store.journal.follower import Follower
from pybroker.store.members import Followed
from pybroker.transports.certificates import Certificates
from pybroker.transports.server import Server
from pybroker.transports.turn import Turn

_log = logging.getLogger(__name__)

_BIND_SECONDS = 5.0
"""How long a new master tries for its ports: those of a killed one are free within milliseconds of its lock."""

_BIND_RETRY_SECONDS = 0.005

_SELECTORS_SECONDS = 1.0
"""Before what selectors need is loaded: by then the clients that waited for a new master are connected."""

_REPORT_SECONDS = 10.0
"""Between two reports in the log of what happened to many messages, such as dead letters."""

_CLEANUP_SECONDS = 1.0
"""A new master's first cleanup: its clients soon consume what holds its predecessor's files, and its own life may be
short. A pair whose masters keep dying must not pile up files."""

Publish = Callable[[Role, list[str], int], None]
"""Tells the other members this one's role and, as master, where it listens and its epoch (0: as it was)."""


@dataclass(slots=True, kw_only=True)
class _Term:
    """What a term of mastership runs on."""

    store: MessageStore
    jobs: JobStore | None
    broker: BrokerCore
    server: Server
    chores: list[asyncio.Task[None]]
    alarm: asyncio.TimerHandle | None = None


class Node:
    """One life of a member, from standby to stopped."""

    def __init__(
        self,
        config: Config,
        publish: Publish,
        certificates: Certificates | None = None,
        creatable: Creatable = Creatable(),  # noqa: B008 - a frozen value
        machine: Machine = MACHINE,
    ) -> None:
        self.role = Role.STANDBY
        self._machine = machine
        self.since_ms = machine.clock()
        """When it took its role, in milliseconds since the epoch."""
        self.is_stopping = False
        """True once somebody asked for the end."""
        self.has_served = False
        """True once it was master."""
        self.creatable = creatable
        """Which journals may be begun where there are none: none of those that this member has seen."""
        self._config = config
        self._publish = publish
        self._certificates = certificates
        self._lock: LockProvider = wiring.make_lock(config, machine)
        self._events: asyncio.Queue[tuple[Action, ...]] = asyncio.Queue()
        self._term: _Term | None = None
        self._error: BrokerError | None = None
        self._lock_won_at = 0.0
        self._standby: Standby | None = None
        self._follower: Follower | None = None
        self._has_stood_by = False
        self._readiness = Readiness(config, machine.bind)

    async def run(self) -> None:
        """Wait, serve, end.

        Raises:
            LockNotHeld: the lock was lost; a new life may begin as standby.
            BrokerError: it could not become master, or its store failed.
        """
        self._publish(self.role, [], 0)
        waiting = asyncio.create_task(self._wait_for_lock())
        pages = LargePages(self._machine.large_page_bytes())
        try:
            while self.role is not Role.STOPPED:
                for action in await self._events.get():
                    await self._perform(action)
        finally:
            self._lock.cancel()
            pages.close()
            await waiting
        error, self._error = self._error, None  # its traceback holds the frames of the term, and through them its store
        if error is not None:
            raise error

    def followed(self) -> Followed | None:
        """Return how far the journal was followed; None unless this is a standby."""
        return None if self._standby is None else self._standby.followed()

    def obstacle(self) -> str:
        """Return what would keep a standby from serving as master, in words; empty for any other."""
        return self._readiness.obstacle if self.role is Role.STANDBY else ""

    def totals(self) -> Totals | None:
        """Return what the broker holds; None unless it serves."""
        return self._term.broker.admin.totals() if self.role is Role.MASTER and self._term is not None else None

    def stop(self) -> None:
        """Ask for an orderly end; asked again, not to wait for clients."""
        self.is_stopping = True
        self._on(RoleEvent.STOP)

    # ------------------------------------------------------------ decide

    def _on(self, event: RoleEvent, error: BrokerError | None = None) -> None:
        """Decide what an event means; the actions are performed in turn, but cutting clients off never waits."""
        role, actions, sentence = decide(self.role, event)
        if sentence:
            _log.log(logging.ERROR if error else logging.INFO, "%s%s", sentence, f" ({error})" if error else "")
        self._error = self._error or error
        if role is self.role and not actions:
            return
        if Action.ABORT_CLIENTS in actions:
            self._abort_clients()
        if role is not self.role:
            self.role, self.since_ms = role, self._machine.clock()
        self._publish(role, [], 0)
        self._events.put_nowait(actions)

    async def _perform(self, action: Action) -> None:
        match action:
            case Action.CANCEL_WAIT:
                self._lock.cancel()
            case Action.PROMOTE:
                await self._promote()
            case Action.ABORT_CLIENTS:
                self._abort_clients()
            case Action.DRAIN_CLIENTS:
                await self._drain_clients()
            case Action.CLOSE_STORE:
                self._close_store()
            case Action.ABANDON_STORE:
                self._abandon_store()
            case Action.RELEASE_LOCK:
                self._lock.release()
                self._on(RoleEvent.RELEASED)

    # ------------------------------------------------------------ act

    async def _wait_for_lock(self) -> None:
        try:
            if not self._lock.try_acquire():
                compile_selector("TRUE")  # see `_load_selectors`; a standby has the time
                _log.info("standby: waiting for the lock %s, which another member holds", self._lock.name)
                if not await self._stand_by():
                    return
                self._has_stood_by = True
        except Exception as error:
            if not isinstance(error, BrokerError):
                _log.exception("waiting for the lock failed unexpectedly")
            self._error = error if isinstance(error, BrokerError) else LockError(repr(error))
            self._on(RoleEvent.STOP)
            return
        self._lock_won_at = asyncio.get_running_loop().time()
        self._on(RoleEvent.LOCK_ACQUIRED)

    async def _stand_by(self) -> bool:
        """Follow the journal until the lock is won; False when waiting was cancelled."""
        self._standby = wiring.make_standby(self._config, self._machine)
        readiness = asyncio.create_task(self._readiness.watch())
        try:
            return await asyncio.to_thread(self._lock.acquire)
        finally:
            readiness.cancel()
            standby, self._standby = self._standby, None
            if standby is not None:
                self._follower = await asyncio.to_thread(standby.end)
                if standby.has_seen_journal:
                    self.creatable = self.creatable._replace(messages=False)

    async def _promote(self) -> None:
        try:
            await self._begin_term()
        except BrokerError as error:
            self._on(RoleEvent.PROMOTION_FAILED, error)
        except Exception as error:  # a bug, or a file system that does what nobody thought of: not to be a master with
            _log.exception("the promotion failed unexpectedly")
            self._on(RoleEvent.PROMOTION_FAILED, StoreUnavailable(f"the store cannot be opened: {error!r}"))

    async def _begin_term(self) -> None:
        loop = asyncio.get_running_loop()
        turn = Turn(loop)
        machine = self._machine
        store = wiring.make_store(
            self._config,
            self._lock,
            self._store_failed,
            turn,
            self._follower,
            may_create=self.creatable.messages,
            machine=machine,
        )
        self._follower = None  # the store's from here on
        term = _Term(
            store=store,
            jobs=wiring.make_jobs(
                self._config,
                self._lock,
                self._store_failed,
                turn,
                store,
                may_create=self.creatable.jobs,
                machine=machine,
            ),
            broker=wiring.make_broker(self._config, store, loop.call_soon, machine),
            server=Server(connections_max=self._config.connections_max, turn=turn),
            chores=[],
        )
        self._term = term
        with contextlib.ExitStack() as unused:
            bound = {
                setting: unused.enter_context(await self._bind(setting, port))
                for setting, port in self._config.ports().items()
            }
            ports = {setting: where.getsockname()[1] for setting, where in bound.items()}
            protocols = wiring.make_protocols(self._config, term.broker, ports, self._certificates, machine)
            with _without_garbage_collection():
                recovery = await asyncio.to_thread(store.recover)
                term.broker.load(recovery)
                jobs: Sequence[Job] = () if term.jobs is None else await asyncio.to_thread(term.jobs.recover)
            self.creatable = Creatable(messages=False, jobs=False)
            if self.role is not Role.PROMOTING:  # asked to stop, or the lock lost, in the meantime
                return
            unused.callback(term.server.close_listeners)  # before their sockets: one may fail to listen
            listeners = [term.server.listen(protocols[setting], where) for setting, where in bound.items()]
            unused.pop_all()
        if term.jobs is not None:
            wiring.open_scheduler(self._config, term.broker, term.jobs, jobs, self._set_alarm, machine)
        term.store.cleanup()  # else what each failover leaves would be replayed in the next
        self._begin_chores(term)
        self.has_served = True
        self._on(RoleEvent.SERVING)
        milliseconds = (asyncio.get_running_loop().time() - self._lock_won_at) * 1000
        _log.info("listening on %s, %.0f ms after the lock was won", ", ".join(listeners), milliseconds)
        self._publish(self.role, listeners, term.store.epoch)

    async def _bind(self, setting: str, port: int) -> socket.socket:
        """Bind a port, waiting out a dying master's hold on it."""
        deadline = asyncio.get_running_loop().time() + _BIND_SECONDS
        while True:
            try:
                return self._machine.bind(self._config.bind, port, setting)
            except ConfigError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(_BIND_RETRY_SECONDS)

    def _begin_chores(self, term: _Term) -> None:
        config = self._config
        chores = [
            self._every(config.lock_check, self._check_lock),
            self._every(config.expire_interval, term.broker.remove_expired),
            self._every(config.expire_interval, term.broker.resume_stalled),
            self._every(config.expire_interval, term.broker.remove_inactive_destinations),
            self._every(_REPORT_SECONDS, term.broker.report),
            self._every(config.cleanup_interval, term.store.cleanup, first=_CLEANUP_SECONDS),
            _load_selectors(),
        ]
        if self._has_stood_by and config.is_in_directory:
            chores.append(asyncio.to_thread(schedulers.warn, config))  # an ActiveMQ may have been the last master
        if term.jobs is not None:
            chores.append(self._every(config.cleanup_interval, term.jobs.cleanup))
        term.chores.extend(map(asyncio.create_task, chores))

    async def _every(self, seconds: float, chore: Callable[[], None], first: float = math.inf) -> None:
        """Do a chore again and again, in twice the time of the last once until that is `seconds`.

        One that fails ends the term, for nobody knows what it leaves behind.
        """
        delay = min(first, seconds)
        try:
            while True:
                await asyncio.sleep(delay)
                chore()
                delay = min(2 * delay, seconds)
        except Exception as error:
            _log.exception("a periodic task failed")
            self._store_failed(error)

    def _set_alarm(self, when: int | None) -> None:
        """Have the scheduler called at a time, in milliseconds since the epoch, and not at the one said before."""
        term = self._term
        if term is None:
            return
        if term.alarm is not None:
            term.alarm.cancel()
            term.alarm = None
        if when is not None:
            seconds = max(0, when - self._machine.clock()) / 1000
            term.alarm = asyncio.get_running_loop().call_later(seconds, self._fire, term)

    def _fire(self, term: _Term) -> None:
        if term.broker.scheduler is None:
            return
        try:
            term.broker.scheduler.fire(self._machine.clock())
        except Exception as error:  # as with the other chores
            _log.exception("the scheduler failed")
            self._store_failed(error)

    def _check_lock(self) -> None:
        try:
            self._lock.check()
        except LockNotHeld as error:
            self._on(RoleEvent.LOCK_LOST, error)

    def _store_failed(self, error: Exception) -> None:
        if isinstance(error, LockNotHeld):
            self._on(RoleEvent.LOCK_LOST, error)
        else:
            self._on(RoleEvent.STORE_FAILED, error if isinstance(error, BrokerError) else StoreUnavailable(repr(error)))

    def _abort_clients(self) -> None:
        if self._term is not None:
            self._end_chores()
            self._term.broker.abandon()
            self._term.server.abort()

    async def _drain_clients(self) -> None:
        """Send clients what they are owed: receipts for all that is on disk, once all is."""
        if self._term is None:
            return
        self._end_chores()
        server, broker = self._term.server, self._term.broker
        broker.quiesce()
        server.close_listeners()
        server.hold()
        on_disk = asyncio.Event()
        broker.when_durable(on_disk.set)
        await _within(self._config.stop_timeout, on_disk.wait())
        await server.drain(self._config.stop_timeout)

    def _close_store(self) -> None:
        term, self._term = self._term, None
        if term is None:
            return
        # On this thread, which has nobody left to serve: the stores belong to it.
        if term.jobs is not None:
            self._close_one(term.jobs.close, term.jobs.abandon)
        self._close_one(lambda: term.store.close(term.broker.delivered()), term.store.abandon)

    def _close_one(self, close: Callable[[], None], abandon: Callable[[], None]) -> None:
        """Close a store, and leave it as it is if that fails: the other one must be closed all the same."""
        try:
            close()
        except BrokerError as error:
            self._error = self._error or error
            abandon()

    def _abandon_store(self) -> None:
        if self._term is not None:
            if self._term.jobs is not None:
                self._term.jobs.abandon()
            self._term.store.abandon()
            self._term = None

    def _end_chores(self) -> None:
        if self._term is not None:
            for chore in self._term.chores:
                chore.cancel()


@contextlib.contextmanager
def _without_garbage_collection() -> Generator[None]:
    """Keep the collector from going through every message again and again while a backlog is read in; or ever after."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


async def _load_selectors() -> None:
    """Load parser and grammar, beside the loop: with the first selector they would hold up everybody for 0.1 s."""
    await asyncio.sleep(_SELECTORS_SECONDS)
    await asyncio.to_thread(compile_selector, "TRUE")


async def _within(seconds: float, work: Coroutine[Any, Any, object]) -> bool:
    """Await something for a time; False when it took longer."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return False
    return True
