"""The run of a member: waits for the lock, serves while it holds it, and steps back when it loses it.

The shell around `core.mastership`: events come from the lock, the store, the listeners and from signals; each is
decided there and performed here. The objects of one term of mastership (store, core, server) are created when the term
begins and discarded when it ends.
"""

import asyncio
import contextlib
import gc
import logging
import math
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pybroker.broker.app import schedulers, wiring
from pybroker.broker.app.authentication import Authentication
from pybroker.broker.app.binding import bind
from pybroker.broker.app.config import Config
from pybroker.broker.app.ha_events import HaEvent, HaEventKind, Phases, Report, ignore
from pybroker.broker.app.large_pages import LargePages
from pybroker.broker.app.layout import Creatable
from pybroker.broker.app.machine import MACHINE, Machine
from pybroker.broker.app.message_rules import sweep_interval
from pybroker.broker.app.mqtt_sessions import make_session_states
from pybroker.broker.app.protocols import make_protocols
from pybroker.broker.app.security_files import SecurityFiles
from pybroker.broker.app.standby import Standby
from pybroker.broker.app.step_down import MayStepDown, standby_is_unknown
from pybroker.broker.app.system_usage import BrokerSystemUsage
from pybroker.broker.app.tls_files import ListenerCertificates
from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.core.mastership import Action, RoleEvent, decide
from pybroker.broker.core.offline_durables import OfflineDurables
from pybroker.broker.domain.admin import Totals
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import BrokerError, LockError, LockNotHeld, StoreUnavailable
from pybroker.broker.domain.jobs import Job, JobStore
from pybroker.broker.domain.network.cluster import ClusterPeers
from pybroker.broker.domain.network.interests import Interests
from pybroker.broker.domain.network.rows import BridgeRow, IncomingBridgeRow
from pybroker.broker.domain.ports import LockProvider, MessageSpool, MessageStore
from pybroker.broker.domain.role import Role
from pybroker.broker.domain.rules import Rules
from pybroker.store.journal.follower import Follower
from pybroker.store.members import Followed, PublishedEnd
from pybroker.transports.mqtt.session_states import SessionStates
from pybroker.transports.network.connector import BridgeLife
from pybroker.transports.openwire.session import Sessions
from pybroker.transports.server import Server
from pybroker.transports.turn import Turn

if TYPE_CHECKING:  # few members are replicated
    from pybroker.broker.app.replication import Replication

_log = logging.getLogger(__name__)

_REFRESH_SECONDS = 1.0
"""How often records are written again, so that a cleanup soon removes their files."""
_REPORT_SECONDS = 10.0
"""The interval of log lines with counts, such as of dead letters."""

_CLEANUP_SECONDS = 1.0
"""The delay of a new master's first cleanup: its clients soon consume the messages that hold the former master's files,
and a pair whose masters often die must not accumulate files."""

Publish = Callable[[Role, list[str], int], None]
"""Publishes this member's role and, as master, its listeners and its epoch (0: unchanged)."""


@dataclass(slots=True, kw_only=True)
class Term:
    """The objects of a term of mastership.

    Attributes:
        interests: shared by all bridges, those of this broker and those of others to it.
        listeners: the URLs of the open listeners; none before it serves.
        bridges: the bridges to other brokers; none before it serves.
    """

    store: MessageStore
    jobs: JobStore | None
    broker: BrokerCore
    server: Server
    tasks: list[asyncio.Task[None]]
    sessions: Sessions
    interests: Interests
    mqtt_states: SessionStates
    spool: MessageSpool | None = None
    authentication: Authentication | None = None
    alarm: asyncio.TimerHandle | None = None
    listeners: Sequence[str] = ()
    bridges: Sequence[BridgeLife] = ()

    def remote_serves(self, broker_name: str) -> None:
        """Let the bridges to a broker that has opened one to this broker dial it soon."""
        for bridge in self.bridges:
            bridge.remote_serves(broker_name)


