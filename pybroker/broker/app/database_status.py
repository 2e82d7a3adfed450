"""`pybroker status` of a store in a database, read from the server alone, without changes.

Holder, standbys and master are found by the server's sessions (`pg_locks`, `pg_stat_activity`), whose names have the
member and the purpose: see `session_names`. A session with another name that has the lock is an ActiveMQ's.
"""

import re
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from pybroker.broker.app.logs import instant
from pybroker.broker.app.session_names import (
    SERVES,
    UNABLE,
    Notice,
    read_notice,
    read_obstacle,
    read_session_name,
    short,
)
from pybroker.broker.app.status import Exit
from pybroker.broker.app.wiring import database_url, needs_driver
from pybroker.counted import inflected

DESTINATIONS_MAX = 20
"""The number of listed destinations, the longest first."""

# PostgreSQL leaves in a row's `xmax` the transaction that locked it. A session that is about to wait for the row has
# all other locks of its holder too.
_ROW_HOLDERS = """
SELECT a.pid, a.application_name, coalesce(host(a.client_addr), 'this host'),
  (extract(epoch FROM coalesce(a.xact_start, a.backend_start)) * 1000)::bigint
FROM activemq_lock k
JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = k.xmax AND l.mode = 'ExclusiveLock' AND l.granted
JOIN pg_stat_activity a USING (pid)
WHERE k.id = 1
"""
# The two numbers are those of the advisory lock.
_ADVISORY_HOLDERS = """
SELECT a.pid, a.application_name, coalesce(host(a.client_addr), 'this host'),
  (extract(epoch FROM a.backend_start) * 1000)::bigint
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.classid = %s AND l.objid = %s AND l.granted
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_SESSIONS = """
SELECT pid, application_name, coalesce(host(client_addr), 'this host'),
  (extract(epoch FROM backend_start) * 1000)::bigint, query
FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'pybroker %%' AND pid <> pg_backend_pid()
ORDER BY backend_start
"""
# A lease's id has the host.
_LEASE = """
SELECT broker_name, time FROM activemq_lock
WHERE id = 1 AND broker_name IS NOT NULL AND time > extract(epoch FROM clock_timestamp()) * 1000
"""
_WAITING = """
SELECT container, count(*) FROM activemq_msgs WHERE xid IS NULL GROUP BY container ORDER BY 2 DESC, 1 LIMIT %s
"""

_LEASER: Final = re.compile(r"(?:(.*)@)?.+-\d+-[0-9a-f]{32}")
"""The holder id of a pybroker's lease, `NAME@HOST-PID-UUID`. That of an ActiveMQ is its `leaseHolderId` or its name."""

_HIDDEN = (None, "", "<insufficient privilege>")
"""Placeholders for a session's statement: shown to other roles, and where the server does not track statements."""

