"""Checks before anything is changed on disk; an error names the setting and the remedy."""

import contextlib
import logging
import os
from pathlib import Path

from pybroker.broker.app import (
    database,
    eventloop,
    log_file,
    protocols,
    security_files,
    tls_files,
    wiring,
)
from pybroker.broker.app.config import Config
from pybroker.broker.app.directory import read_password
from pybroker.broker.app.layout import StoreDirectories, layout_of
from pybroker.broker.app.replica_peers import stream_host
from pybroker.broker.app.stores import MEMORY_STORE, is_database
from pybroker.broker.domain.addresses import is_loopback
from pybroker.broker.domain.errors import ConfigError, StoreUnavailable
from pybroker.security.anonymous import AnonymousPolicy
from pybroker.security.ldap_settings import LdapSettings
from pybroker.store.directories import differing_in_case, has_data_files
from pybroker.store.journal.replay import inspect
from pybroker.transports.server import bind

_log = logging.getLogger(__name__)


def check(config: Config, *, may_change: bool = True) -> None:
    """Check certificates, store and ports without changes, except that missing tables of a database are created.

    Ports are checked only if no other member holds the lock: a master on the same machine uses them until it ends.

    Args:
        config: the settings.
        may_change: create missing tables; if not, look only whether a start could.

    Raises:
        ConfigError: a certificate, a key, a file of users or of rules cannot be used, the store is not a usable
            directory, or a port is taken.
        StoreError: the journal or the database cannot be used, or is of a newer format.
    """
    _check_all(config, may_change=may_change)
    if not all(is_loopback(each.host) for each in config.listeners):
        _warn_of_others(config)  # last: where nothing can be served, nothing has to be said of that


def _check_all(config: Config, *, may_change: bool) -> None:
    eventloop.choose(config.event_loop)
    tls_files.make_certificates(config)
    if config.network:
        from pybroker.broker.app import network_tables  # few brokers have any

        network_tables.check_files(config.network)
    protocols.import_libraries(config.listeners)
    if config.users_file is not None:
        security_files.read_users(config)
    if config.ldap is not None:
        _check_ldap(config.ldap)
    if config.has_passwords:
        _check_clear_passwords(config)
    if config.certificate_users_file is not None:
        security_files.read_certificate_users(config)
    if config.rules_file is not None:
        security_files.read_rules(config)
    if config.log_file is not None:
        log_file.check(config.log_file)  # for `pybroker doctor`: a start has opened it by now
    if config.on_ha_event is not None and not os.access(config.on_ha_event, os.X_OK):
        raise ConfigError(
            f"{config.on_ha_event.absolute()} is not a program that this user can run",
            setting="on_ha_event",
            hint="correct the name, or make it executable",
        )
    if config.spool_directory is not None and not os.access(config.spool_directory, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{config.spool_directory.absolute()} is not a directory that this user can write to",
            setting="spool_directory",
            hint="create it, change its owner, or name another",
        )
    if config.replicate is not None:
        from pybroker.broker.app import replica_wiring  # few brokers are replicated

        replica_wiring.check(config)
    if config.store == MEMORY_STORE:
        _check_ports(config)
        return
    if is_database(config.store):
        database.check(config, may_change=may_change)
        return
    where = layout_of(config)
    journal = where.journal
    _check_directory(where.root)
    if not config.create_store and where.is_new():
        raise ConfigError(
            f"{where.root.absolute()} holds no store, and none is to be created",
            setting="store",
            hint="mount the share, correct the name, or set create_store for the first start",
        )
    if journal.is_dir():
        _check_directory(journal)
        inspect(journal)
    _warn_of_other_case(where)
    if config.scheduler_store is not None:
        _check_scheduler_store(config.scheduler_store, where.root)
        if config.scheduler and not config.create_store and not has_data_files(config.scheduler_store):
            raise ConfigError(
                f"{config.scheduler_store.absolute()} holds no scheduled messages' store, and none is to be created",
                setting="scheduler_store",
                hint="mount the share, correct the name, or set create_store for the first start",
            )
    check_other_locks(config)
    if not wiring.is_locked(wiring.lock_name(config)):
        _check_ports(config)