class Node:
    """One run of a member, from standby to stopped."""

    def __init__(
        self,
        config: Config,
        publish: Publish,
        certificates: ListenerCertificates | None = None,
        creatable: Creatable = Creatable(),  # noqa: B008 - a frozen value
        machine: Machine = MACHINE,
        security: SecurityFiles | None = None,
        report: Report = ignore,
        may_step_down: MayStepDown = standby_is_unknown,
        obstacle: Callable[[], str] = str,
        replication: "Replication | None" = None,
    ) -> None:
        self.role = Role.STANDBY
        self._machine = machine
        self.since_ms = machine.clock()
        """The time at which it took its role, in milliseconds since the epoch."""
        self.is_stopping = False
        """True after a stop was requested."""
        self.has_served = False
        """True after it was master."""
        self.obstacle = obstacle
        """Returns the reason why a standby could not serve; empty if it could, or for another role."""
        self.has_stepped_down = False
        """True after it began to give its lock to another member on request."""
        self.is_waiting = False
        """True once another member was found to have the lock."""
        self.creatable = creatable
        """The journals that may be created: none that this member has seen."""
        self._config = config
        self._publish = publish
        self._certificates = certificates
        self._replication = replication
        self._lock: LockProvider = wiring.make_lock(config, machine) if replication is None else replication.lock
        if replication is not None:
            replication.on_lost = partial(self._on, RoleEvent.LOCK_LOST)
            replication.on_failed = self.stop
            replication.on_shortage = self._note_shortage
            replication.on_wanted = self._hand_over_to
        self._security = SecurityFiles(config) if security is None else security
        self._events: asyncio.Queue[tuple[Action, ...]] = asyncio.Queue()
        self._term: Term | None = None
        self._error: BrokerError | None = None
        self._report = report
        self._may_step_down = may_step_down
        self._lock_won_at = 0.0
        self._lock_since_ms = self._lock_confirmed_ms = 0
        self._phases: Phases | None = None
        self._standby: Standby | None = None
        self._follower: Follower | None = None
        self._has_stood_by = False

    async def run(self) -> None:
        """Wait for the lock, serve, and end.

        Raises:
            LockNotHeld: the lock was lost; a new run may begin as standby.
            BrokerError: it could not become master, or its store failed.
        """
        self._publish(self.role, [], 0)
        self._report(HaEvent(kind=HaEventKind.ROLE, role=self.role, reason="begins to wait for the lock"))
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
        error, self._error = self._error, None  # its traceback refers to the frames of the term, and so to its store
        if error is not None:
            raise error

    def followed(self) -> Followed | None:
        """Return the standby's position in the journal; None for another role."""
        return None if self._standby is None else self._standby.followed()

    def journal_problem(self) -> str:
        """Return the reason why a standby cannot follow the journal now; empty if it can, or for another role."""
        return "" if self._standby is None else self._standby.problem

    def journal_end(self) -> PublishedEnd | None:
        """Return the end of a master's journal; None for another role, or a store without one."""
        term = self._term
        return None if self.role is not Role.MASTER or term is None else wiring.journal_end(term.store)

    def lock_times(self) -> tuple[int, int]:
        """Return when it took the lock, and when it last found that it holds it, in milliseconds; 0 if it does not."""
        return self._lock_since_ms, self._lock_confirmed_ms

    def serving(self) -> Term | None:
        """Return the present term; None unless the broker serves."""
        return self._term if self.role is Role.MASTER else None

    def totals(self) -> Totals | None:
        """Return the broker's counts; None unless it serves."""
        term = self.serving()
        if term is None:
            return None
        lag = term.server.turn.longest()
        totals = term.broker.admin.totals()
        refused = term.broker.per_user.refused_count + term.server.refused_count
        return replace(
            totals,
            refused=refused,
            loop_lag_seconds=lag.seconds,
            loop_lag_cause=lag.cause,
            reconnections=term.sessions.reconnection_count,
            by_listener=term.server.connection_counts(),
        )

    def bridges(self) -> Sequence[BridgeRow]:
        """Return the state of the bridges to other brokers; none unless the broker serves."""
        term = self.serving()
        return () if term is None else [each.row for each in term.bridges]

    def incoming_bridges(self) -> Sequence[IncomingBridgeRow]:
        """Return the state of the bridges that other brokers have opened; none unless the broker serves."""
        term = self.serving()
        return () if term is None else term.sessions.bridge_rows()

    def largest(self, count: int) -> Sequence[tuple[Destination, int]]:
        """Return the destinations whose messages take most memory, and its bytes; none unless the broker serves."""
        term = self.serving()
        return () if term is None else term.broker.admin.largest(count)

    def system_usage(self, term: Term) -> BrokerSystemUsage:
        """Return the usage of store and spool in a term."""
        return BrokerSystemUsage(self._config, term.store, term.spool, term.listeners)

    def stop(self) -> None:
        """Request an orderly end; a second request does not wait for clients."""
        self.is_stopping = True
        self._on(RoleEvent.STOP)

    async def request_stepdown(self, *, force: bool = False, to: str = "") -> str:
        """Give the lock to a standby in an orderly way, as at a stop; then `run` ends, and another run stands by.

        Args:
            force: without a standby that could serve, too: then no member serves until this one does again.
            to: the name of the member that is to take over, of a replicated cluster; empty: any.

        Returns:
            The reason why it was refused, a sentence; empty if it has begun.
        """
        if refusal := self._not_a_master():
            return refusal
        if self._replication is not None:
            return self._request_switchover(self._replication, to, force=force)
        if to:
            return "the members share their store, so that none can be chosen: the one serves that gets the lock"
        if not force and (problem := await self._may_step_down()):
            return f"{problem}: no member would take over"
        if refusal := self._not_a_master():  # meanwhile
            return refusal
        self.has_stepped_down = True
        self._on(RoleEvent.STEP_DOWN)
        return ""

    def _request_switchover(self, replication: "Replication", to: str, *, force: bool = False) -> str:
        if refusal := replication.prepare_switchover(to, force=force):
            return refusal
        self.has_stepped_down = True
        self._on(RoleEvent.STEP_DOWN)
        return ""

    def _hand_over_to(self, name: str) -> None:
        """Hand over to a preferred member, which asks for it."""
        if self._replication is None or self.role is not Role.MASTER:
            return
        refusal = self._request_switchover(self._replication, name)
        _log.info("%s asks to be master, which it is preferred to be: %s", name, refusal or "handing over")

    def _not_a_master(self) -> str:
        return "" if self.role is Role.MASTER else f"this member is no master: it is {self.role.lower()}"

    # ------------------------------------------------------------ decide

    def _on(self, event: RoleEvent, error: BrokerError | None = None) -> None:
        """Decide on an event; its actions are performed in turn, but clients are aborted at once."""
        role, actions, sentence = decide(self.role, event)
        if sentence:
            _log.log(logging.ERROR if error else logging.INFO, "%s%s", sentence, f" ({error})" if error else "")
        self._error = self._error or error
        if role is self.role and not actions:
            return
        if Action.ABORT_CLIENTS in actions:
            self._abort_clients()
        if self._replication is not None and self._replication.term is not None and role is Role.RELINQUISHING:
            self._replication.term.stop_waiting()
        former = self.role
        if role is not former:
            self.role, self.since_ms = role, self._machine.clock()
        self._publish(role, [], 0)
        if role is not former:
            reason = f"{sentence} ({error})" if error else sentence
            self._report(HaEvent(kind=HaEventKind.ROLE, role=role, former=former, reason=reason))
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
                if self._replication is not None and self._error is None:  # a failed store would confirm nothing more
                    await self._replication.hand_over(self._config.stop_timeout)
                self._lock.release()
                self._lock_since_ms = self._lock_confirmed_ms = 0
                self._on(RoleEvent.RELEASED)

    # ------------------------------------------------------------ act

    async def _wait_for_lock(self) -> None:
        self._phases = Phases(asyncio.get_running_loop().time)
        try:
            if self._lock.try_acquire():
                self._note_lock(self._phases)
            else:
                if self._replication is None:
                    _log.info("standby: waiting for the lock %s, which another member holds", self._lock.name)
                self.is_waiting = True
                self._publish(self.role, [], 0)
                if not await self._stand_by(self._phases):
                    return
                self._has_stood_by = True
        except Exception as error:
            if not isinstance(error, BrokerError):
                _log.exception("waiting for the lock failed unexpectedly")
            self._error = error if isinstance(error, BrokerError) else LockError(repr(error))
            self._on(RoleEvent.STOP)
            return
        self._on(RoleEvent.LOCK_ACQUIRED)

    def _note_lock(self, phases: Phases) -> None:
        """Note the time at which the lock was won."""
        phases.end("waiting")
        self._lock_won_at = asyncio.get_running_loop().time()
        self._lock_since_ms = self._lock_confirmed_ms = self._machine.clock()

    async def _stand_by(self, phases: Phases) -> bool:
        """Follow the journal until the lock is won; False if waiting was cancelled."""
        self._standby = wiring.make_standby(self._config, self._machine)
        try:
            if is_won := await asyncio.to_thread(self._lock.acquire):
                self._note_lock(phases)
            return is_won
        finally:
            standby, self._standby = self._standby, None
            if standby is not None:
                self._follower = await asyncio.to_thread(standby.end)
                if standby.has_seen_journal:
                    self.creatable = self.creatable._replace(messages=False)
                phases.end("following")

    async def _promote(self) -> None:
        try:
            await self._begin_term()
        except BrokerError as error:
            self._on(RoleEvent.PROMOTION_FAILED, error)
        except Exception as error:  # a bug, or an unexpected error of the file system
            _log.exception("the promotion failed unexpectedly")
            self._on(RoleEvent.PROMOTION_FAILED, StoreUnavailable(f"the store cannot be opened: {error!r}"))

    async def _begin_term(self) -> None:
        loop = asyncio.get_running_loop()
        machine, phases = self._machine, self._phases or Phases(loop.time)
        self._term = term = self._new_term()
        term.authentication = Authentication(self._config, self._security, term.broker, term.server.turn, machine)
        if self._security.rules is not None:
            self._security.rules.changed = term.broker.use_rules
        with contextlib.ExitStack() as unused:
            configured = self._config.listeners
            bound = [
                unused.enter_context(await bind(machine, each.host, each.port, each.setting)) for each in configured
            ]
            protocols = make_protocols(
                self._config,
                term.broker,
                [replace(each, port=where.getsockname()[1]) for each, where in zip(configured, bound, strict=True)],
                self._certificates,
                machine,
                term.authentication.authenticator,
                term.sessions,
                term.mqtt_states,
            )
            phases.end("binding")
            with _without_garbage_collection():
                recovery = await asyncio.to_thread(term.store.recover)
                phases.end("opening")
                term.broker.load(recovery)
                jobs: Sequence[Job] = () if term.jobs is None else await asyncio.to_thread(term.jobs.recover)
            phases.end("loading")
            self.creatable = Creatable(messages=False, jobs=False)
            if self._replication is not None and self._replication.term is not None:
                await self._replication.term.begin()
                phases.end("replicating")
            if self.role is not Role.PROMOTING:  # a stop was requested, or the lock was lost
                return
            unused.callback(term.server.close_listeners)  # before their sockets: one may fail to listen
            listeners = [term.server.listen(protocol, where) for protocol, where in zip(protocols, bound, strict=True)]
            unused.pop_all()
        term.listeners = listeners
        self._open_services(term, jobs)
        term.bridges = wiring.make_bridges(
            self._config,
            term.broker,
            term.server,
            term.authentication.authenticator,
            term.interests,
            term.sessions.peers,
        )
        for bridge in term.bridges:
            bridge.start()
        term.sessions.on_bridge = term.remote_serves
        term.store.cleanup()  # otherwise the files of each failover would be replayed in the next
        self._begin_tasks(term)
        self.has_served = True
        self._on(RoleEvent.SERVING)
        phases.end("listening")
        self._announce(term, listeners, phases, loop.time() - self._lock_won_at)

    def _announce(self, term: Term, listeners: list[str], phases: Phases, seconds: float) -> None:
        """Publish, log and report that the member serves."""
        _log.info("listening on %s, %.0f ms after the lock was won", ", ".join(listeners), seconds * 1000)
        self._publish(self.role, listeners, term.store.epoch)
        self._report(
            HaEvent(
                kind=HaEventKind.PROMOTION,
                role=self.role,
                epoch=term.store.epoch,
                phases=phases.milliseconds,
                total_ms=round(seconds * 1000),
            )
        )

    def _new_term(self) -> Term:
        """Make the objects of a term; nothing is opened."""
        machine = self._machine
        turn = Turn(asyncio.get_running_loop(), machine.monotonic)
        if self._replication is not None:
            turn.fence = self._replication.run.may_send  # a master that was frozen must not send what it has in hand
        replica = None if self._replication is None else self._replication.term
        store = wiring.make_store(
            self._config,
            self._lock,
            self._store_failed,
            turn,
            self._follower,
            may_create=self.creatable.messages,
            machine=machine,
            term=replica,
        )
        self._follower = None  # it belongs to the store now
        spool = wiring.make_spool(self._config, turn, machine)
        return Term(
            store=store,
            jobs=wiring.make_jobs(
                self._config,
                self._lock,
                self._store_failed,
                turn,
                store,
                may_create=self.creatable.jobs,
                machine=machine,
                term=replica,
            ),
            broker=(broker := wiring.make_broker(self._config, store, turn, machine, spool, self._rules)),
            spool=spool,
            server=Server(
                limits=wiring.admission_limits(self._config),
                is_welcome=_welcome(self._config),
                turn=turn,
                frames=wiring.make_frame_memory(broker),
                unread=wiring.make_output_memory(broker),
            ),
            tasks=[],
            sessions=wiring.make_sessions(broker, interests := Interests(), ClusterPeers(turn.after)),
            interests=interests,
            mqtt_states=make_session_states(broker, turn.after, machine.clock),
        )

    def _open_services(self, term: Term, jobs: Sequence[Job]) -> None:
        """Begin to answer requests for statistics, to deliver scheduled messages, and to end MQTT sessions."""
        config = self._config
        term.mqtt_states.recover()
        if config.statistics:
            term.broker.open_statistics(self.system_usage(term))
        if term.jobs is not None:
            wiring.open_scheduler(config, term.broker, term.jobs, jobs, self._set_alarm, self._machine)

    def _begin_tasks(self, term: Term) -> None:
        config = self._config
        tasks = [
            self._every(config.lock_check, self._check_lock),
            self._every(sweep_interval(config), term.broker.remove_expired),
            self._every(config.expire_interval, term.broker.resume_stalled),
            self._every(_REPORT_SECONDS, term.broker.report),
            self._every(_REFRESH_SECONDS, term.broker.refresh_records),
            self._every(config.cleanup_interval, term.store.cleanup, first=_CLEANUP_SECONDS),
            term.server.turn.watch(),
        ]
        if config.purge_interval:
            tasks.append(self._every(config.purge_interval, term.broker.remove_inactive_destinations))
        if config.offline_durable_subscriber_timeout is not None:
            offline = OfflineDurables(term.broker, config.offline_durable_subscriber_timeout)
            tasks.append(self._every(config.offline_durable_subscriber_task_schedule, offline.sweep))
        if self._has_stood_by and config.is_in_directory:
            tasks.append(asyncio.to_thread(schedulers.warn, config))  # an ActiveMQ may have been the last master
        if term.jobs is not None:
            tasks.append(self._every(config.cleanup_interval, term.jobs.cleanup))
        if term.authentication is not None:
            tasks.append(term.authentication.refresh())
        term.tasks.extend(map(asyncio.create_task, tasks))

    async def _every(self, seconds: float, task: Callable[[], None], first: float = math.inf) -> None:
        """Run a periodic task; the delay doubles from `first` up to `seconds`.

        A failure ends the term, because its effects are unknown.
        """
        delay = min(first, seconds)
        try:
            while True:
                await asyncio.sleep(delay)
                if self._term is not None:
                    self._term.server.turn.measure(f"periodic task {getattr(task, '__name__', '')}", task)
                delay = min(2 * delay, seconds)
        except Exception as error:
            _log.exception("a periodic task failed")
            self._store_failed(error)

    @property
    def _rules(self) -> Rules | None:
        """The rules of the file as they are now."""
        return None if self._security.rules is None else self._security.rules.content

    def _set_alarm(self, when: int | None) -> None:
        """Call the scheduler at a time, in milliseconds since the epoch, which replaces an earlier one."""
        term = self._term
        if term is None:
            return
        if term.alarm is not None:
            term.alarm.cancel()
            term.alarm = None
        if when is not None:
            seconds = max(0, when - self._machine.clock()) / 1000
            term.alarm = asyncio.get_running_loop().call_later(seconds, self._fire, term)

    def _fire(self, term: Term) -> None:
        if term.broker.scheduler is None:
            return
        try:
            term.server.turn.measure("scheduled delivery", partial(term.broker.scheduler.fire, self._machine.clock()))
        except Exception as error:  # as for the other periodic tasks
            _log.exception("the scheduler failed")
            self._store_failed(error)

    def _check_lock(self) -> None:
        try:
            self._lock.check()
        except LockNotHeld as error:
            self._on(RoleEvent.LOCK_LOST, error)
        else:
            self._lock_confirmed_ms = self._machine.clock() - wiring.confirmed_ms_ago(self._lock)

    def _note_shortage(self, sentence: str) -> None:
        """Refuse persistent messages, or accept them again."""
        term = self._term
        if term is not None and term.broker.space.shortage != sentence:
            _log.log(logging.ERROR if sentence else logging.INFO, "%s", sentence or "enough replicas are in sync again")
            term.broker.space.shortage = sentence

    def _store_failed(self, error: Exception) -> None:
        if isinstance(error, LockNotHeld):
            self._on(RoleEvent.LOCK_LOST, error)
        else:
            self._on(RoleEvent.STORE_FAILED, error if isinstance(error, BrokerError) else StoreUnavailable(repr(error)))

    def _abort_clients(self) -> None:
        if self._term is not None:
            self._end_tasks()
            self._end_bridges(self._term)
            self._term.mqtt_states.close()
            self._term.broker.abandon()
            self._term.server.abort()

    async def _drain_clients(self) -> None:
        """Send outstanding answers to clients, after everything is on disk."""
        if self._term is None:
            return
        self._end_tasks()
        self._end_bridges(self._term)
        server, broker = self._term.server, self._term.broker
        self._term.mqtt_states.publish_wills()  # the next master does not know of them
        self._term.mqtt_states.close()
        broker.quiesce()
        server.close_listeners()
        server.hold()
        on_disk = asyncio.Event()
        broker.when_durable(on_disk.set)
        await _within(self._config.stop_timeout, on_disk.wait())
        await server.drain(self._config.stop_timeout)

    @staticmethod
    def _end_bridges(term: Term) -> None:
        """End the bridges to other brokers: what has no answer returns to its place, while the store is open."""
        for bridge in term.bridges:
            bridge.stop()
        term.bridges = ()

    def _close_store(self) -> None:
        term, self._term = self._term, None
        if term is None:
            return
        # On this thread, which has no clients left: the stores belong to it.
        if term.jobs is not None:
            self._close_one(term.jobs.close, term.jobs.abandon)
        self._close_one(lambda: term.store.close(term.broker.delivered()), term.store.abandon)
        if term.spool is not None:
            term.spool.close()

    def _close_one(self, close: Callable[[], None], abandon: Callable[[], None]) -> None:
        """Close a store, or abandon it if that fails, so that the other store is closed too."""
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
            if self._term.spool is not None:
                self._term.spool.close()
            self._term = None

    def _end_tasks(self) -> None:
        if self._term is not None:
            for task in self._term.tasks:
                task.cancel()
            self._term.server.turn.end_timers()
            if self._term.authentication is not None:
                self._term.authentication.close()
            self._security.stop_telling()


def _welcome(config: Config) -> Callable[[str], bool] | None:
    """Return what decides if an address may connect; None: all may."""
    networks = config.networks
    return None if networks is None else networks.allows


@contextlib.contextmanager
def _without_garbage_collection() -> Generator[None]:
    """Pause garbage collection while a backlog is loaded, and exclude the backlog from later collections."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


async def _within(seconds: float, work: Coroutine[Any, Any, object]) -> bool:
    """Await a coroutine with a time limit; False after a time-out."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return False
    return True
