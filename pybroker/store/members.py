r"""Members of an installation: one small file per member, beside the shared store.

A member writes its state into `<store>/members/<name>.json` and holds an open-file-description lock on that file for
the life of its process. A reader distinguishes live from dead members by trying the lock, without heartbeats and
without comparing clocks of several machines: a killed member is dead the moment the kernel closes its files (over NFS,
once its lease has run out).

```text
+------------------------------------------------------+-----------+----+
| JSON object, ASCII, the fields of `MemberRecord` and last  | spaces    | \n |
| "crc32": CRC-32 of the same object without that key  | up to …   |    |
+------------------------------------------------------+-----------+----+
<---------------------- a multiple of 4096 bytes, never shrinking ------>
```

A file is rewritten in place, in one write, because the lock is on the inode and a rename would lose it. A reader that
meets a write half way sees a wrong checksum and reads again. The master is not known from here, only from the lock on
the store. ActiveMQ ignores the directory.
"""

import fcntl
import hashlib
import json
import os
import re
import socket
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self, cast

from pybroker import fork_guard
from pybroker.broker.domain.errors import ConfigError, StoreUnavailable
from pybroker.broker.domain.replica.manifest import MalformedFrame
from pybroker.broker.domain.replica.reports import MemberProgress
from pybroker.broker.domain.role import Role

NAME_LENGTH_MAX = 100
FILE_BYTES_MAX = 65_536  # some thousand listeners; a limit because readers take a file whole
MEMBER_COUNT_MAX = 1_000  # files looked at in one directory, and attempts to find a free name

SILENT_MS = 10_000
"""An entry is renewed every two seconds; one this old belongs to a process that hangs or cannot reach the store."""

BRIDGES_SHOWN = 10
"""Most bridges that an entry describes: the file has a limit."""

_BLOCK_BYTES = 4096
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_SUFFIX = ".json"
HISTORY_SUFFIX = ".history"
"""The suffix of a member's history file, beside its entry: see `member_history`."""

