"""The whole state of high availability as one object of JSON: for `pybroker status --json`, consoles and monitoring.

| field | meaning |
|---|---|
| `store` | the store, without user and password |
| `store_kind` | `directory`, `database` or `memory` |
| `state` | `healthy`; `degraded`: there are `reasons`; `unknown`: no member has looked yet, or it is in memory |
| `reasons` | what is wrong, each with `member`, `is_obstacle` (the member could not serve), `kind` and `text` |
| `last_clean_check_ms` | when a master or standby last found nothing wrong; null: never |
| `name`, `role`, `since_ms`, `epoch` | of the member that is asked; null if the store is asked from outside |
| `master` | the name of the member that serves; null if there is none |
| `lock` | see below |
| `members` | see below |
| `store_identity` | its marks: `broker_id`, `journal_inode`, `scheduler_inode`, `scheduler_file`, `lock_stamp` |
| `disk_free_bytes` | the space that is free for the store; null if it is not known, as for a database |
| `listeners` | the addresses that the master serves |
| `reconnections` | connections of clients that were connected before, since the master became it; null without one |
| `promotions` | the entries of `history` that are promotions |
| `history` | see below, the newest first, at most 200 |
| `replica` | the part of this store's living member in a replicated cluster, see `replica_json`; null without one |

Of `lock`: `kind` is the setting `lock`; `path` its file, or its place in a database; `is_held`; `holder` the member
that holds it, `another process` if it is none, and null if it is free; `holder_pid` the process of an ActiveMQ on this
machine; `held_since_ms`; `confirmed_ms` when the holder last found that it still holds it.

Each of `members` has `name`, `role`, `is_alive`, `is_silent` (alive, and has not renewed its entry for 10 s), `host`,
`pid`, `version`, `started_ms`, `since_ms`, `age_ms` (of its entry), `epoch`, `promotion_count`, `listeners`,
`lag_bytes` and `lag_seconds` (of a standby), `followed` and `journal_end` (positions: `file_id`, `offset`),
`standby_ready` (a standby that lives, is not silent, has looked, and has no obstacles), `settings_digest` (the same on
members that agree), `obstacles`, `warnings`, `kinds` (of both), `checked_ms`, `clean_ms`, `management` (the address of
its management), and `problem` (why its entry cannot be read). What is not known is null, or an empty list. A kind is
one word of `pair_remedies.REMEDIES`; it is `other` where an earlier version, or a database, shows only the text.

Each entry of `history` has `at_ms`, `member`, `kind` and, by kind:

| kind | fields |
|---|---|
| `role` | `role` that it took, `reason` |
| `promotion` | `epoch`, `phases`, and `total_ms` from the lock to the listeners |
| `degraded` | `role`, `reasons` |
| `healthy` | `role`, `degraded_ms`: for how long it was not |

The `phases` of a promotion are milliseconds: `waiting` for the lock, `following` to its present step, `binding` of the
ports, `opening` of the journal, `loading` of what it has and of scheduled messages, `listening`.

Times are milliseconds since the epoch by the clock of the member that they come from.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pybroker.broker.app.database_status import DatabaseMember, DatabaseStatus
from pybroker.broker.app.database_status import read as read_database
from pybroker.broker.app.lag import lag_bytes, lag_seconds, sizes_in
from pybroker.broker.app.layout import found_layout
from pybroker.broker.app.machine import clock
from pybroker.broker.app.pair_remedies import kinds_and_texts
from pybroker.broker.app.replica_json import reported
from pybroker.broker.app.status import Status
from pybroker.broker.app.status import read as read_directory
from pybroker.broker.app.stores import MEMORY_STORE, is_database
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.role import Role
from pybroker.store.directories import MEMBERS
from pybroker.store.member_history import HISTORY_MAX, Entry, read_history
from pybroker.store.members import SILENT_MS, MemberRecord, MemberStatus, PublishedEnd

HaState = dict[str, Any]
"""The state, as JSON has it."""

OTHER_HOLDER: Final = "another process"


def ha_state(store: str, own: MemberRecord | None = None, history: Sequence[Entry] = ()) -> HaState:
    """Return the state of a store's members. Blocks for the store, or for its database.

    Args:
        store: the setting `store`.
        own: the present state of the member that is asked, which its entry may not have yet; None: no member is asked.
        history: that of this member, for a store that has no place for it.

    Raises:
        ConfigError: there is no such store.
        StoreUnavailable: it cannot be read.
    """
    if store == MEMORY_STORE:
        return of_memory(own, history)
    if is_database(store):
        return of_database(read_database(store), own, history)
    return of_directory(read_directory(store), own)


def of_directory(status: Status, own: MemberRecord | None = None) -> HaState:
    """Return the state of the members of a store in a directory. Blocks for the histories of the members."""
    where = found_layout(status.store, status.members)
    members = [_own_or(entry, own) for entry in status.members]
    master = next((each.member for each in members if _is_serving(each)), None)
    holder = next((each for each in members if _holds_lock(each)), None) if status.locked else None
    shown = [_of_member(each, _end_of(master), status.now_ms, where.journal) for each in members]
    history = [entry | {"member": each.name} for each in members for entry in _history_of(status, each.name)]
    marks = next((each.member.identity for each in members if each.member is not None and _is_serving(each)), None)
    marks = marks or (own.identity if own is not None else None)
    return _assembled(
        own,
        shown,
        history,
        store=status.store,
        store_kind="directory",
        master=master.name if master else None,
        lock={
            "kind": next((each.member.lock_kind for each in members if each.alive and each.member), "") or None,
            "path": status.lock,
            "is_held": status.locked,
            "holder": (holder.name if holder else OTHER_HOLDER) if status.locked else None,
            "holder_pid": status.holder_pid if status.holder_pid and status.holder_pid > 0 else None,
            "held_since_ms": (holder.member.lock_since_ms or None) if holder and holder.member else None,
            "confirmed_ms": (holder.member.lock_confirmed_ms or None) if holder and holder.member else None,
        },
        store_identity=asdict(marks) if marks else None,
        disk_free_bytes=status.disk_free_bytes,
        listeners=list(master.listeners) if master else [],
        reconnections=master.load.reconnections if master and master.load else None,
        replica=None if status.replica is None else reported(status.replica),
    )


def of_database(
    status: DatabaseStatus, own: MemberRecord | None = None, history: Sequence[Entry] = (), now_ms: int = 0
) -> HaState:
    """Return the state of the members of a store in a database, as far as its server shows it."""
    now_ms = now_ms or clock()
    shown = [_of_database_member(each, now_ms) for each in status.members]
    if own is not None:
        mine = _of_member(MemberStatus(name=own.name, alive=True, member=own), None, now_ms, None)
        shown = [mine, *(each for each in shown if each["name"] != own.name)]
    master = status.master
    holds = own is not None and own.lock_since_ms > 0
    return _assembled(
        own,
        shown,
        [entry | {"member": own.name} for entry in history] if own is not None else [],
        store=status.store,
        store_kind="database",
        master=master.name if master else None,
        lock={
            "kind": own.lock_kind or None if own is not None else None,
            "path": f"activemq_lock in {status.store}",
            "is_held": bool(status.holder),
            "holder": _holder_in(status),
            "holder_pid": None,
            "held_since_ms": own.lock_since_ms if own is not None and holds else None,
            "confirmed_ms": own.lock_confirmed_ms or None if own is not None and holds else None,
        },
        store_identity=None,
        disk_free_bytes=None,
        listeners=list(master.listeners) if master else [],
        reconnections=_reconnections_of(own),
    ) | ({"epoch": status.epoch} if own is not None else {})


def of_memory(own: MemberRecord | None, history: Sequence[Entry] = ()) -> HaState:
    """Return the state of a member with a store in memory, which is alone."""
    now_ms = clock()
    entries = [] if own is None else [MemberStatus(name=own.name, alive=True, member=own)]
    is_master = own is not None and own.role is Role.MASTER
    return _assembled(
        own,
        [_of_member(each, None, now_ms, None) for each in entries],
        [entry | {"member": own.name} for entry in history] if own is not None else [],
        store=MEMORY_STORE,
        store_kind="memory",
        master=own.name if own is not None and is_master else None,
        lock={
            "kind": "memory",
            "path": MEMORY_STORE,
            "is_held": own is not None and own.lock_since_ms > 0,
            "holder": own.name if own is not None and own.lock_since_ms else None,
            "holder_pid": None,
            "held_since_ms": own.lock_since_ms or None if own is not None else None,
            "confirmed_ms": own.lock_confirmed_ms or None if own is not None else None,
        },
        store_identity=None,
        disk_free_bytes=None,
        listeners=list(own.listeners) if own is not None else [],
        reconnections=_reconnections_of(own),
    )


# ---------------------------------------------------------------- the parts


def _assembled(
    own: MemberRecord | None,
    members: Sequence[HaState],
    history: Iterable[Entry],
    *,
    replica: HaState | None = None,
    **known: Any,
) -> HaState:
    """Return the state in the order of its description."""
    reasons = [
        {"member": each["name"], "is_obstacle": index < len(each["obstacles"]), "kind": kind, "text": text}
        for each in members
        if each["is_alive"] and not each["is_silent"]
        for index, (kind, text) in enumerate(kinds_and_texts(each["kinds"], each["obstacles"], each["warnings"]))
    ]
    reasons += [
        {
            "member": each["name"],
            "is_obstacle": True,
            "kind": "silent",
            "text": f"{each['name']} has been silent for {each['age_ms'] // 1000} s",
        }
        for each in members
        if each["is_silent"]
    ]
    checked = [each for each in members if each["is_alive"] and each["checked_ms"]]
    newest_first = sorted(history, key=_at_ms, reverse=True)[:HISTORY_MAX]
    first = ("store", "store_kind")
    return {
        **{name: known.pop(name) for name in first},
        "state": "degraded" if reasons else "healthy" if checked else "unknown",
        "reasons": reasons,
        "last_clean_check_ms": max((each["clean_ms"] for each in checked if each["clean_ms"]), default=None),
        "name": own.name if own is not None else None,
        "role": own.role if own is not None else None,
        "since_ms": own.since_ms if own is not None else None,
        "epoch": own.epoch if own is not None else None,
        "master": known.pop("master"),
        "lock": known.pop("lock"),
        "members": list(members),
        **known,
        "promotions": [entry for entry in newest_first if entry.get("kind") == "promotion"],
        "history": newest_first,
        "replica": replica,
    }


def _of_member(entry: MemberStatus, end: PublishedEnd | None, now_ms: int, journal: Any) -> HaState:
    member = entry.member
    if member is None:
        return {"name": entry.name, **_UNKNOWN_MEMBER, "is_alive": entry.alive, "problem": entry.problem or None}
    age_ms = max(0, now_ms - member.updated_ms)
    is_standby = member.role is Role.STANDBY
    followed = member.followed if is_standby else None
    return {
        "name": entry.name,
        "role": member.role,
        "is_alive": entry.alive,
        "is_silent": entry.alive and age_ms > SILENT_MS,
        "host": member.host,
        "pid": member.pid,
        "version": member.version,
        "started_ms": member.started_ms,
        "since_ms": member.since_ms,
        "age_ms": age_ms,
        "epoch": member.epoch,
        "promotion_count": member.promotions,
        "listeners": list(member.listeners),
        "lag_bytes": lag_bytes(followed, end, sizes_in(journal)) if followed is not None and end is not None else None,
        "lag_seconds": lag_seconds(member) if is_standby else None,
        "followed": {"file_id": followed.file_id, "offset": followed.offset} if followed is not None else None,
        "journal_end": asdict(member.journal_end) if member.journal_end is not None else None,
        "standby_ready": _is_ready(entry, member, age_ms) if is_standby else None,
        "settings_digest": member.settings_digest or None,
        "obstacles": list(member.obstacles or filter(None, [member.obstacle])),
        "warnings": list(member.warnings),
        "kinds": [kind.partition(" ")[0] for kind in member.kinds],
        "checked_ms": member.checked_ms or None,
        "clean_ms": member.clean_ms or None,
        "management": member.management or None,
        "problem": None,
    }


_UNKNOWN_MEMBER: Final[HaState] = {
    "role": None,
    "is_alive": False,
    "is_silent": False,
    "host": None,
    "pid": None,
    "version": None,
    "started_ms": None,
    "since_ms": None,
    "age_ms": None,
    "epoch": None,
    "promotion_count": None,
    "listeners": [],
    "lag_bytes": None,
    "lag_seconds": None,
    "followed": None,
    "journal_end": None,
    "standby_ready": None,
    "settings_digest": None,
    "obstacles": [],
    "warnings": [],
    "kinds": [],
    "checked_ms": None,
    "clean_ms": None,
    "management": None,
    "problem": None,
}


def _of_database_member(member: DatabaseMember, now_ms: int) -> HaState:
    return {
        "name": member.name,
        **_UNKNOWN_MEMBER,
        "role": member.role,
        "is_alive": True,
        "host": member.host,
        "since_ms": member.since_ms,
        "listeners": list(member.listeners),
        "standby_ready": not member.obstacle if member.role == Role.STANDBY.value else None,
        "obstacles": [member.obstacle] if member.obstacle else [],
        "checked_ms": now_ms,
        "management": member.management or None,
    }


def _is_ready(entry: MemberStatus, member: MemberRecord, age_ms: int) -> bool:
    could_serve = not (member.obstacle or member.obstacles)
    return entry.alive and age_ms <= SILENT_MS and member.checked_ms > 0 and could_serve


def _own_or(entry: MemberStatus, own: MemberRecord | None) -> MemberStatus:
    """Return the entry of another member as it is, and this member's with its present state."""
    if own is None or entry.name != own.name:
        return entry
    return MemberStatus(name=own.name, alive=True, member=own)


def _is_serving(entry: MemberStatus) -> bool:
    return entry.alive and entry.member is not None and entry.member.role is Role.MASTER


def _holds_lock(entry: MemberStatus) -> bool:
    return entry.alive and entry.member is not None and entry.member.role not in (Role.STANDBY, Role.STOPPED)


def _end_of(master: MemberRecord | None) -> PublishedEnd | None:
    return master.journal_end if master is not None else None


def _history_of(status: Status, name: str) -> list[Entry]:
    """Return a member's history; none if it cannot be read: the rest of the state is worth having without it."""
    try:
        return read_history(Path(status.store) / MEMBERS, name)
    except StoreUnavailable:
        return []


def _holder_in(status: DatabaseStatus) -> str | None:
    if not status.holder:
        return None
    holding = next((each.name for each in status.members if each.role in ("MASTER", "PROMOTING")), None)
    return holding or status.holder


def _reconnections_of(own: MemberRecord | None) -> int | None:
    return own.load.reconnections if own is not None and own.load is not None else None


def _at_ms(entry: Entry) -> float:
    at_ms = entry.get("at_ms")
    return at_ms if isinstance(at_ms, int | float) else 0