Rows = Sequence[tuple[Any, ...]]
"""The rows of a query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseMember:
    """A member, as the server sees it.

    Attributes:
        name: its name.
        role: MASTER, PROMOTING or STANDBY.
        host: the host of its session.
        since_ms: the time at which a master took its role, by its own clock; of others, the beginning of their session
            or of the transaction that has the lock.
        listeners: the addresses of a master; none if the server hides them from this role.
        obstacle: the reason why a standby could not serve if it became master now; empty if none is known.
        management: the address of a master's management; empty if it has none, or the server hides it from this role.
    """

    name: str
    role: str
    host: str
    since_ms: int
    listeners: tuple[str, ...] = ()
    obstacle: str = ""
    management: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseStatus:
    """The state of a store in a database.

    Attributes:
        store: its URL, without user and password.
        holder: a description of the lock's holder; empty if there is none.
        epoch: the number of take-overs by pybrokers.
        members: those that are alive.
        waiting: messages by destination, of the longest ones.
        activemq: the name of an ActiveMQ that holds the lease; empty if none does. Members may have the same name.
    """

    store: str
    holder: str
    epoch: int
    members: list[DatabaseMember]
    waiting: dict[str, int]
    activemq: str = ""

    @property
    def master(self) -> DatabaseMember | None:
        """The member that serves."""
        return next((member for member in self.members if member.role == "MASTER"), None)

    @property
    def exit(self) -> Exit:
        """The exit code."""
        if not self.holder:
            return Exit.NO_MASTER
        if self.master is None:
            return Exit.STARTING
        return Exit.UNREADY_STANDBY if any(member.obstacle for member in self.members) else Exit.MASTER

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {
            "store": self.store,
            "lock": f"activemq_lock in {self.store}",
            "locked": bool(self.holder),
            "master": self.master.name if self.master else None,
            "epoch": self.epoch,
            "members": [asdict(member) | {"alive": True} for member in self.members],
            "waiting": self.waiting,
        }


def read(store: str) -> DatabaseStatus:
    """Read the state from a database. Blocks.

    Raises:
        ConfigError: the URL is not valid, or the driver is not installed.
        StoreUnavailable: it cannot be reached or read.
    """
    with needs_driver("a store in a database", "--store"):
        from pybroker.locks.postgres.advisory import KEY
        from pybroker.store.jdbc.postgres import DatabaseConnection

    connection = DatabaseConnection(database_url(store, socket.gethostname(), "status"))
    try:
        ((lock, messages, epochs),) = connection.rows(
            "SELECT to_regclass('activemq_lock'), to_regclass('activemq_msgs'), to_regclass('pybroker_epoch')"
        )
        return assembled(
            connection.name,
            holders=[*(connection.rows(_ROW_HOLDERS) if lock else []), *connection.rows(_ADVISORY_HOLDERS, KEY)],
            lease=connection.rows(_LEASE) if lock else [],
            sessions=connection.rows(_SESSIONS),
            epoch=connection.rows("SELECT epoch FROM pybroker_epoch") if epochs else [],
            waiting=connection.rows(_WAITING, (DESTINATIONS_MAX,)) if messages else [],
        )
    finally:
        connection.close()


def assembled(store: str, *, holders: Rows, lease: Rows, sessions: Rows, epoch: Rows, waiting: Rows) -> DatabaseStatus:
    """Return the status from the rows of the queries above. Pure."""
    ids = {name: _LEASER.fullmatch(name) for name, _ in lease}
    leasers = {short(found[1] or "") for found in ids.values() if found}
    serving, obstacles = _serving(sessions), _obstacles(sessions)
    won = {pid: int(since) for pid, _, _, since in holders}
    members: list[DatabaseMember] = []
    for pid, application, host, since, _ in sessions:
        shown, purpose = read_session_name(application)
        if not shown or purpose:
            continue
        is_holder = pid in won or shown in leasers
        notice = serving.get(shown) if is_holder else None
        members.append(
            DatabaseMember(
                name=notice.member if notice else shown,
                role=("MASTER" if notice else "PROMOTING") if is_holder else "STANDBY",
                host=host,
                since_ms=notice.since_ms if notice else won.get(pid, int(since)),
                listeners=notice.addresses if notice else (),
                management=notice.management if notice else "",
                obstacle="" if is_holder else obstacles.get((shown, host), ""),
            )
        )
    names = [name for name, _ in lease]
    names += [
        f"{application or 'a session'} from {host} (server process {pid})" for pid, application, host, _ in holders
    ]
    return DatabaseStatus(
        store=store,
        holder=names[0] if names else "",
        epoch=epoch[0][0] if epoch else 0,
        members=members,
        waiting=dict(waiting),
        activemq=next((name for name, found in ids.items() if not found), ""),
    )


def _serving(sessions: Rows) -> dict[str, Notice]:
    """Return the notices of the members that serve, by their names in sessions.

    If the server hides the notice, a master counts as serving while the session of its notice exists.
    """
    serving: dict[str, Notice] = {}
    for _, application, _, since, statement in sessions:
        member, purpose = read_session_name(application)
        if purpose == SERVES:
            found = read_notice(statement)
            if found is not None:
                serving[member] = found
            elif statement in _HIDDEN:
                serving[member] = Notice(member, int(since), ())
    return serving


def _obstacles(sessions: Rows) -> dict[tuple[str, str], str]:
    """Return the obstacles of standbys, by their names in sessions and their hosts."""
    obstacles: dict[tuple[str, str], str] = {}
    for _, application, host, _, statement in sessions:
        member, purpose = read_session_name(application)
        if purpose == UNABLE:
            hidden = "a reason that the server does not show to this role" if statement in _HIDDEN else ""
            obstacles[member, host] = read_obstacle(statement) or hidden
    return obstacles


def describe(status: DatabaseStatus) -> list[str]:
    """Return the lines of the report, the master first."""
    lines = [_answer(status)]
    for member in sorted(status.members, key=lambda member: (member.role != "MASTER", member.name)):
        epoch = f", epoch {status.epoch}" if member.role == "MASTER" else ""
        what = f"{member.role.lower()} since {instant(member.since_ms)}{epoch}, from {member.host}"
        warning = f", COULD NOT SERVE: {member.obstacle}" if member.obstacle else ""
        lines.append(f"  {member.name:<24} {what}{warning}")
    for destination, count in status.waiting.items():
        lines.append(f"  {count:>12,} {inflected(count, 'message')} on {destination}")
    return lines


def _answer(status: DatabaseStatus) -> str:
    if status.master:
        where = ", ".join(status.master.listeners) or "an address that the server does not show to this role"
        return f"master: {status.master.name} at {where}"
    if not status.holder:
        return f"no master: the lock in {status.store} is free"
    if any(member.role == "PROMOTING" for member in status.members):
        return "no master yet: a member is being promoted"
    if status.activemq:
        return f"no pybroker is master: the ActiveMQ {status.activemq} holds the lease in {status.store}"
    return f"no pybroker is master, but {status.holder} holds the lock in {status.store}: an ActiveMQ?"