# As in `pybroker.locks.file`: the two packages do not import one another.
_F_OFD_GETLK, _F_OFD_SETLK = 36, 37
_FLOCK = struct.Struct("@hhqqi0q")
_WHOLE_FILE_WRITE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A standby's progress in the journal.

    Attributes:
        file_id: the data file it reads.
        offset: where in it the next record is expected.
        at_ms: when it had last read to the journal's end.
        messages: the store's messages at that time.
        behind_ms: how long it has not reached an end of the journal that its master had published; 0: it has reached
            each, or is of an earlier version.
    """

    file_id: int
    offset: int
    at_ms: int
    messages: int
    behind_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedEnd:
    """The end of a master's journal, including what is not written yet.

    Attributes:
        file_id: the newest data file.
        offset: the end of the newest record in it.
    """

    file_id: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreIdentity:
    """The marks by which two members find out if their directories are the same, also through two NFS mounts.

    Attributes:
        broker_id: the id of the broker that the journal belongs to; empty: the journal has none.
        journal_inode: the inode of the journal's directory.
        scheduler_inode: the inode of the directory of scheduled messages; 0: there is none.
        scheduler_file: the newest data file there; empty: there is none.
        lock_stamp: the time that the lock's holder has written into the lock file, in milliseconds; 0: unknown.
    """

    broker_id: str
    journal_inode: int
    scheduler_inode: int = 0
    scheduler_file: str = ""
    lock_stamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Totals of a master's broker.

    Attributes:
        connections: clients that are connected.
        waiting: messages that wait for a consumer.
        in_flight: messages that consumers were sent and have not acknowledged.
        is_full: the store has no space, and persistent messages are refused.
        memory_bytes: memory that messages take, as `memory_limit` counts it.
        memory_bytes_max: that limit; 0: unknown, from an earlier version.
        spool_bytes: disk space that spooled messages take.
        is_spool_full: the spool takes no more messages: the limit or the disk is full.
        scheduled: scheduled messages; 0 from an earlier version.
        loop_lag_ms: the longest turn of the event loop in the last minute, in milliseconds.
        loop_lag_cause: what that turn did.
        reconnections: connections of clients that were connected before, since it became master.
        bridges: the bridges to other brokers.
        bridges_up: those of them that work.
        bridge_problems: the first bridges that do not work, `BRIDGES_SHOWN` at most, and why.
        incoming: the bridges that other brokers have opened to this one.
        incoming_problems: the first of them that it takes for clients, as many at most, and why.
    """

    connections: int
    waiting: int
    in_flight: int
    is_full: bool
    memory_bytes: int = 0
    memory_bytes_max: int = 0
    spool_bytes: int = 0
    is_spool_full: bool = False
    scheduled: int = 0
    loop_lag_ms: int = 0
    loop_lag_cause: str = ""
    reconnections: int = 0
    bridges: int = 0
    bridges_up: int = 0
    bridge_problems: tuple[str, ...] = ()
    incoming: int = 0
    incoming_problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaReport:
    """A member's part in a replicated cluster, as it knows it.

    Attributes:
        cluster: the name of the cluster; empty until the register was read.
        epoch: of the latest promotion in the cluster.
        master: the name of the member that is the master by the register; empty: none is.
        is_in_sync: this member's store has everything that is confirmed, so that it could take over.
        in_sync: the number of stores that have.
        minimum: how many must have it before a message is acknowledged.
        left_bytes: with a catch-up: about how much of the master's store is still to be copied.
        members: the members as the master sees them, the master first; none if it is not known.
        successors: the names of those that could take over.
        grace_active: it is a master whose lease is over, and goes on as all other members in sync promise not to stand.
        problem: what keeps it from being in sync, or the election store from being asked; empty: nothing.
    """

    cluster: str
    epoch: int
    master: str
    is_in_sync: bool
    in_sync: int
    minimum: int
    left_bytes: int = 0
    members: tuple[MemberProgress, ...] = ()
    successors: tuple[str, ...] = ()
    grace_active: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """A member's published state. Times are milliseconds since the epoch by its clock.

    Attributes:
        name: unique in the installation; the name of its file.
        role: its role.
        pid: its process on its host.
        host: where it runs.
        version: of pybroker.
        since_ms: when it took the role.
        started_ms: when the process started.
        updated_ms: when this was written.
        epoch: of its last promotion, 0 before the first.
        promotions: how often it became master since it started.
        listeners: the addresses it serves; none unless it is master.
        lock: the lock of a master.
        lock_kind: the setting `lock`, by which all members of a store have to agree; empty from an earlier version.
        journal: the name of the journal's directory in the store's, `.` for that one itself; empty from an earlier
            version, and where there is none.
        obstacle: why it could not serve if it became master now, in words; empty when nothing is known.
        obstacles: the same, each reason by itself.
        warnings: what is wrong without keeping it from becoming master.
        kinds: the kinds of all these reasons, the obstacles first: the words of `app.pair_judgement`.
        followed: how far it has followed the journal as a standby; None for any other, and before it has read it once.
        load: its broker's totals as a master; None for any other.
        journal_end: the end of its journal as a master; None for any other, and without a journal.
        lock_since_ms: when it took the lock; 0: it does not hold it.
        lock_confirmed_ms: when it last found that it still holds the lock; 0: it does not.
        settings: short digests, by name, of those settings that have to be the same on all members and are not at their
            defaults, and of users and rules. No password can be found by them.
        identity: the marks of its store; None while it is not examined.
        checked_ms: when it last examined itself and the other members; 0: never.
        clean_ms: when it last found nothing wrong; 0: never.
        management: the address of its management, such as `https://a.example.org:8161`; empty: it has none.
        replica: its part in a replicated cluster; None: it has none.
    """

    name: str
    role: Role
    pid: int
    host: str
    version: str
    since_ms: int
    started_ms: int
    updated_ms: int
    epoch: int = 0
    promotions: int = 0
    listeners: tuple[str, ...] = ()
    lock: str = ""
    lock_kind: str = ""
    obstacle: str = ""
    followed: Followed | None = None
    load: Load | None = None
    obstacles: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    journal_end: PublishedEnd | None = None
    lock_since_ms: int = 0
    lock_confirmed_ms: int = 0
    settings: dict[str, str] = field(default_factory=dict[str, str])
    identity: StoreIdentity | None = None
    checked_ms: int = 0
    clean_ms: int = 0
    management: str = ""
    journal: str = ""
    replica: ReplicaReport | None = None

    @property
    def settings_digest(self) -> str:
        """A digest of `settings`: the same on all members that agree."""
        text = json.dumps(self.settings, sort_keys=True).encode()
        return hashlib.sha256(text).hexdigest()[:16] if self.checked_ms else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """A member as seen by a reader.

    Attributes:
        name: of the member.
        alive: its process runs.
        member: its last published state; None if it has published none yet or the file is damaged.
        problem: the reason why `member` is None, in words; empty otherwise.
        is_certain: its file could be examined; otherwise it may live though `alive` is False.
        written_ms: when its file was written, by the clock of the file system; 0: unknown.
        inode: of its file; 0: unknown.
    """

    name: str
    alive: bool
    member: MemberRecord | None
    problem: str = ""
    is_certain: bool = True
    written_ms: int = field(default=0, compare=False)
    inode: int = field(default=0, compare=False)


