"""Judges a pair from one of its members: whether it could take over, and whether its parts agree.

```text
facts of one look --> findings --> those that have lasted --> obstacles and warnings
                        ^                  ^
                        |  Memory of earlier looks: what moved, and since when
```

An obstacle keeps a standby from serving if it became master now, or from becoming it; anything else is a warning. A
failover passes through states that would be findings if they lasted, such as a lock that no member has; each kind of
finding therefore has a time for which it is left to pass.

The facts come from `pair_examination`; nothing here looks at anything itself.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pybroker import __version__
from pybroker.broker.app.fingerprints import differing
from pybroker.broker.app.lag import SizeOf, lag_bytes
from pybroker.broker.domain.role import Role
from pybroker.store.members import SILENT_MS, Followed, MemberRecord, MemberStatus, StoreIdentity

SKEW_MS: Final = 2_000
"""The difference of two clocks from which on it is a finding."""

BEHIND_SECONDS: Final = 5.0
"""The time in which a follower reaches an end of the journal that its master has published."""

READING_SECONDS: Final = 60.0
"""The time in which a standby reads the journal for the first time; a longer one is a finding, though it goes on."""

LASTING_SECONDS: Final = 3.0
"""The time for which most findings are left to pass: longer than any take-over but those of very long backlogs."""

_SKEW_LOOKS: Final = 2
"""A clock is judged by so many entries in a row: one may have been written late."""

_SHOWN_MAX: Final = 8
"""The names of settings that one finding lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFacts:
    """The facts of one look.

    Attributes:
        role: the role of this member.
        name: its name.
        now: seconds of a clock without steps.
        directory: the store's, for texts; empty: it has none, and no members are known.
        port_problem: the reason why it could not listen; empty if it could.
        store_problem: the reason why lock file or directory cannot be used; empty if they can.
        journal_problem: the reason why it cannot follow the journal; empty if it can.
        followed: how far it has followed the journal.
        members: the entries of all members.
        inode: of its own entry when it began; 0: it has none.
        lock: the lock, for texts.
        is_locked: True if any process holds the lock file; None for a lock in a database.
        lock_seconds: the time after which a standby has won a lock that was left.
        unconfirmed_seconds: of a master, the time since the lock was confirmed last.
        unconfirmed_seconds_max: the time within which it is confirmed.
        identity: the marks of the store; None: it has no marks, or they cannot be read.
        has_stable_inodes: False on file systems that give files another inode on each machine.
        has_scheduler: it serves scheduled messages.
        has_journal: there are data files.
        settings: digests of settings, users and rules.
        size_of: returns the length of a data file.
    """

    role: Role
    name: str
    now: float
    directory: str
    port_problem: str = ""
    store_problem: str = ""
    journal_problem: str = ""
    followed: Followed | None = None
    members: Sequence[MemberStatus] = ()
    inode: int = 0
    lock: str = "lock"
    is_locked: bool | None = None
    lock_seconds: float = 0.0
    unconfirmed_seconds: float = 0.0
    unconfirmed_seconds_max: float = 10.0
    identity: StoreIdentity | None = None
    has_stable_inodes: bool = True
    has_scheduler: bool = False
    has_journal: bool = True
    settings: dict[str, str] = field(default_factory=dict[str, str])
    size_of: SizeOf = lambda file_id: 0


class PairFinding(NamedTuple):
    """One thing that is wrong.

    Attributes:
        kind: names the kind of finding: while it stays the same, the finding is the same.
        text: a sentence, with present figures.
        is_obstacle: it keeps the member from serving.
        seconds: the time for which it is left to pass.
    """

    kind: str
    text: str
    is_obstacle: bool = True
    seconds: float = LASTING_SECONDS


class Judgement(NamedTuple):
    """The result of a look.

    Attributes:
        findings: those that have lasted.
        is_clean: there are no others either.
    """

    findings: tuple[PairFinding, ...]
    is_clean: bool


class _Seen(NamedTuple):
    """A member's entry, and when it was first seen with this time."""

    updated_ms: int
    at: float


