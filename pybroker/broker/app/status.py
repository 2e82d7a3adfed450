"""`pybroker status`: the master and the standbys; read from the store alone, on any node, without changes."""

import enum
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pybroker.broker.app.lag import lag_bytes, lag_seconds, sizes_in
from pybroker.broker.app.layout import found_layout
from pybroker.broker.app.logs import instant
from pybroker.broker.app.machine import clock
from pybroker.broker.app.stores import is_in_database
from pybroker.broker.app.wiring import is_locked, lock_paths
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.replica.reports import MemberProgress
from pybroker.broker.domain.role import Role
from pybroker.counted import counted
from pybroker.locks.file import holder
from pybroker.store.directories import MEMBERS
from pybroker.store.members import SILENT_MS, MemberRecord, MemberStatus, ReplicaReport, as_json, read_members

WAIT_SECONDS = 60
WAIT_STEP_SECONDS = 0.25


class Exit(enum.IntEnum):
    """Exit codes of `pybroker status`, for scripts."""

    MASTER = 0
    STARTING = 3
    """A process holds the lock and does not serve yet, or is not a pybroker."""
    NO_MASTER = 4
    UNREADY_STANDBY = 5
    """A master serves, and a standby reports that it could not, or no other store of its cluster is in sync."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The state of a store and its members."""

    store: str
    lock: str
    locked: bool
    holder_pid: int | None
    members: list[MemberStatus]
    now_ms: int
    disk_free_bytes: int = 0

    @property
    def master(self) -> MemberStatus | None:
        """The living member whose role is master."""
        living = (entry for entry in self.members if entry.alive and entry.member)
        return next((entry for entry in living if entry.member and entry.member.role is Role.MASTER), None)

    @property
    def replica(self) -> ReplicaReport | None:
        """The part of this store's living member in a replicated cluster; None without one."""
        return next((each.member.replica for each in self.members if each.alive and each.member), None)

    @property
    def exit(self) -> Exit:
        """The exit code."""
        if not self.locked:
            return Exit.NO_MASTER
        if self.master is None and self.replica is not None:
            return Exit.MASTER if self.replica.master and self.replica.is_in_sync else Exit.STARTING
        if self.master is None:
            return Exit.STARTING
        if self.replica is not None and self.replica.in_sync < 2:
            return Exit.UNREADY_STANDBY
        unready = any(entry.alive and entry.member and entry.member.obstacle for entry in self.members)
        return Exit.UNREADY_STANDBY if unready else Exit.MASTER

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        master = self.master
        return {
            "store": self.store,
            "lock": self.lock,
            "locked": self.locked,
            "master": master.name if master else None,
            "disk_free_bytes": self.disk_free_bytes,
            "members": [
                {"name": entry.name, "alive": entry.alive, "problem": entry.problem or None}
                | (as_json(entry.member) if entry.member else {})
                for entry in self.members
            ],
        }


def read(store: str) -> Status:
    """Read a store's members and its lock.

    Raises:
        ConfigError: there is no such directory.
    """
    if not Path(store).is_dir():
        raise ConfigError(f"{store} is not a directory", setting="--store", hint="name the directory of the store")
    members = read_members(Path(store) / MEMBERS)
    where = found_layout(store, members)
    locks = list(lock_paths(where.journal).values())
    held = [path for path in locks if is_locked(path)]
    lock, locked = _lock_elsewhere(members, locks) or (str(held[0] if held else locks[0]), bool(held))
    return Status(
        store=store,
        lock=lock,
        locked=locked,
        holder_pid=holder(held[0]) if held == locks[:1] else None,
        members=members,
        now_ms=clock(),
        disk_free_bytes=_free_bytes(where.root),
    )


def wait(store: str, given: str) -> Status:
    """Wait until a replicated store and another one are in sync, or the time is over; return the last state.

    Args:
        store: the store's directory.
        given: `in-sync`, or `in-sync=SECONDS`.

    Raises:
        ConfigError: there is still no such directory, or something else is to be waited for.
    """
    what, _, seconds = given.partition("=")
    if what != "in-sync" or (seconds and not seconds.isdecimal()):
        raise ConfigError(f"{given!r} is not in-sync or in-sync=SECONDS", setting="--wait")
    deadline = time.monotonic() + int(seconds or WAIT_SECONDS)
    while time.monotonic() < deadline:
        # A member that has just been started creates its directory soon.
        replica = read(store).replica if Path(store).is_dir() else None
        if replica is not None and replica.is_in_sync and replica.in_sync > 1:
            break
        time.sleep(WAIT_STEP_SECONDS)
    return read(store)