def _warn_of_other_case(where: StoreDirectories) -> None:
    """Warn of a journal next to a new one: ActiveMQ's own file names `kahadb`, and its default is `KahaDB`."""
    if not where.is_new() or where.journal == where.root:
        return
    for other in differing_in_case(where.journal):
        _log.warning(
            "%s has no journal, and %s has one: set `journal_directory = %r` on all members to serve that",
            where.journal.absolute(),
            other.absolute(),
            other.name,
        )


def _check_ldap(settings: LdapSettings) -> None:
    """Check all but the servers, which may be away for now; warn of passwords that go to them in clear."""
    wiring.make_directory(settings)
    read_password(settings.connection_password_file)
    if in_clear := ", ".join([str(url) for url in settings.clear_urls if not is_loopback(url.host)]):
        _log.warning("passwords cross the network in clear to %s: set start_tls, or write ldaps://", in_clear)


def _check_clear_passwords(config: Config) -> None:
    """Refuse passwords that cross a network in clear, or warn of them."""
    in_clear = ", ".join(each.setting for each in config.listeners if each.tls is None and not is_loopback(each.host))
    if not in_clear:
        return
    message = (
        f"passwords cross the network in clear to {in_clear}, which have no TLS and which other machines can reach"
    )
    remedy = "turn them off and open their _ssl counterparts, or set tls in their tables"
    if config.login_needs_tls:
        raise ConfigError(message, setting="login_needs_tls", hint=remedy)
    _log.warning("%s: %s", message, remedy)


def _warn_of_others(config: Config) -> None:
    """Warn that clients of other machines are refused, as there are no users, or may do everything without a login."""
    if config.has_users:
        if config.anonymous_policy is AnonymousPolicy.EVERYWHERE and config.rules_file is None:
            _log.warning("clients without a login may do everything, as there are no rules: set rules_file")
    elif config.anonymous_policy is AnonymousPolicy.EVERYWHERE:
        _log.warning("every client that reaches this broker may connect, as there are no users: set users_file")
    else:
        _log.warning(
            "clients of other machines are refused, as there are no users: set users_file, or anonymous = everywhere"
        )


def check_other_locks(config: Config) -> None:
    """Check that no process holds another kind of lock on the journal, the only sign of an ActiveMQ or of a tool.

    Raises:
        ConfigError: one does.
    """
    for kind, path in wiring.lock_paths(layout_of(config).journal).items():
        is_held = False
        with contextlib.suppress(StoreUnavailable):  # a file system without support has no such locks
            is_held = kind != config.lock and wiring.is_locked(path)
        if is_held:
            raise ConfigError(
                f"this member has {config.lock}, and another process holds {path}: both could be master at once",
                setting="lock",
                hint=f"set `lock = {kind!r}`, or stop the process that holds it",
            )


def _check_ports(config: Config) -> None:
    with contextlib.ExitStack() as bound:
        for each in config.listeners:
            bound.enter_context(bind(each.host, each.port, each.setting))
        if config.replicate is not None:
            bound.enter_context(bind(stream_host(config), config.replicate_port, "replicate_port"))


def _check_scheduler_store(directory: Path, root: Path) -> None:
    """Check the directory of scheduled messages.

    One below the store's may have parents that do not exist, as `DATA/BROKER/scheduler` has in a new `DATA`: a mistyped
    name, or a share that is not mounted, has been noticed by the check of the store's.
    """
    existing = directory.absolute()
    while root.absolute() in existing.parents and not existing.exists():
        existing = existing.parent
    if existing != root.absolute():
        _check_directory(existing, "scheduler_store")


def _check_directory(directory: Path, setting: str = "store") -> None:
    """Check that a directory is writable, or can be created in one that exists.

    Its parent is never created: the name may be mistyped, or a share not mounted.
    """
    existing = directory if directory.exists() else directory.absolute().parent
    if not existing.exists():
        raise ConfigError(
            f"cannot create {directory}: there is no {existing}",
            setting=setting,
            hint="correct the name, mount the share, or create that directory first",
        )
    if not existing.is_dir():
        raise ConfigError(f"{existing} is not a directory", setting=setting, hint="name a directory, or a new one")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{existing} is not writable for this user", setting=setting, hint="change its owner, or name another"
        )
