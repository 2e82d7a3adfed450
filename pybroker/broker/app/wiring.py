"""The choice of stores, locks and protocols by the settings; no other module chooses adapters."""

import asyncio
import contextlib
import logging
import socket
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from pybroker.broker.app.config import Config
from pybroker.broker.app.directory import read_password
from pybroker.broker.app.layout import Creatable, layout_of
from pybroker.broker.app.machine import MACHINE, Machine
from pybroker.broker.app.memory import default_limit
from pybroker.broker.app.message_rules import arrival_rules, default_period, use_dead_letter_rules
from pybroker.broker.app.session_names import session_name
from pybroker.broker.app.standby import Standby
from pybroker.broker.app.stores import MEMORY_STORE, is_database, is_in_database
from pybroker.broker.core.broker import BrokerCore, Limits
from pybroker.broker.core.policy import DestinationPolicy, PolicyMap
from pybroker.broker.core.virtual import Definition, VirtualTopic
from pybroker.broker.domain.errors import ConfigError, StoreUnavailable
from pybroker.broker.domain.identity import BrokerIdentity
from pybroker.broker.domain.jobs import Job, JobStore
from pybroker.broker.domain.network.cluster import ClusterPeers
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.interests import Interests
from pybroker.broker.domain.openwire.marshal.wireformat import broker_offer
from pybroker.broker.domain.ports import LockProvider, MessageSpool, MessageStore
from pybroker.broker.domain.replica.operations import Journal
from pybroker.broker.domain.role import Role
from pybroker.broker.domain.rules import Rules
from pybroker.broker.domain.security import Authenticator
from pybroker.locks import file
from pybroker.locks.file import FileLock
from pybroker.locks.memory import LockRegistry, MemoryLock
from pybroker.locks.postgres.timing import Timing
from pybroker.security.ldap_settings import LdapSettings
from pybroker.security.logins import THREADS, Logins, SourceT
from pybroker.store.directories import has_data_files
from pybroker.store.journal.activity import SYNC_BOUNDS
from pybroker.store.journal.appender import JournalSettings, Preallocation, SyncStrategy
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.follower import Follower
from pybroker.store.journal.replay import Progress
from pybroker.store.journal.store import JournalStore
from pybroker.store.members import PublishedEnd, read_members
from pybroker.store.memory import MemoryStore
from pybroker.store.runtime import StoreRuntime
from pybroker.store.scheduler.memory import MemoryJobStore
from pybroker.store.scheduler.store import JournalJobStore
from pybroker.store.spool import FileSpool, SpoolThread
from pybroker.transports.admission import AdmissionLimits
from pybroker.transports.frame_memory import FrameMemory
from pybroker.transports.network.connector import BridgeLife
from pybroker.transports.openwire.client import OpenWireClient
from pybroker.transports.openwire.duplex import DuplexRequest
from pybroker.transports.openwire.session import Sessions
from pybroker.transports.output_memory import OutputMemory
from pybroker.transports.server import Server
from pybroker.transports.turn import Turn

if TYPE_CHECKING:  # the libraries are extras
    from pybroker.broker.app.replica_term import ReplicaTerm
    from pybroker.locks.postgres.provider import Database, PostgresLock
    from pybroker.security.ldap import Directory
    from pybroker.store.jdbc.jobs import JdbcJobStore
    from pybroker.store.jdbc.store import JdbcStore

_log = logging.getLogger(__name__)

_PROGRESS_SECONDS = 2.0

_SHARE_MIN = 16 << 20
"""The smallest share of the memory limit for unfinished frames, and for unread output: under a low limit some messages
of 1 MB must not make each other wait."""

_SPOOL_FREE_FILES = 4
"""Data files of the journal for which the spool leaves space on the disk."""

_EVERY_INTERFACE = ("0.0.0.0", "::", "")  # noqa: S104 (compared with, not bound to)


def make_lock(config: Config, machine: Machine = MACHINE) -> LockProvider:
    """Return the lock that guards the configured store."""
    if machine.make_lock is not None:
        return machine.make_lock(config)
    if config.store == MEMORY_STORE:
        return MemoryLock(LockRegistry())
    if is_in_database(config.lock):
        return _make_database_lock(config)
    path = lock_paths(layout_of(config).journal)[config.lock]
    if config.lock == "flock":
        from pybroker.locks.flock import FlockLock  # with filelock, which only needed here

        return FlockLock(path, clock=machine.clock)
    return FileLock(path, clock=machine.clock, poll_seconds=config.lock_poll)