_Part = Followed | Load | PublishedEnd | StoreIdentity | ReplicaReport

_PARTS: dict[str, type[_Part]] = {
    "followed": Followed,
    "load": Load,
    "journal_end": PublishedEnd,
    "identity": StoreIdentity,
    "replica": ReplicaReport,
}
"""The fields of a member's state that are objects."""


class MemberFile:
    """A member's own file, claimed for the life of the process.

    Attributes:
        inode: the inode of the file that is held, whatever is at its path now.
    """

    def __init__(self, path: Path, fd: int) -> None:
        """Take over a descriptor that holds the lock; use `claim`. Blocks for the file system."""
        self._path = path
        self._fd = fd
        self.inode = os.fstat(fd).st_ino  # once: NFS asks its server each time, which may hang
        self._size_bytes = _BLOCK_BYTES

    @classmethod
    def claim(cls, directory: Path, name: str | None = None) -> Self:
        """Create or take over a member's file and hold it. The directory is created if its parent exists.

        Args:
            directory: of all members, `<store>/members`.
            name: of the member. None: the host's name or, where a living member has that, `<host>-2`, `<host>-3`, …

        Raises:
            ConfigError: a living member has the name, or it is no name.
            StoreUnavailable: the directory or the file cannot be written.
        """
        try:
            directory.mkdir(exist_ok=True)
            for candidate in [_valid(name)] if name is not None else _host_names():
                path = directory / (candidate + _SUFFIX)
                fd = _open_and_lock(path)
                if fd is not None:
                    os.ftruncate(fd, 0)  # or a dead member's state would pass for ours until we publish
                    return cls(path, fd)
        except OSError as error:
            raise _unavailable(directory, "cannot claim a member file", error) from error
        raise ConfigError(
            f"a living member has the name {name or _host_name()}",
            setting="name",
            hint="give each member of the installation a unique name, or stop the other one first",
        )

    @property
    def name(self) -> str:
        """The member's name."""
        return self._path.name.removesuffix(_SUFFIX)

    def publish(self, member: MemberRecord) -> None:
        """Write the member's state and sync it, so that other machines see it too. Blocks for one disk sync.

        Raises:
            ConfigError: it has so many listeners that it does not fit into `FILE_BYTES_MAX`.
            StoreUnavailable: it could not be written.
        """
        assert member.name == self.name, "a member publishes itself only"
        block = _encode(member, self._size_bytes)
        try:
            written = os.pwrite(self._fd, block, 0)
            os.fdatasync(self._fd)
        except OSError as error:
            raise _unavailable(self._path, "cannot write the member file", error) from error
        if written != len(block):
            raise StoreUnavailable(f"{self._path}: wrote {written} of {len(block)} bytes", path=str(self._path))
        self._size_bytes = len(block)

    def close(self) -> None:
        """Release the lock: to readers the member is dead from now on. The file stays until it is pruned."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            fork_guard.close(fd)


def as_json(member: MemberRecord) -> dict[str, Any]:
    """Return a member's state as an object of JSON."""
    values = asdict(member)
    if member.replica is not None:
        values["replica"]["members"] = [each.as_json() for each in member.replica.members]
    return values