def _lock_elsewhere(members: Sequence[MemberStatus], locks: Sequence[Path]) -> tuple[str, bool] | None:
    """Return the lock in a database that living members use, and True if one of them holds it.

    The path of a lock file may differ from machine to machine. A member of an earlier version publishes no kind.
    """
    files = {str(path) for path in locks}
    living = [
        member
        for entry in members
        if entry.alive
        and (member := entry.member)
        and (is_in_database(member.lock_kind) if member.lock_kind else member.lock not in files)
    ]
    holding = [member for member in living if member.role is not Role.STANDBY]
    return ((holding or living)[0].lock, bool(holding)) if living else None


def describe(status: Status) -> list[str]:
    """Return the lines of the report, the master first."""
    lines = [_answer(status), *_describe_replica(status), *_describe_load(status)]
    for entry in sorted(status.members, key=lambda entry: (not entry.alive, entry.name)):
        lines.append(f"  {entry.name:<24} {_describe_member(entry, status.now_ms, _lag_of(entry, status))}")
    return lines


def _answer(status: Status) -> str:
    if status.master and status.master.member:
        return f"master: {status.master.name} at {', '.join(status.master.member.listeners) or 'no listener'}"
    if not status.locked:
        return f"no master: {status.lock} is free"
    if status.replica is not None:
        where = f"of cluster {status.replica.cluster}" if status.replica.cluster else "of the cluster"
        names = [each.name for each in status.members if each.alive and each.member and each.member.replica]
        return f"master {where}: {status.replica.master or 'none'}; this store's member is {names[0]}, a standby"
    if any(entry.alive and entry.member and entry.member.role is Role.PROMOTING for entry in status.members):
        return "no master yet: a member is being promoted"
    who = f"process {status.holder_pid}" if status.holder_pid and status.holder_pid > 0 else "another process"
    return f"no pybroker is master, but {who} holds {status.lock}: an ActiveMQ, or a member that is stepping back"


_LAG_SHOWN_MS = 100
"""The length of a turn of the event loop from which `status` says what it did; `--json` always does."""


def _describe_replica(status: Status) -> list[str]:
    """Return what is true now of a replicated cluster: where the messages are, and who would take over."""
    replica = status.replica
    if replica is None or not replica.cluster:
        return [] if replica is None else [f"  replicated: {replica.problem}"]
    lines = [
        f"  replicated: cluster {replica.cluster}, epoch {replica.epoch}, confirmed on "
        f"{counted(replica.in_sync, 'disk')}, at least {replica.minimum}"
    ]
    followers = [f"    {_describe_follower(each)}" for each in replica.members if not each.is_master]
    if status.master is not None:
        lines += followers
        successors = " or ".join(replica.successors) or "NO OTHER until this one returns"
        lines.append(f"    if this master fails, its place is taken by: {successors}")
    elif replica.is_in_sync:
        lines.append("    this store is in sync: it can take over")
    else:
        left = f", {replica.left_bytes:,} bytes left" if replica.left_bytes else ""
        lines.append(f"    this store is NOT in sync{left}, so it cannot take over")
    if status.master is None:
        lines += followers
    if replica.grace_active:
        lines.append("    GRACE: it serves without the election store, as no other member in sync stands meanwhile")
    if replica.problem:
        lines.append(f"    PROBLEM: {replica.problem}")
    return lines


def _describe_follower(member: MemberProgress) -> str:
    damage = f", {counted(member.damaged, 'DAMAGED FILE')}" if member.damaged else ""
    if not member.is_connected:
        return f"{member.name} is not connected{'' if member.is_in_sync else '; NOT a candidate'}{damage}"
    if member.is_in_sync:
        behind = f", {member.lag_seconds:.1f} s behind" if member.lag_seconds else ""
        return f"{member.name} in sync, {member.lag_bytes:,} bytes to be sent{behind}{damage}"
    if member.is_live:
        return f"{member.name} has caught up{damage}"
    return f"{member.name} catches up, {member.left_bytes:,} bytes left; NOT a candidate{damage}"


