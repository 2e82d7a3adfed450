"""Examines a member for `pybroker doctor`: settings as a start checks them, file systems, locks, clocks, members."""

import contextlib
import logging
import os
import resource
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pybroker.broker.app import database, mounts, preflight, schedulers
from pybroker.broker.app.config import Config
from pybroker.broker.app.layout import layout_of
from pybroker.broker.app.machine import clock
from pybroker.broker.app.mounts import Mount
from pybroker.broker.app.stores import is_database
from pybroker.broker.app.wiring import is_locked, lock_name
from pybroker.broker.domain.errors import BrokerError, ConfigError, StoreUnavailable
from pybroker.broker.domain.replica.operations import Journal
from pybroker.broker.domain.role import Role
from pybroker.locks.file import FileLock
from pybroker.locks.flock import FlockLock
from pybroker.store.members import MemberRecord, read_members
from pybroker.transports.network import discovery
from pybroker.transports.network.probe import ProbeAnswer, ProbeKey, probe

RENEWED_MS: Final = 3_000
"""A living member writes its file within this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another member as this machine sees it.

    Attributes:
        record: what it has published.
        is_alive: its file is locked, as far as this machine can see.
        is_renewed: it writes its file although that is not locked, as far as this machine can see.
        age_ms: the age of its file by the clock of the file system.
        skew_ms: its clock less that of the file system, when it wrote.
    """

    record: MemberRecord
    is_alive: bool
    is_renewed: bool = False
    age_ms: int
    skew_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The results of an examination of this machine and of the store.

    Attributes:
        config: the settings.
        host: the name of this machine.
        refusal: why a member with these settings would not start; None if it would.
        warnings: the warnings of such a start.
        files_max: the number of files that this user's processes may open.
        mount: the file system of the store; None for a store in no directory, or if it is not known.
        scheduler_mount: the file system of the scheduled messages.
        has_locks: True if the file system has the locks that the settings ask for; None if it was not tried.
        lock_problem: what the file system said otherwise.
        is_new: True if the store does not exist yet.
        missing_tables: the names of tables that the first start creates, for a store in a database.
        is_locked: True if a member, or an ActiveMQ, holds the lock of the store.
        free_bytes: the space that is left for this user.
        skew_ms: the clock of this machine less that of the file system.
        members: the members that are known in the store.
        election_problem: why the election store of a replicated cluster cannot be read; empty: it can.
        store_refusal: why the store does not belong into the cluster that is recorded there; empty: it does.
        probes: the brokers that answer at the addresses of network connectors.
    """

    config: Config
    host: str
    refusal: ConfigError | None = None
    warnings: Sequence[str] = ()
    files_max: int = 1 << 20
    mount: Mount | None = None
    scheduler_mount: Mount | None = None
    has_locks: bool | None = None
    lock_problem: str = ""
    is_new: bool = False
    missing_tables: Sequence[str] = ()
    is_locked: bool = False
    free_bytes: int = 1 << 40
    skew_ms: int = 0
    members: Sequence[Neighbour] = field(default_factory=tuple)
    election_problem: str = ""
    store_refusal: str = ""
    probes: Mapping[ProbeKey, ProbeAnswer] = field(default_factory=dict[ProbeKey, ProbeAnswer])

    @property
    def broker_ids(self) -> frozenset[str]:
        """The ids of the broker of this store, as its members have published them."""
        identities = (each.record.identity for each in self.members)
        return frozenset(each.broker_id for each in identities if each is not None and each.broker_id)


def examine(config: Config) -> Facts:
    """Gather the facts. In the store's directory a file is made and removed again, for its locks and its clock.

    Raises:
        BrokerError: the store cannot be read.
    """
    refusal, warnings = _try_start(config)
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    facts: dict[str, Any] = {
        "config": config,
        "host": socket.gethostname(),
        "refusal": refusal,
        "warnings": warnings,
        "is_new": config.is_in_directory and layout_of(config).is_new(),
        "files_max": files_max if files_max != resource.RLIM_INFINITY else 1 << 62,
    }
    if refusal is None and is_database(config.store):
        facts["missing_tables"] = database.tables_to_create(config)
    if config.is_in_directory:
        try:
            if Path(config.store).is_dir():
                facts |= _examine_store(config)
        except OSError as error:
            raise StoreUnavailable(f"cannot look at {config.store}: {error}", path=config.store) from error
    if refusal is None and config.replicate is not None:
        facts |= _examine_election(config, is_running=facts.get("is_locked", False))
    facts["probes"] = probe(
        (each, address)
        for each in config.network
        for target in discovery.parse(each.uri)
        for address in target.addresses
    )
    return Facts(**facts)


def _examine_election(config: Config, *, is_running: bool) -> dict[str, Any]:
    """Look at the election store, and if the store of a member that does not run belongs into its cluster."""
    from pybroker.broker.app import replica_admission, replica_join, replica_wiring  # few brokers are replicated

    if replica_join.names_master(config):
        return {}  # its master knows where the election store is
    register = replica_wiring.make_register(config)
    try:
        where = layout_of(config)
        journals = {Journal.MESSAGES: where.journal, Journal.SCHEDULER: where.scheduler}
        return {"store_refusal": "" if is_running else replica_admission.refusal(where.root, journals, register)}
    except StoreUnavailable as error:
        return {"store_refusal": str(error)}
    except BrokerError as error:
        return {"election_problem": str(error)}
    finally:
        register.close()


def _try_start(config: Config) -> tuple[ConfigError | None, list[str]]:
    """Return why a member would not start, and the warnings that it would log."""
    kept = _Warnings()
    logger = logging.getLogger("pybroker")
    logger.addHandler(kept)
    is_propagated, logger.propagate = logger.propagate, False
    try:
        preflight.check(config, may_change=False)
        if config.is_in_directory and Path(config.store).is_dir():
            schedulers.warn(config)
    except ConfigError as error:
        return error, kept.texts
    except StoreUnavailable as error:
        return ConfigError(str(error).removesuffix(f"; {error.hint}"), setting="store", hint=error.hint), kept.texts
    except BrokerError as error:
        return ConfigError(str(error), setting="store"), kept.texts
    finally:
        logger.removeHandler(kept)
        logger.propagate = is_propagated
    return None, kept.texts


def _examine_store(config: Config) -> dict[str, Any]:
    where = layout_of(config)
    known = (
        mounts.parse(mounts.MOUNTS.read_text(encoding="utf-8", errors="surrogateescape"))
        if mounts.MOUNTS.exists()
        else []
    )
    free = os.statvfs(where.root)
    found: dict[str, Any] = {
        "mount": mounts.mount_of(where.root, known),
        "scheduler_mount": mounts.mount_of(where.scheduler, known) if config.scheduler else None,
        "free_bytes": free.f_bavail * free.f_frsize,
        "is_locked": False,
    }
    with contextlib.suppress(StoreUnavailable):
        found["is_locked"] = is_locked(lock_name(config))
    now_ms = clock()
    try:
        descriptor, name = tempfile.mkstemp(prefix=".doctor-", dir=where.root)
    except OSError as error:
        return found | {"lock_problem": f"no file can be made in {where.root}: {error.strerror}"}
    os.close(descriptor)
    probe = Path(name)
    try:
        file_now_ms = probe.stat().st_mtime_ns // 1_000_000
        found |= _try_locks(config, probe)
    finally:
        probe.unlink()
    return found | {"skew_ms": now_ms - file_now_ms, "members": _neighbours(where.members, file_now_ms)}


def _neighbours(directory: Path, file_now_ms: int) -> list[Neighbour]:
    """Return the members. If one on another machine seems to have ended just now, look whether it goes on writing."""
    seen = read_members(directory)
    doubtful = {
        each.name: each.member.updated_ms
        for each in seen
        if each.member is not None
        and not each.alive
        and each.member.host != socket.gethostname()
        and each.member.role is not Role.STOPPED
    }
    renewed: set[str] = set()
    if any(_written_ms(directory, name) > file_now_ms - RENEWED_MS for name in doubtful):
        time.sleep(RENEWED_MS / 1000)
        renewed = {
            each.name
            for each in read_members(directory)
            if each.member is not None and not each.alive and each.member.updated_ms > doubtful.get(each.name, 1 << 62)
        }
    neighbours: list[Neighbour] = []
    for each in seen:
        if each.member is None:
            continue
        if written_ms := _written_ms(directory, each.name):
            age_ms, skew_ms = file_now_ms - written_ms, each.member.updated_ms - written_ms
            neighbours.append(
                Neighbour(
                    record=each.member,
                    is_alive=each.alive,
                    is_renewed=each.name in renewed,
                    age_ms=age_ms,
                    skew_ms=skew_ms,
                )
            )
    return neighbours


def _written_ms(directory: Path, name: str) -> int:
    """Return when a member's file was written, by the clock of the file system; 0 if it is deleted in this moment."""
    with contextlib.suppress(FileNotFoundError):
        return (directory / f"{name}.json").stat().st_mtime_ns // 1_000_000
    return 0


def _try_locks(config: Config, probe: Path) -> dict[str, Any]:
    """Lock a file, and look whether another descriptor sees it locked."""
    if config.lock not in ("file", "flock"):
        return {}
    lock = FileLock(probe, clock=clock) if config.lock == "file" else FlockLock(probe, clock=clock)
    try:
        if not lock.try_acquire():
            return {"has_locks": False, "lock_problem": "a new file was locked already"}
        try:
            excludes = not type(lock)(probe, clock=clock).try_acquire()
        finally:
            lock.release()
    except BrokerError as error:
        return {"has_locks": False, "lock_problem": str(error)}
    return {"has_locks": excludes, "lock_problem": "" if excludes else "two locks of one file were granted"}


class _Warnings(logging.Handler):
    """Keeps the texts of warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a text."""
        self.texts.append(record.getMessage())