def _make_database_lock(config: Config) -> "PostgresLock":
    """Return the lock in the configured database.

    Raises:
        ConfigError: the URL is not valid, or the driver is not installed.
    """
    with needs_driver(config.lock, "lock"):
        from pybroker.locks.postgres.advisory import PostgresAdvisoryLock
        from pybroker.locks.postgres.lease import LEASE_POLL_SECONDS, PostgresLeaseLock
        from pybroker.locks.postgres.row import PostgresRowLock
    database = _lock_database(
        database_url(config.lock_url or "", config.name),
        config.lock_lease,
        config.lock_renew,
        setting="store" if is_database(config.store) else "lock_url",
        grace_seconds=grace_seconds(config) if is_database(config.store) else 0.0,
        may_create=config.create_tables,
    )
    if config.lock == "postgres-lease":
        poll_seconds = config.lock_poll or LEASE_POLL_SECONDS
        return PostgresLeaseLock(database, member=config.name or socket.gethostname(), poll_seconds=poll_seconds)
    return PostgresRowLock(database) if config.lock == "postgres-row" else PostgresAdvisoryLock(database)


@cache
def _lock_database(
    url: str,
    lease_seconds: float,
    renew_seconds: float | None,
    *,
    setting: str,
    grace_seconds: float,
    may_create: bool,
) -> "Database":
    """Return one database for all runs of a member, because it records if it was ever reached."""
    from pybroker.locks.postgres.provider import Database

    timing = Timing.of(lease_seconds, renew_seconds)
    return Database(url, timing, setting=setting, grace_seconds=grace_seconds, may_create=may_create)


@contextlib.contextmanager
def needs_driver(what: str, setting: str) -> Generator[None]:
    """Convert a failed import of the database's driver to an error with the remedy.

    Raises:
        ConfigError: it is not installed.
    """
    with _needs_extra(what, setting, module="psycopg2", package="psycopg2-binary", extra="postgres"):
        yield


@contextlib.contextmanager
def _needs_extra(what: str, setting: str, *, module: str, package: str, extra: str) -> Generator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module:
            raise
        hint = f"pip install {package}, which is the extra `{extra}` of pybroker"
        raise ConfigError(f"{what} needs {module}, which is not installed", setting=setting, hint=hint) from error


def database_url(url: str, member: str | None, part: str = "") -> str:
    """Return a database's URL with an `application_name` of the member and the part."""
    shown = quote(session_name(member or socket.gethostname(), part))
    return f"{url}{'&' if '?' in url else '?'}application_name={shown}"


def grace_seconds(config: Config) -> float:
    """Return the seconds for which a store's database may be away."""
    if config.database_grace is not None:
        return config.database_grace
    return Timing.of(config.lock_lease, config.lock_renew).grace_seconds_max


def lock_name(config: Config) -> Path | str:
    """Return the lock's file, or the name of a lock in a database."""
    if is_in_database(config.lock):
        return make_lock(config).name
    return lock_paths(layout_of(config).journal)[config.lock]


def lock_paths(journal: Path) -> dict[str, Path]:
    """Return the file of each kind of lock on a journal's directory."""
    return {"file": journal / "lock", "flock": journal / "lock.flock"}


def is_locked(path: Path | str) -> bool:
    """Return True if a lock of `lock_name` is held; always True for a database. Changes nothing."""
    if isinstance(path, str):
        return True
    if path.name == "lock.flock":
        from pybroker.locks import flock

        return flock.is_locked(path)
    return file.is_locked(path)


def make_standby(config: Config, machine: Machine = MACHINE) -> Standby | None:
    """Return a standby that follows the configured store; None if the store has no journal."""
    if config.store == MEMORY_STORE or is_database(config.store):
        return None
    return Standby(layout_of(config).journal, machine)