def _describe_load(status: Status) -> list[str]:
    """Return a line about the master's load, one about a long turn, and one about a full disk or spool."""
    load = status.master.member.load if status.master and status.master.member else None
    if load is None:
        return []
    megabytes = status.disk_free_bytes / 2**20
    free = f"{f'{megabytes / 2**10:,.1f} GB' if megabytes >= 2**10 else f'{megabytes:.0f} MB'} free on the store's disk"
    limit = load.memory_bytes_max
    memory = f"{load.memory_bytes / 2**20:,.0f} of {limit / 2**20:,.0f} MB of memory, " if limit else ""
    spooled = f"{load.spool_bytes / 2**20:,.0f} MB spooled, " if load.spool_bytes else ""
    scheduled = f"{load.scheduled:,} scheduled, " if load.scheduled else ""
    lines = [
        f"  {counted(load.waiting, 'message')} waiting, {load.in_flight:,} in flight, {scheduled}"
        f"{counted(load.connections, 'connection')}, {memory}{spooled}{free}, loop lag {load.loop_lag_ms:,} ms"
    ]
    if load.loop_lag_ms >= _LAG_SHOWN_MS:
        lines.append(f"  LOOP LAG: in the last minute clients waited {load.loop_lag_ms:,} ms for {load.loop_lag_cause}")
    if load.bridges:
        problem = f"; DOWN: {'; '.join(load.bridge_problems)}" if load.bridge_problems else ""
        lines.append(f"  {load.bridges_up} of {counted(load.bridges, 'bridge')} to other brokers up{problem}")
    if load.incoming:
        problem = f"; REFUSED: {'; '.join(load.incoming_problems)}" if load.incoming_problems else ""
        lines.append(f"  {counted(load.incoming, 'bridge')} from other brokers{problem}")
    if load.is_full:
        lines.append("  STORE FULL: persistent messages are refused until consumers, or you, have freed space")
    if load.is_spool_full:
        lines.append(
            "  SPOOL FULL: non-persistent messages stay in memory; the log says whether by spool_limit or the disk"
        )
    return lines


def _lag_of(entry: MemberStatus, status: Status) -> int:
    """Return the bytes that a standby is behind its master; 0 if that is not known."""
    end = status.master.member.journal_end if status.master and status.master.member else None
    followed = entry.member.followed if entry.member else None
    if end is None or followed is None:
        return 0
    return lag_bytes(followed, end, sizes_in(found_layout(status.store, status.members).journal))


def _free_bytes(directory: Path) -> int:
    """Return the bytes that users without privileges can use on a directory's disk."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def _describe_member(entry: MemberStatus, now_ms: int, lag: int) -> str:
    member = entry.member
    if member is None:
        return f"{'alive' if entry.alive else 'gone'}, {entry.problem}"
    where = f"pid {member.pid} on {member.host}"
    if not entry.alive and member.role is Role.STOPPED:
        return f"stopped at {instant(member.updated_ms)}, {where}"
    if not entry.alive:
        return f"gone, was {member.role.lower()} until {instant(member.updated_ms)} or a little later, {where}"
    silent = now_ms - member.updated_ms
    warning = f", SILENT for {silent // 1000} s" if silent > SILENT_MS else ""
    if member.obstacle:
        warning += f", COULD NOT SERVE: {member.obstacle}"
    if member.warnings:
        warning += f", DEGRADED: {'; '.join(member.warnings)}"
    epoch = f", epoch {member.epoch}" if member.role is Role.MASTER else ""
    progress = _describe_followed(member, lag)
    return f"{member.role.lower()} since {instant(member.since_ms)}{epoch}, {where}{progress}{warning}"


def _describe_followed(member: MemberRecord, lag: int) -> str:
    """Return a standby's position in the journal, and how far it is behind: by its own clock, and in bytes."""
    if member.role is not Role.STANDBY:
        return ""
    followed = member.followed
    if followed is None:
        return ", reading the journal"
    seconds = lag_seconds(member) or 0.0
    where = f"db-{followed.file_id}.log at {followed.offset:,}"
    distance = f"{seconds:.1f} s and {counted(lag, 'byte')}" if lag else f"{seconds:.1f} s"
    return f", follows {where}, {distance} behind: {counted(followed.messages, 'message')}"
