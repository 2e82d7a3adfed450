"""`pybroker start`: runs a member with given settings until a signal stops it."""

import asyncio
import gc
import logging
import resource
import signal
import socket
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Union

from pybroker import __version__
from pybroker.broker.app import database, eventloop, logs, preflight, schedulers, signals, wiring
from pybroker.broker.app.config import Config
from pybroker.broker.app.garbage import GarbageCollections
from pybroker.broker.app.layout import layout_of
from pybroker.broker.app.machine import SPARE_FILES
from pybroker.broker.app.membership import Membership
from pybroker.broker.app.node import Node
from pybroker.broker.app.presence import Presence
from pybroker.broker.app.security_files import SecurityFiles
from pybroker.broker.app.step_down import leave_lock_to_others
from pybroker.broker.app.stores import MEMORY_STORE, is_database
from pybroker.broker.app.systemd import ServiceNotifier, open_notifier
from pybroker.broker.app.this_member import ThisMember
from pybroker.broker.app.tls_files import ListenerCertificates, make_certificates
from pybroker.broker.domain.addresses import is_loopback
from pybroker.broker.domain.errors import ConfigError, LockNotHeld, StoreUnavailable
from pybroker.broker.domain.role import Role
from pybroker.store.directories import has_data_files
from pybroker.store.journal.writer import SWITCH_INTERVAL_SECONDS
from pybroker.store.members import read_members
from pybroker.transports import connection

if TYPE_CHECKING:  # imported when the settings ask for it
    from pybroker.broker.app.management import Management
    from pybroker.broker.app.replication import Replication

_log = logging.getLogger(__name__)

_BUILD = f"pybroker {__version__}" if connection.__file__.endswith(".py") else f"pybroker {__version__}, compiled"

_AGAIN_SECONDS = 1.0
"""The pause between two runs, for a database that accepts connections but fails, and for two masters that compete for
the journal."""

_CLEAR_SECONDS = 0.05
"""The pause otherwise: after it closing connections and short timers no longer refer to the former term."""

_Shown = Union[Membership, Presence, "Management"]
"""The classes that publish the state of a member: to other members, or to load balancers."""


def serve(config: Config) -> None:
    """Run a member in the foreground until SIGTERM or SIGINT.

    Raises:
        BrokerError: it cannot run; most problems are found before anything is changed on disk.
    """
    preflight.check(config)
    _allow_files(config.connections_max + SPARE_FILES)
    if config.has_passwords:
        _write_no_core()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    name, make_loop = eventloop.choose(config.event_loop)
    _log.info("event loop: %s", name)
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(_serve_collecting(config))


async def _serve_collecting(config: Config) -> None:
    """Run the members with garbage collections that are short, and a log that reports what it left out."""
    collections = GarbageCollections()
    collections.begin()
    watching = [asyncio.create_task(each) for each in (collections.watch(), logs.watch())]
    try:
        await _serve(config)
    finally:
        for each in watching:
            each.cancel()
        collections.end()


async def _serve(config: Config) -> None:
    if config.store == MEMORY_STORE:
        _log.info("%s on a store in memory: messages end with this process", _BUILD)
        await _run_members(config, None)
        return
    if is_database(config.store):
        await _serve_database(config)
        return
    schedulers.warn(config)
    where = layout_of(config)
    if where.is_new():
        _log.warning("there is no store in %s yet: creating a new, empty one", where.root.absolute())
    elif config.scheduler_store is not None and config.scheduler and not has_data_files(config.scheduler_store):
        _log.warning(
            "there is no store of scheduled messages in %s yet: creating a new, empty one",
            config.scheduler_store.absolute(),
        )
    try:
        where.root.mkdir(exist_ok=True)
        where.journal.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"cannot create {where.journal}: {error.strerror}", path=str(where.journal)) from error
    try:
        membership = Membership(
            where.members, config.name, str(wiring.lock_name(config)), config.lock, where.journal_name
        )
    except StoreUnavailable as error:
        if config.lock != "flock":
            raise
        _log.warning("status will not know this member: %s", error)  # a file system without byte range locks
        await _run_members(config, None)
        return
    try:
        # Again, because a tool that locked the store since then may not have seen this member.
        preflight.check_other_locks(config)
    except BaseException:
        membership.close()
        raise
    _log.info("%s: member %s of %s", _BUILD, membership.name, config.store)
    _warn_of_loopback(config, where.members)
    renewal = asyncio.create_task(membership.renew())
    try:
        await _run_members(config, membership)
    finally:
        renewal.cancel()
        membership.close()