def creatable(config: Config) -> Creatable:
    """Return the journals that a member may create; called at its start, as later an existing one may be unreachable.

    A separate directory of scheduled messages may be on another share, and counts as a part of the store.
    """
    if not config.is_in_directory:
        return Creatable()
    where = layout_of(config)
    return Creatable(
        messages=config.create_store and where.is_new(),
        jobs=(config.create_store or config.scheduler_store is None) and not has_data_files(where.scheduler),
    )


def make_store(
    config: Config,
    lock: LockProvider,
    on_failure: Callable[[Exception], None],
    turn: Turn,
    follower: Follower | None = None,
    *,
    may_create: bool = True,
    machine: Machine = MACHINE,
    term: "ReplicaTerm | None" = None,
) -> MessageStore:
    """Return the configured store, not yet open.

    Args:
        config: the settings.
        lock: the lock of the store.
        on_failure: called once, when the store cannot write any more.
        turn: the event loop's turn.
        follower: the standby's follower of the store's journal.
        may_create: create a journal in a directory without one.
        machine: the machine of this member.
        term: with the followers of the store; None without replication.
    """
    if config.store == MEMORY_STORE:
        return MemoryStore()
    if is_database(config.store):
        return _make_database_store(config, lock, on_failure, turn, machine)
    journal = layout_of(config).journal
    return JournalStore(
        journal,
        settings=replace(
            _journal_settings(config, archive=journal / "data-archive"),
            reserve_bytes=config.disk_reserve,
            store_bytes_max=config.store_limit,
        ),
        prioritized=is_prioritized(config),
        runtime=_runtime(lock.check, on_failure, turn, machine),
        files=JournalFiles(journal, machine.system),
        progress=_progress(),
        follower=follower,
        identity=_new_identity(config, machine) if term is None else BrokerIdentity(term.broker_id, config.broker_name),
        wants_snapshot=lambda: not has_standby(config),
        may_create=may_create,
        replica=None if term is None else term.journal(Journal.MESSAGES),
    )


def _make_database_store(
    config: Config, lock: LockProvider, on_failure: Callable[[Exception], None], turn: Turn, machine: Machine
) -> "JdbcStore":
    from pybroker.store.jdbc.store import JdbcStore

    return JdbcStore(
        database_url(config.store, config.name, "store"),
        prioritized=is_prioritized(config),
        may_create=config.create_tables,
        runtime=_runtime(_check_of(lock), on_failure, turn, machine),
        grace=grace_seconds(config),
        identity=_new_identity(config, machine),
    )


def _runtime(
    fence: Callable[[], None], on_failure: Callable[[Exception], None], turn: Turn, machine: Machine
) -> StoreRuntime:
    """Return the runtime of a store in this process."""
    return StoreRuntime(
        call_soon=turn.commit,
        call_later=asyncio.get_running_loop().call_later,
        post=turn.post,
        give_way=turn.give_way,
        fence=fence,
        on_failure=on_failure,
        clock=machine.clock,
        monotonic=machine.monotonic,
        spawn=machine.spawn,
        inbox=machine.inbox,
        event=machine.event,
    )


def _new_identity(config: Config, machine: Machine) -> BrokerIdentity:
    """Return the broker's name, with an id for a store that has none."""
    return BrokerIdentity(machine.new_id(), config.broker_name)


def is_prioritized(config: Config) -> bool:
    """Return True if any destination is prioritized, so that the store keeps that order."""
    return any(each.fields.get("prioritized_messages") for each in config.policies)


def _check_of(lock: LockProvider) -> Callable[[], None]:
    """Return the blocking check of a lock, for a store with its own thread."""
    from pybroker.locks.postgres.provider import PostgresLock

    assert isinstance(lock, PostgresLock), "a store in a database is locked there"
    return lock.check_surely


def journal_end(store: MessageStore) -> PublishedEnd | None:
    """Return the end of a store's journal; None for a store without one."""
    if not isinstance(store, JournalStore):
        return None
    file_id, offset = store.end
    return PublishedEnd(file_id=file_id, offset=offset)


def journal_counts(store: MessageStore) -> Mapping[str, Any] | None:
    """Return what the writer of a store's journal has done, for metrics; None for a store without one.

    The keys are those of `JournalActivity`; `files`, the number of data files; and `sync_bounds`.
    """
    if not isinstance(store, JournalStore):
        return None
    activity = store.activity
    return {
        "files": store.file_count,
        "written_bytes": activity.written_bytes,
        "sync_counts": list(activity.sync_counts),
        "sync_seconds": activity.sync_seconds,
        "sync_bounds": SYNC_BOUNDS,
    }