class PairMemory:
    """Memory of earlier looks."""

    def __init__(self) -> None:
        self.has_others = False
        """True once another member was seen: a single broker has no pair that could be degraded."""
        self._role: Role | None = None
        self._role_at = 0.0
        self._seen: dict[str, _Seen] = {}
        self._skews: dict[str, deque[int]] = {}
        self._since: dict[str, float] = {}
        self._end: tuple[int, int] | None = None
        self._end_at = 0.0
        self._position: tuple[int, int] = (0, 0)
        self._moved_at = 0.0

    def take(self, facts: PairFacts) -> None:
        """Note what a look shows."""
        if facts.role is not self._role:
            self._role, self._role_at = facts.role, facts.now
            self._since, self._end = {}, None
        own = next((each for each in facts.members if each.name == facts.name), None)
        for each in facts.members:
            if each.name == facts.name or each.member is None:
                continue
            self.has_others = True
            seen = self._seen.get(each.name)
            if seen is None or seen.updated_ms != each.member.updated_ms:
                self._seen[each.name] = _Seen(each.member.updated_ms, facts.now)
                self._note_skew(own, each)
        self._note_position(facts)

    def role_seconds(self, facts: PairFacts) -> float:
        """Return for how long the member has had its role."""
        return facts.now - self._role_at

    def silent_seconds(self, facts: PairFacts, entry: MemberStatus) -> float:
        """Return for how long an entry has not been renewed, without comparing clocks of two machines."""
        seen = self._seen.get(entry.name)
        return 0.0 if seen is None else facts.now - seen.at

    def skew_ms(self, name: str) -> int:
        """Return the smallest difference between a member's clock and this one in its last entries; 0 while unknown."""
        skews = self._skews.get(name)
        return min(skews, key=abs) if skews is not None and len(skews) == _SKEW_LOOKS else 0

    def behind_seconds(self, facts: PairFacts) -> float:
        """Return for how long the follower has not reached an end that the master had published."""
        return 0.0 if self._end is None else facts.now - self._end_at

    def still_seconds(self, facts: PairFacts) -> float:
        """Return for how long the follower has not moved."""
        return facts.now - self._moved_at

    def lasting(self, facts: PairFacts, findings: Sequence[PairFinding]) -> tuple[PairFinding, ...]:
        """Return the findings that have lasted; the times of others are noted."""
        self._since = {each.kind: self._since.get(each.kind, facts.now) for each in findings}
        return tuple(each for each in findings if facts.now - self._since[each.kind] >= each.seconds)

    def _note_skew(self, own: MemberStatus | None, other: MemberStatus) -> None:
        """Note how far another clock is ahead, by the file system's clock, which has written both entries."""
        if own is None or own.member is None or other.member is None or not own.written_ms or not other.written_ms:
            return
        skew_ms = (other.member.updated_ms - other.written_ms) - (own.member.updated_ms - own.written_ms)
        self._skews.setdefault(other.name, deque(maxlen=_SKEW_LOOKS)).append(skew_ms)

    def _note_position(self, facts: PairFacts) -> None:
        """Note when the follower moved, and since when it has not reached an end of the journal."""
        followed, master = facts.followed, the_master(facts)
        position = (followed.file_id, followed.offset) if followed is not None else (0, 0)
        if position != self._position:
            self._position, self._moved_at = position, facts.now
        if self._end is not None and position >= self._end:
            self._end = None
        end = master.journal_end if master is not None else None
        if end is not None and self._end is None and (end.file_id, end.offset) > position:
            self._end, self._end_at = (end.file_id, end.offset), facts.now


def judge(facts: PairFacts, memory: PairMemory) -> Judgement:
    """Return what is wrong with a pair, and has lasted; for a member that changes its role, nothing new."""
    memory.take(facts)
    if facts.role is Role.STANDBY:
        found = list(_of_standby(facts, memory))
    elif facts.role is Role.MASTER:
        found = list(_of_master(facts, memory))
    else:
        found = []
    return Judgement(memory.lasting(facts, found), not found)


def the_master(facts: PairFacts) -> MemberRecord | None:
    """Return the living member that is master, if there is one alone."""
    masters = [each.member for each in facts.members if each.alive and each.member and each.member.role is Role.MASTER]
    return masters[0] if len(masters) == 1 else None