def read_members(directory: Path) -> list[MemberStatus]:
    """List the members by name, the dead ones included. Creates and changes nothing; damage is reported, not raised.

    Raises:
        StoreUnavailable: the directory cannot be read. A missing one only means that there are no members.
    """
    return [status for path in _member_paths(directory) if (status := _read(path)) is not None]


def prune(directory: Path, *, older_than_ms: int, now_ms: int) -> list[str]:
    """Delete files of dead members that were last written more than `older_than_ms` ago by the file system's clock.

    Returns:
        The names that are gone.

    Raises:
        StoreUnavailable: a file cannot be deleted.
    """
    return [
        path.name.removesuffix(_SUFFIX)
        for path in _member_paths(directory)
        if _prune(path, before_ms=now_ms - older_than_ms)
    ]


# ---------------------------------------------------------------- names and paths


def _valid(name: str) -> str:
    if len(name) > NAME_LENGTH_MAX or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name[: NAME_LENGTH_MAX + 1]!r} cannot be a member's name",
            setting="name",
            hint=f"use 1 to {NAME_LENGTH_MAX} letters, digits, dots, underscores and hyphens, "
            "the first a letter or digit",
        )
    return name


def _host_name() -> str:
    """Return the host's name as a member's name, short enough for a number after it."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).lstrip("._-")[: NAME_LENGTH_MAX - 5] or "member"


def _host_names() -> Iterator[str]:
    host = _host_name()
    yield host
    for number in range(2, MEMBER_COUNT_MAX + 1):
        yield f"{host}-{number}"


def _member_paths(directory: Path) -> Iterable[Path]:
    try:
        paths = [path for path in directory.iterdir() if path.suffix == _SUFFIX and _NAME.fullmatch(path.stem)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unavailable(directory, "cannot list the members", error) from error
    return sorted(paths)[:MEMBER_COUNT_MAX]


# ---------------------------------------------------------------- files


def _open_and_lock(path: Path) -> int | None:
    """Open a member's file and lock it; None when a living member has it."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        locked = False
        try:
            locked = _try_lock(fd)
            if not locked:
                return None
            if _is_at_path(fd, path):  # else pruned between the two calls: the locked file has no name any more
                fork_guard.guard(fd)
                return fd
            locked = False
        finally:
            if not locked:
                os.close(fd)