def confirmed_ms_ago(lock: LockProvider) -> int:
    """Return how old the confirmation of a lock is that was just checked: 0, unless a database confirms it."""
    from_database = getattr(lock, "confirmed_seconds_ago", None)
    return 0 if from_database is None else round(from_database() * 1000)


def has_standby(config: Config) -> bool:
    """Return True if another member is standby; False if the members cannot be read."""
    try:
        members = read_members(layout_of(config).members)
    except StoreUnavailable as error:
        _log.warning("cannot check for a standby: %s", error)
        return False
    return any(each.alive and each.member is not None and each.member.role is Role.STANDBY for each in members)


def _journal_settings(config: Config, archive: Path | None = None) -> JournalSettings:
    return JournalSettings(
        sync=SyncStrategy(config.sync),
        sync_interval_seconds=config.sync_interval,
        file_bytes_max=config.journal_file_max,
        batch_bytes_max=config.journal_batch_max,
        preallocation=Preallocation.SPARSE_FILE if config.journal_preallocate else Preallocation.NONE,
        archive_directory=archive if config.archive else None,
    )


def make_spool(config: Config, turn: Turn, machine: Machine = MACHINE) -> MessageSpool | None:
    """Return the spool of messages that no store has; None without one. Nothing is opened before it is needed."""
    if not config.spool_limit:
        return None
    directory = config.spool_directory
    if directory is None:
        directory = layout_of(config).journal if config.is_in_directory else Path(tempfile.gettempdir())
    thread = SpoolThread(machine.spawn, machine.inbox)
    return FileSpool(
        directory,
        bytes_max=config.spool_limit,
        reserve_bytes=config.disk_reserve + _SPOOL_FREE_FILES * config.journal_file_max,
        submit=thread.submit,
        post=turn.post,
        monotonic=machine.monotonic,
        when_closed=thread.end,
    )


def make_broker(
    config: Config,
    store: MessageStore,
    turn: Turn | None = None,
    machine: Machine = MACHINE,
    spool: MessageSpool | None = None,
    rules: Rules | None = None,
) -> BrokerCore:
    """Return the core over a store, still empty; it continues long work in later turns of the event loop of `turn`."""
    defaults = DestinationPolicy(
        max_redeliveries=config.max_redeliveries,
        pending_message_limit=config.topic_pending_limit,
        expire_messages_period=default_period(config),
    )
    broker = BrokerCore(
        config.broker_name,
        store=store,
        clock=machine.clock,
        limits=Limits(
            destinations_max=config.destinations_max,
            memory_bytes_max=config.memory_limit or default_limit(),
            connections_per_user=config.connections_per_user,
        ),
        policies=_policies(config, defaults),
        definitions=definitions_of(config),
        defer=None if turn is None else turn.defer,
        monotonic=machine.monotonic,
        run_id=machine.new_id(),
        spool=spool,
        rules=rules,
    )
    broker.usage.paging.after = None if turn is None else turn.after
    broker.arrival_rules = arrival_rules(config)
    use_dead_letter_rules(config, broker)
    broker.destinations.configured = frozenset(config.destinations)
    if config.use_virtual_dest_subs or config.use_virtual_dest_subs_on_creation:
        _advise_virtual_demand(config, broker)
    broker.id = machine.new_id()  # until the store has loaded its own; one in memory has none
    if isinstance(store, JournalStore) or is_database(config.store):
        # Which dispatches messages that wait for their bodies.
        cast("JournalStore | JdbcStore", store).on_readable = broker.remove_expired
    return broker


def _advise_virtual_demand(config: Config, broker: BrokerCore) -> None:
    from pybroker.broker.core.virtual_advisories import VirtualAdvisories, VirtualDemand  # few brokers have them

    virtual = VirtualAdvisories(
        broker.advisories,
        broker.admin,
        VirtualDemand(definitions_of(config)),
        of_consumers=config.use_virtual_dest_subs,
        of_queues=config.use_virtual_dest_subs_on_creation,
    )
    broker.advisories.existing_elsewhere = virtual.existing
    broker.observe(virtual)