# ---------------------------------------------------------------- a standby


def _of_standby(facts: PairFacts, memory: PairMemory) -> Iterator[PairFinding]:
    if facts.port_problem:
        yield PairFinding("port", facts.port_problem, seconds=0)
    if facts.store_problem:
        yield PairFinding("store", facts.store_problem, seconds=0)
        return
    own = next((each for each in facts.members if each.name == facts.name), None)
    if facts.inode and (own is None or own.inode not in (0, facts.inode)):
        yield PairFinding(
            "place",
            f"{facts.directory} is not the directory in which this member began to wait: its own entry is not there, "
            "so another file system is mounted there now, or none",
            seconds=0,
        )
        return
    if facts.journal_problem:
        yield PairFinding("journal", f"the journal cannot be followed: {facts.journal_problem}")
    if not facts.directory:
        return
    living = [each for each in facts.members if each.alive and each.name != facts.name and each.member is not None]
    masters = [each for each in living if each.member is not None and each.member.role is Role.MASTER]
    if len(masters) > 1:
        yield _two_masters(masters)
    elif masters:
        yield from _beside(masters[0], facts, memory)
    elif not any(each.member is not None and each.member.role in _CHANGING for each in living):
        yield from _without_master(facts)


_CHANGING: Final = (Role.PROMOTING, Role.RELINQUISHING)


def _two_masters(masters: Sequence[MemberStatus]) -> PairFinding:
    names = " and ".join(each.name for each in masters)
    return PairFinding("masters", f"{names} are both master: stop one of them at once", seconds=1.0)


def _without_master(facts: PairFacts) -> Iterator[PairFinding]:
    """Find out why no member is master although this one waits for the lock. An ActiveMQ may be it."""
    seconds = LASTING_SECONDS + facts.lock_seconds
    if facts.is_locked is False:
        yield PairFinding(
            "lock",
            f"{facts.lock} is free, and this member waits for a file of that name which is not there any more",
            seconds=seconds,
        )
        return
    stamp = facts.identity.lock_stamp if facts.identity is not None else 0
    gone = next((each for each in facts.members if not each.alive and stamp and _stamp_of(each) == stamp), None)
    if gone is not None and gone.member is not None:
        yield PairFinding(
            "zombie",
            f"{gone.name} on {gone.member.host} is gone, and the lock {facts.lock} that it took is still held: the "
            "file server has not taken it back",
            seconds=seconds,
        )
    elif facts.is_locked is None:
        yield PairFinding(
            "elsewhere",
            f"the lock {facts.lock} is held, and no member in {facts.directory} is master: the master has its store in "
            "another directory" + ("" if facts.has_journal else ", and here is no journal"),
            is_obstacle=not facts.has_journal,
            seconds=seconds,
        )


def _stamp_of(entry: MemberStatus) -> int:
    identity = entry.member.identity if entry.member is not None else None
    return identity.lock_stamp if identity is not None else 0


def _beside(entry: MemberStatus, facts: PairFacts, memory: PairMemory) -> Iterator[PairFinding]:
    """Compare a standby with its master."""
    master = entry.member
    assert master is not None
    silent = memory.silent_seconds(facts, entry)
    if silent * 1000 > SILENT_MS:
        yield PairFinding(
            "silent",
            f"the master {entry.name} on {master.host} has been silent for {silent:.0f} s and holds the lock: it "
            "hangs, or does not reach the store",
            seconds=0,
        )
    if facts.is_locked is False:
        yield PairFinding(
            "lock", f"{entry.name} is master, and {facts.lock} is free: they are not in the same directory"
        )
    yield from _different_store(master, facts)
    yield from _lag(master, facts, memory)
    if master.checked_ms and (names := differing(facts.settings, master.settings)):
        more = f" and {len(names) - _SHOWN_MAX} more" if len(names) > _SHOWN_MAX else ""
        if "users" in names:
            more += "; copy one users.toml to all members, as each has other hashes of the same passwords"
        yield PairFinding(
            "settings",
            f"not the same here and on the master {entry.name}: {', '.join(names[:_SHOWN_MAX])}{more}",
            is_obstacle=False,
        )
    if master.version != __version__:
        yield PairFinding(
            "version",
            f"the master {entry.name} has version {master.version}, and this member {__version__}",
            is_obstacle=False,
        )
    if abs(skew_ms := memory.skew_ms(entry.name)) > SKEW_MS:
        yield PairFinding(
            "clock",
            f"the clock of the master {entry.name} is {abs(skew_ms) / 1000:.1f} s "
            f"{'ahead of' if skew_ms > 0 else 'behind'} this member's: keep them together, by NTP for example",
            is_obstacle=False,
            seconds=0,
        )