def _warn_of_loopback(config: Config, members: Path) -> None:
    """Warn of a loopback address if there are members on other machines, because clients there cannot connect."""
    if not all(is_loopback(host) for host in config.hosts):
        return
    hosts = {entry.member.host for entry in read_members(members) if entry.alive and entry.member is not None}
    if others := sorted(hosts - {socket.gethostname()}):
        _log.warning(
            "this member listens on %s, where clients on other machines cannot reach it, though members are on %s: "
            "set bind, for example to 0.0.0.0",
            ", ".join(sorted(config.hosts)),
            ", ".join(others),
        )


async def _serve_database(config: Config) -> None:
    presence = Presence(config)
    _log.info("%s: member %s, with %s", _BUILD, presence.name, wiring.lock_name(config))
    database.warn_of_unused(config)
    renewal = asyncio.create_task(presence.renew())
    try:
        await _run_members(config, presence)
    finally:
        renewal.cancel()
        presence.close()


async def _run_members(config: Config, shown: Membership | Presence | None) -> None:
    """Run until a stop is requested, with certificates, users and rules that may be replaced."""
    certificates = make_certificates(config)
    security = SecurityFiles(config)
    notifier = open_notifier(config.stop_timeout)  # before there is a child process
    management = await _open_management(config, security)
    member = ThisMember(config, security, shown if isinstance(shown, Membership) else None)
    member.own.management = "" if management is None else management.url
    if isinstance(shown, Presence):
        shown.management = member.own.management
    watching = [asyncio.create_task(security.watch())]
    if config.store != MEMORY_STORE:
        watching.append(asyncio.create_task(member.watch.run()))
    if notifier is not None:
        watching.append(asyncio.create_task(notifier.run()))
    if management is not None:
        watching.append(asyncio.create_task(management.run()))
    if certificates is not None:
        certificates.warn(time.time())
        watching.append(asyncio.create_task(certificates.watch()))
    replication: Replication | None = None
    try:
        if config.replicate is not None:
            replication = await _take_part(config, shown, member)
            if replication is None:
                return
        await _run_repeatedly(config, member, shown, management, certificates, security, notifier, replication)
        if replication is not None and replication.failure is not None:
            raise replication.failure
    finally:
        if replication is not None:
            await replication.stop()
        for each in watching:
            each.cancel()
        await asyncio.to_thread(member.close)
        if notifier is not None:
            notifier.close()


async def _take_part(config: Config, shown: Membership | Presence | None, member: ThisMember) -> "Replication | None":
    """Begin to take part in a replicated cluster; None if a stop was requested before that."""
    from pybroker.broker.app import replica_join
    from pybroker.broker.app.replica_figures import replica_figures
    from pybroker.broker.app.replica_report import replica_report
    from pybroker.broker.app.replica_requests import ReplicaRequests
    from pybroker.broker.app.replica_wiring import make_replication

    assert isinstance(shown, Membership), "a replicated store is in a directory"
    inquiry: replica_join.MasterInquiry | None = None
    if replica_join.names_master(config):
        inquiry = replica_join.MasterInquiry(config, shown.name)
        shown.own.replica = inquiry.report
        shown.refresh()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, inquiry.stop)
        learned = await inquiry.learn()
        if learned is None:
            return None
        config = learned
    replication = await make_replication(config, shown.name)
    shown.own.replica = partial(replica_report, replication)
    member.replica_figures = partial(replica_figures, replication)
    replication.on_change = shown.refresh
    await replication.start()
    if inquiry is not None and inquiry.is_stopping:  # the signal came after the wait: no node takes it from here on
        await replication.stop()
        return None
    requests = ReplicaRequests(replication, shown.name, layout_of(config).root)
    replication.run_beside(requests.run())
    return replication