def admission_limits(config: Config) -> AdmissionLimits:
    """Return the limits to connections."""
    return AdmissionLimits.of(
        config.connections_max,
        reserved=config.connections_reserved,
        unconnected=config.unconnected_max,
        per_address=config.connections_per_address,
    )


def make_frame_memory(broker: BrokerCore) -> FrameMemory:
    """Return the memory for large unfinished frames: a quarter of the broker's, and counted in it."""
    loop = asyncio.get_running_loop()
    return FrameMemory(
        _quarter(broker),
        acquire=broker.usage.acquire,
        release=broker.usage.release,
        time=loop.time,
        call_later=loop.call_later,
    )


def make_output_memory(broker: BrokerCore) -> OutputMemory:
    """Return the memory for output that peers leave unread: another quarter, and counted too."""
    return OutputMemory(
        _quarter(broker),
        acquire=broker.usage.acquire,
        release=broker.usage.release,
        call_later=asyncio.get_running_loop().call_later,
    )


def _quarter(broker: BrokerCore) -> int:
    """Return a quarter of the memory limit, but not too little to work with; 0 without a limit."""
    limit = broker.limits.memory_bytes_max
    return max(limit // 4, _SHARE_MIN) if limit else 0


def _policies(config: Config, defaults: DestinationPolicy) -> PolicyMap:
    if not config.policies:
        return PolicyMap((), defaults)
    from pybroker.broker.app.policies import policy_map  # few brokers have tables

    return policy_map(config.policies, defaults)


def definitions_of(config: Config) -> tuple[Definition, ...]:
    """Return the virtual destinations, with ActiveMQ's own virtual topics unless there are tables of them."""
    topics = (VirtualTopic(),) if config.virtual_topics is None else config.virtual_topics
    mirrored = () if config.mirrored_queues is None else (config.mirrored_queues,)
    return (*topics, *config.composite_queues, *config.composite_topics, *mirrored)


def make_jobs(
    config: Config,
    lock: LockProvider,
    on_failure: Callable[[Exception], None],
    turn: Turn,
    store: MessageStore,
    *,
    may_create: bool = True,
    machine: Machine = MACHINE,
    term: "ReplicaTerm | None" = None,
) -> JobStore | None:
    """Return the store of scheduled messages, not yet open; None without a scheduler.

    Args:
        config: the settings.
        lock: the lock of the store.
        on_failure: called once, when the store cannot write any more.
        turn: the event loop's turn.
        store: the store of messages.
        may_create: create a journal in a directory without one.
        machine: the machine of this member.
        term: with the followers of the store; None without replication.

    Raises:
        StoreUnavailable: another broker holds the lock of the directory that `scheduler_store` names.
    """
    if not config.scheduler:
        return None
    if config.store == MEMORY_STORE:
        return MemoryJobStore()
    if is_database(config.store):
        return _make_database_jobs(config, lock, on_failure, turn, store, machine)
    if config.scheduler_store is not None:
        _check_scheduler_lock(config.scheduler_store)
    directory = layout_of(config).scheduler
    return JournalJobStore(
        directory,
        settings=_journal_settings(config),
        runtime=replace(_runtime(lock.check, on_failure, turn, machine), call_later=None),
        files=JournalFiles(directory, machine.system),
        may_create=may_create,
        lender=store.lend_reserve if isinstance(store, JournalStore) else lambda: False,
        replica=None if term is None else term.journal(Journal.SCHEDULER),
    )


def _check_scheduler_lock(directory: Path) -> None:
    """Check that no ActiveMQ with another KahaDB uses a scheduler's directory, which the store's lock does not guard.

    Raises:
        StoreUnavailable: one uses it.
    """
    path = directory / "lock"
    if file.is_locked(path):
        raise StoreUnavailable(
            f"{path} is held by another broker, which schedules in {directory}",
            path=str(directory),
            hint="name the scheduler's directory of the ActiveMQ that this store belongs to: scheduler_store",
        )


def _make_database_jobs(
    config: Config,
    lock: LockProvider,
    on_failure: Callable[[Exception], None],
    turn: Turn,
    store: MessageStore,
    machine: Machine,
) -> "JdbcJobStore":
    from pybroker.store.jdbc.jobs import JdbcJobStore

    return JdbcJobStore(
        database_url(config.store, config.name, "jobs"),
        epoch=lambda: store.epoch,
        runtime=replace(_runtime(_check_of(lock), on_failure, turn, machine), call_later=None),
        grace=grace_seconds(config),
    )


def open_scheduler(
    config: Config,
    broker: BrokerCore,
    jobs: JobStore,
    recovered: Sequence[Job],
    wake_at: Callable[[int | None], None],
    machine: Machine = MACHINE,
) -> None:
    """Open the scheduler of a broker."""
    connection_id = machine.new_id()
    broker.open_scheduler(jobs, recovered, wake_at=wake_at, connection_id=connection_id, jobs_max=config.jobs_max)


def make_logins(source: SourceT, turn: Turn, machine: Machine = MACHINE, threads: int = THREADS) -> Logins[SourceT]:
    """Return what verifies the logins of users."""
    return Logins(
        source,
        post=turn.post,
        call_later=asyncio.get_running_loop().call_later,
        monotonic=machine.monotonic,
        threads=threads,
    )


def make_directory(settings: LdapSettings, machine: Machine = MACHINE) -> "Directory":
    """Return the users of an LDAP directory, without a connection yet.

    Raises:
        ConfigError: the settings cannot be used, or ldap3 is not installed.
    """
    with _needs_extra("an LDAP directory", "ldap", module="ldap3", package="ldap3", extra="ldap"):
        from pybroker.security.ldap import Directory
    return Directory(settings, partial(read_password, settings.connection_password_file), machine.monotonic)


def _progress() -> Progress:
    """Return a callback that logs the progress of a long recovery."""
    logged_at = time.monotonic()

    def log(done: int, total: int, records: int) -> None:
        nonlocal logged_at
        if time.monotonic() - logged_at >= _PROGRESS_SECONDS:
            logged_at = time.monotonic()
            _log.info("recovering: %d of %d journal files read, %d records", done, total, records)

    return log


def make_sessions(broker: BrokerCore, interests: Interests, peers: ClusterPeers) -> Sessions:
    """Return the OpenWire sessions of a broker, none yet, which serve duplex bridges of other brokers too.

    Args:
        broker: the core.
        interests: shared by all bridges of the broker.
        peers: gets the brokers that duplex bridges come from.
    """

    def open_duplex(request: DuplexRequest) -> OpenWireClient:
        from pybroker.transports.network.acceptor import DuplexAcceptor  # few brokers have a duplex bridge

        return DuplexAcceptor(
            broker=broker,
            interests=interests,
            subscriptions=broker.subscriptions_of,
            announce=broker.announce,
            call_soon=asyncio.get_running_loop().call_soon,
        ).open(request)

    return Sessions(open_duplex, peers)


def make_bridges(
    config: Config,
    broker: BrokerCore,
    server: Server,
    authenticator: Authenticator,
    interests: Interests,
    peers: ClusterPeers | None = None,
) -> Sequence[BridgeLife]:
    """Return the bridges of all network connectors, none of which has started.

    Args:
        config: the settings.
        broker: this broker.
        server: the server, whose loop and memory they use.
        authenticator: decides who a bridge with a user name is at this broker.
        interests: shared by all bridges of the broker.
        peers: gets the brokers that they lead to; None: clients get no addresses.
    """
    if not config.network:
        return ()
    from pybroker.transports.network.bridge import BridgeSettings  # few brokers have any
    from pybroker.transports.network.connector import BridgeHost, bridges_of

    host = BridgeHost(broker=broker, registry=server, handshakes=server.handshakes, authenticator=authenticator)

    def settings(connector: NetworkConnector, connection_id: str) -> BridgeSettings:
        return BridgeSettings(
            connector=connector,
            offer=broker_offer(frame_bytes_max=config.frame_max),
            broker_url=config.openwire_brokers or broker.url,
            connection_id=connection_id,
            interests=interests,
            subscriptions=broker.subscriptions_of,
            announce=broker.announce,
            peers=peers,
        )

    return [bridge for each in config.network for bridge in bridges_of(each, host, settings)]