def _different_store(master: MemberRecord, facts: PairFacts) -> Iterator[PairFinding]:
    own, other = facts.identity, master.identity
    if own is None or other is None:
        return
    is_other_id = bool(own.broker_id and other.broker_id and own.broker_id != other.broker_id)
    if is_other_id or (facts.has_stable_inodes and own.journal_inode != other.journal_inode):
        yield PairFinding(
            "identity",
            f"the journal in {facts.directory} is not that of the master {master.name}, but another directory's",
        )
    if not facts.has_scheduler or not other.scheduler_inode:
        return
    if not own.scheduler_inode:
        yield PairFinding(
            "scheduler",
            f"the directory of scheduled messages that the master {master.name} has is not there on this machine",
        )
    elif own.scheduler_inode != other.scheduler_inode and (
        facts.has_stable_inodes or own.scheduler_file != other.scheduler_file
    ):
        yield PairFinding(
            "scheduler",
            f"the directory of scheduled messages is not that of the master {master.name}: after a failover its "
            "messages would be missing",
        )


def _lag(master: MemberRecord, facts: PairFacts, memory: PairMemory) -> Iterator[PairFinding]:
    followed, end = facts.followed, master.journal_end
    if followed is None:
        if memory.role_seconds(facts) > READING_SECONDS and not facts.journal_problem:
            yield PairFinding(
                "reading",
                f"the journal has been read for {memory.role_seconds(facts):.0f} s for the first time, and goes on",
                is_obstacle=False,
                seconds=0,
            )
        return
    behind = memory.behind_seconds(facts)
    if end is None or behind <= BEHIND_SECONDS:
        return
    count = lag_bytes(followed, end, facts.size_of)
    if memory.still_seconds(facts) >= behind:
        yield PairFinding(
            "stuck",
            f"the journal of the master {master.name} grows, and this member has seen nothing of it for {behind:.0f} "
            f"s: {count:,} bytes",
            seconds=0,
        )
    else:
        text = f"this member is {count:,} bytes behind the master's journal, for {behind:.0f} s by now"
        yield PairFinding("behind", text, is_obstacle=False, seconds=0)


# ---------------------------------------------------------------- a master


def _of_master(facts: PairFacts, memory: PairMemory) -> Iterator[PairFinding]:
    """Find what is wrong with the pair as its master sees it: it serves, so these are warnings."""
    if facts.unconfirmed_seconds > facts.unconfirmed_seconds_max:
        yield PairFinding(
            "unconfirmed",
            f"the lock {facts.lock} has not been confirmed for {facts.unconfirmed_seconds:.0f} s",
            is_obstacle=False,
            seconds=0,
        )
    if facts.store_problem:
        yield PairFinding("store", facts.store_problem, is_obstacle=False, seconds=0)
        return
    others = [each for each in facts.members if each.name != facts.name and each.member is not None]
    living = [each for each in others if each.alive]
    masters = [each for each in living if each.member is not None and each.member.role is Role.MASTER]
    if masters:
        own = MemberStatus(name=facts.name, alive=True, member=None)
        yield _two_masters([own, *masters])._replace(is_obstacle=False)
    silent = [each for each in living if memory.silent_seconds(facts, each) * 1000 > SILENT_MS]
    for each in silent:
        yield PairFinding(
            f"silent {each.name}",
            f"{each.name} has been silent for {memory.silent_seconds(facts, each):.0f} s: it hangs, or does not reach "
            "the store",
            is_obstacle=False,
            seconds=0,
        )
    if memory.has_others and len(living) == len(silent):
        text = "there is no standby: no member takes over when this one fails"
        yield PairFinding("alone", text, is_obstacle=False)