def _read(path: Path) -> MemberStatus | None:
    """Read one member's file; None if it has been pruned since the listing."""
    name = path.name.removesuffix(_SUFFIX)
    alive = False
    try:
        # Without O_NONBLOCK a pipe under this name would block the reader forever.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            alive = _is_locked(fd)
            member, status = _decode_torn(fd, name)
        finally:
            os.close(fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        return MemberStatus(name=name, alive=alive, member=None, problem=problem, is_certain=False)
    except ValueError as error:
        return MemberStatus(name=name, alive=alive, member=None, problem=str(error))
    written_ms = status.st_mtime_ns // 1_000_000
    return MemberStatus(name=name, alive=alive, member=member, written_ms=written_ms, inode=status.st_ino)


def _prune(path: Path, *, before_ms: int) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            # Age is checked first: locking a file for a moment could cost a member that is just starting its name.
            old = os.fstat(fd).st_mtime_ns < before_ms * 1_000_000
            if not (old and _try_lock(fd) and _is_at_path(fd, path)):
                return False
            path.unlink()
            path.with_suffix(HISTORY_SUFFIX).unlink(missing_ok=True)
        finally:
            os.close(fd)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unavailable(path, "cannot prune the member file", error) from error
    return True


def _try_lock(fd: int) -> bool:
    try:
        fcntl.fcntl(fd, _F_OFD_SETLK, _WHOLE_FILE_WRITE)
    except (BlockingIOError, PermissionError):  # EAGAIN or, on some systems, EACCES
        return False
    return True


def _is_locked(fd: int) -> bool:
    answer = fcntl.fcntl(fd, _F_OFD_GETLK, _WHOLE_FILE_WRITE)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def _is_at_path(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _unavailable(path: Path, what: str, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        f"{path}: {what}: {error.strerror}",
        path=str(path),
        hint="check that the store is mounted and that the broker's user may write there",
    )


# ---------------------------------------------------------------- format


def _encode(member: MemberRecord, size_bytes_min: int) -> bytes:
    values = as_json(member)
    line = json.dumps(values | {"crc32": _crc32(values)}).encode()
    size_bytes = max(size_bytes_min, -(-(len(line) + 1) // _BLOCK_BYTES) * _BLOCK_BYTES)
    if size_bytes > FILE_BYTES_MAX:
        raise ConfigError(
            f"the member's state takes {len(line)} bytes of at most {FILE_BYTES_MAX}",
            setting="listeners",
            hint="configure fewer listeners",
        )
    return line.ljust(size_bytes - 1) + b"\n"


def _decode_torn(fd: int, name: str) -> tuple[MemberRecord, os.stat_result]:
    """Decode a file that its member may be rewriting: a failed read, or one with the time of another, is repeated."""
    before = os.fstat(fd)
    try:
        member = _decode(os.pread(fd, FILE_BYTES_MAX, 0), name)
        if (after := os.fstat(fd)).st_mtime_ns == before.st_mtime_ns:
            return member, after
    except ValueError:
        before = os.fstat(fd)
    return _decode(os.pread(fd, FILE_BYTES_MAX, 0), name), os.fstat(fd)


def _decode(block: bytes, name: str) -> MemberRecord:
    """Decode a member's file, also of a version with other fields than this one.

    Raises:
        ValueError: it is not one, for the reason in the message.
    """
    if not block:
        raise ValueError("nothing was written yet")
    try:
        values: object = json.loads(block)
        if not isinstance(values, dict):
            raise ValueError("damaged: no JSON object")
        record = cast("dict[str, Any]", values)
        checksum = record.pop("crc32", None)
        if checksum != _crc32(record):
            raise ValueError("damaged: wrong checksum")
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError("damaged: no JSON") from None
    if record.get("name") != name:
        raise ValueError("damaged: it is about another member")
    return _member(record)


def _member(record: Mapping[str, Any]) -> MemberRecord:
    try:
        known = _known(MemberRecord, record)
        if missing := _required(MemberRecord) - known.keys():
            raise ValueError(f"without {', '.join(sorted(missing))}")
        known["role"] = Role(known["role"])
        for name in ("listeners", "obstacles", "warnings", "kinds"):
            if name in known:
                known[name] = tuple(known[name])
        if "settings" in known:
            known["settings"] = dict(known["settings"])
        for name, part in _PARTS.items():
            if known.get(name) is not None:
                known[name] = _part(part, known[name])
        return MemberRecord(**known)
    except (TypeError, ValueError, MalformedFrame) as error:
        raise ValueError(f"damaged: {type(error).__name__} {error}") from error


def _part(part: type[_Part], values: object) -> _Part | None:
    """Return a part of a member's state; None if its version does not publish all fields that are needed."""
    if not isinstance(values, dict):
        raise TypeError(f"{part.__name__} is no object")
    known = _known(part, cast("dict[str, Any]", values))
    for name in ("bridge_problems", "incoming_problems", "successors"):
        if name in known:
            known[name] = tuple(known[name])
    if "members" in known:
        known["members"] = tuple(map(MemberProgress.from_json, known["members"]))
    return part(**known) if known.keys() >= _required(part) else None


def _known(of: type[MemberRecord | _Part], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the fields that this version has; a newer one may have more, and an older one fewer."""
    return {each.name: values[each.name] for each in fields(of) if each.name in values}


def _required(of: type[MemberRecord | _Part]) -> set[str]:
    return {each.name for each in fields(of) if each.default is MISSING and each.default_factory is MISSING}


def _crc32(values: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(values).encode())