async def _open_management(config: Config, security: SecurityFiles) -> "Management | None":
    if config.health is None and config.management is None:
        return None
    from pybroker.broker.app.management import open_management

    return await open_management(config, security)


async def _run_repeatedly(
    config: Config,
    member: ThisMember,
    entry: Membership | Presence | None,
    management: "Management | None",
    certificates: ListenerCertificates | None,
    security: SecurityFiles,
    notifier: ServiceNotifier | None,
    replication: "Replication | None" = None,
) -> None:
    """Run a member, and again as standby after it lost its lock, or gave it to another member on request.

    So does a master whose database failed, or a standby that could not reach it to become master: such errors are
    mostly temporary, as permanent ones were found at the start.
    """
    loop = asyncio.get_running_loop()
    membership = entry if isinstance(entry, Membership) else None
    shown = [each for each in (entry, management) if each is not None]
    creatable = wiring.creatable(config)
    while True:
        published = shown if notifier is None else (*shown, notifier)
        node = Node(
            config,
            partial(_publish, published),
            certificates,
            creatable,
            security=security,
            report=member.events,
            may_step_down=member.may_step_down,
            obstacle=member.watch.obstacle,
            replication=replication,
        )
        member.take(node)
        if isinstance(entry, Presence):
            entry.obstacle = node.obstacle
        if management is not None:
            management.manage(node, member.ha_state)
        if notifier is not None:
            notifier.node = node
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, node.stop)
        signals.handle(loop, node, certificates, notifier)
        try:
            await node.run()
        except LockNotHeld as error:
            if node.is_stopping:
                raise
            _log.warning("standing by again after losing the lock: %s", error)
            seconds = _CLEAR_SECONDS if membership is None else _AGAIN_SECONDS
        except StoreUnavailable as error:
            may_pass = is_database(config.store) and (node.has_served or database.is_away(error))
            if node.is_stopping or not may_pass:
                raise
            _log.warning("standing by again after losing the database: %s", error)
            seconds = _AGAIN_SECONDS
        else:
            if node.is_stopping or not node.has_stepped_down:
                return
            _log.info("standing by again after stepping down")
            if replication is None:  # whose election does not elect it at once again
                await leave_lock_to_others(config, lambda: node.is_stopping)  # noqa: B023 (awaited here)
            seconds = _CLEAR_SECONDS
        creatable = node.creatable
        if not await _pauses(node, seconds):
            return
        if membership is not None:
            membership.require_same_lock()
        _free_former_term()


async def _pauses(node: Node, seconds: float) -> bool:
    """Wait before another run; False if a stop was requested."""
    await asyncio.sleep(seconds)
    return not node.is_stopping


def _free_former_term() -> None:
    """Free the memory of an ended term.

    Its parts refer to one another, so only the garbage collector can free them, and the promotion has frozen them.
    The remaining objects, modules and settings, are frozen again, as they never become garbage.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _publish(shown: Sequence[_Shown | ServiceNotifier], role: Role, listeners: list[str], epoch: int) -> None:
    for each in shown:
        each.publish(role, listeners, epoch)


def _write_no_core() -> None:
    """Have a crash leave no core file, which could have passwords that clients have sent."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def _allow_files(needed: int) -> None:
    """Raise the limit on open files to the need of the connections.

    Raises:
        ConfigError: the hard limit is lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= needed or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(
            f"{needed} open files are needed and the limit of this user is {hard}",
            setting="connections_max",
            hint=f"lower it to {max(1, hard - SPARE_FILES)} or raise the limit (`ulimit -Hn`)",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
