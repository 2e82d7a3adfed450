"""Members of an election with disks, connections, a register and clocks of their own, around the real `decide`.

Leaner than `world.py`, since nothing here has threads: an event is a call at a time. A frozen member gets its calls
when it thaws, in their order from each source, but the sources in any order. What a member does by itself is here: it
copies the master's records, truncates what the master has not, syncs, and confirms. What it decides is not.
"""

import random
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from pybroker.locks.election import decisions, guardian_process
from pybroker.locks.election.election_state import (
    BeginEpoch,
    ClientsQuiesced,
    ConfirmRecords,
    ElectionEvent,
    ElectionPolicy,
    ElectionRole,
    ElectionState,
    EpochBegun,
    FollowerConfirmed,
    FollowerJoined,
    FollowMaster,
    HangUp,
    JournalsReported,
    MasterHeard,
    OpenPorts,
    QuiesceClients,
    ReadFailed,
    ReadRegister,
    RecordsSynced,
    RegisterChanged,
    RegisterRead,
    ReportElection,
    ReportInSync,
    StepDown,
    StopFollowing,
    StoreCondition,
    StoreExamined,
    SwapAnswered,
    SwapFailed,
    SwapRegister,
    TimePassed,
)
from pybroker.locks.election.record import (
    KAHADB,
    DurableEnd,
    ElectionRecord,
    ElectionSettings,
    MasterEntry,
    RecordedState,
)
from pybroker.locks.election.register import ABSENT, RegisterState, SwapResult
from tests.simulation.world import Violation

LEASE = 2.0
REPLICA_TIMEOUT = 0.7
TICK = 0.2
FILE_RECORDS = 3
DRIFT = 0.08
"""Clocks run at most 8 percent too fast or too slow, so one runs at most 1.17 times as fast as another."""

_NOTHING = (-1, -1, "")
"""Of a store that is to be examined."""

REGISTER = -1
"""The register, as one end of a way."""


class Entry(NamedTuple):
    """A record at its place."""

    file: int
    value: str


class Plan(NamedTuple):
    """The timing of one history."""

    disk: Sequence[float]
    wire: float


class ElectionWorld:
    """Time, ways between members, and the register."""

    def __init__(self, seed: int, *, is_traced: bool = False) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.trace: list[str] = []
        self.is_traced = is_traced
        self.plan = Plan(
            self.random.choice(((0.0003, 0.0005, 0.002), (0.0003, 0.004, 0.06), (0.001, 0.005, 0.3))),
            self.random.choice((0.0003, 0.002, 0.02)),
        )
        self.register = ABSENT
        self.members: list[SimMember] = []
        self.cuts: dict[tuple[int, int], float] = {}
        self.slow_until = self.lag_until = self.away_until = 0.0
        self.on_change: Callable[[], None] = lambda: None
        self._heap: list[tuple[float, int, SimMember | None, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0
        self._arrived: dict[tuple[int, int], float | None] = {}
        self.contents: dict[tuple[int, int], Entry] = {}
        """What was ever written at a place: file and position."""

    def record(self, who: object, text: object) -> None:
        """Write a line of the trace."""
        if self.is_traced:
            self.trace.append(f"{self.now * 1000:9.1f} ms  {who!s:9} {text}")

    def serial(self) -> int:
        """Return a number that was never used."""
        self._serial += 1
        return self._serial

    def at(
        self,
        when: float,
        call: Callable[..., None],
        *arguments: Any,
        member: "SimMember | None" = None,
        source: int = 0,
    ) -> None:
        """Have something called at a time; for a member only in its present run, and when it is not frozen."""
        self._serial += 1
        heappush(self._heap, (when, self._serial, member, member.run if member else 0, source, call, arguments))

    def run(self, until: float) -> None:
        """Let time pass."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            when, serial, member, run, source, call, arguments = heappop(heap)
            self.now = when
            if member is not None:
                if run != member.run or not member.is_up:
                    continue
                if member.frozen_until > when:
                    heappush(heap, (member.thaws_at(source), serial, member, run, source, call, arguments))
                    continue
            call(*arguments)
        self.now = until

    # ------------------------------------------------------------ connections

    def is_cut(self, sender: int, receiver: int) -> bool:
        """Return True if nothing passes this way now."""
        return self.cuts.get((sender, receiver), 0.0) > self.now

    def send(self, sender: int, connection: int, receiver: int, call: Callable[..., None], *arguments: Any) -> None:
        """Send over a connection: in order, and nothing more after a loss."""
        way = (connection, sender)
        last = self._arrived.get(way, 0.0)
        if last is None:
            return
        begin = self.now
        if self.is_cut(sender, receiver):
            if self.random.random() < 0.4:
                self._arrived[way] = None
                return
            begin = self.cuts[sender, receiver]  # sent again, and arriving when it is no longer expected
        when = self._arrived[way] = max(last, begin + self.random.expovariate(1 / self.plan.wire))
        self.at(when, call, *arguments, member=self.members[receiver], source=connection)

    # ------------------------------------------------------------ the register

    def ask(self, member: "SimMember", swap: SwapRegister | None) -> None:
        """Read or swap, with a time-out. What is asked may be done later than that."""
        answered: list[bool] = []
        run = member.run

        def answer(event: ElectionEvent) -> None:
            if not answered and member.run == run:
                answered.append(True)
                member.handle(event)

        def arrive() -> None:
            if self.away_until > self.now:
                return
            event = RegisterRead(self.register) if swap is None else SwapAnswered(self.swapped(swap))
            if not self.is_cut(REGISTER, member.index):
                self.at(self.now + self._delay(), answer, event, member=member)

        failed: ElectionEvent = ReadFailed() if swap is None else SwapFailed()
        self.at(self.now + LEASE * decisions.RENEW_SHARE / member.rate, answer, failed, member=member)
        if not self.is_cut(member.index, REGISTER):
            self.at(self.now + self._delay(), arrive)
        elif self.random.random() < 0.3:
            self.at(self.cuts[member.index, REGISTER] + self._delay(), arrive)

    def swapped(self, swap: SwapRegister) -> SwapResult:
        """Change the register if its revision is the expected one."""
        if not self.is_expected(swap.revision):
            return SwapResult(False, self.register)
        self.register = RegisterState(self.register.revision + 1, swap.record)
        if self.is_traced:
            record = swap.record
            self.record(
                "register",
                f"{self.register.revision}: epoch {record.epoch}, {record.master.name} {record.state.value}, "
                f"in sync {sorted(record.in_sync)}, reserved {record.reserved[KAHADB]}",
            )
        self.on_change()
        for member in self.members:  # watches, some of which lose it
            if not self.is_cut(REGISTER, member.index) and self.random.random() < 0.9:
                changed = RegisterChanged(self.register)
                self.at(self.now + self._delay(), member.handle, changed, member=member, source=REGISTER)
        return SwapResult(True, self.register)

    def is_expected(self, revision: int) -> bool:
        """Compare."""
        return revision == self.register.revision

    def _delay(self) -> float:
        if self.slow_until > self.now:
            return self.random.uniform(0, 1.5 * LEASE)
        if self.lag_until > self.now:
            return self.random.uniform(0, 0.12) * LEASE
        return self.random.expovariate(1 / 0.004)


class Link(NamedTuple):
    """A follower's connection, with the position up to which records were sent."""

    connection: int
    peer: int
    position: int


class SimMember:
    """A member: its disk, which outlives its runs, and its run."""

    state: ElectionState
    observer: "Observer"

    def __init__(self, world: ElectionWorld, index: int, settings: ElectionSettings) -> None:
        self.world = world
        self.index = index
        self.name = "abc"[index]
        self.rate = 1.0 + world.random.choice((-DRIFT, DRIFT, world.random.uniform(-DRIFT, DRIFT)))
        self.stopped_seconds = 0.0
        """By which a clock that was stopped is late."""
        self.policy = ElectionPolicy(
            replica_timeout=REPLICA_TIMEOUT,
            gives_grace=world.random.random() < 0.5,
            first_start_wait=0.3,
            first_settings=settings,
            reserve_ahead=3,
            reserve_left=1,
        )
        self.run = 0
        self.is_up = False
        self.frozen_until = 0.0
        self._thaws: dict[int, float] = {}
        # The disk.
        self.log: list[Entry] = []
        self.synced = 0
        self.version = 0
        """Grows when what was written is cut, so that a sync that is under way counts for nothing."""
        self.wipes = 0
        self.store = f"s-{self.name}-0"
        self.cluster = ""

    def __str__(self) -> str:
        return self.name

    def clock(self) -> float:
        """Seconds of the member's own clock."""
        return self.world.now * self.rate - self.stopped_seconds

    def thaws_at(self, source: int) -> float:
        """Return when a frozen member gets what came from a source: soon after its thaw, in any order."""
        if source not in self._thaws:
            self._thaws[source] = self.frozen_until + self.world.random.random() * 1e-4
        return max(self._thaws[source], self.frozen_until)

    # ------------------------------------------------------------ runs

    def boot(self) -> None:
        """Begin a run: what the disk has is synced before anything is said of it."""
        self.run += 1
        self.is_up = True
        self.synced = len(self.log)
        me = MasterEntry(name=self.name, store=self.store, run=f"r-{self.name}-{self.run}")
        self.state = decisions.start(me, self.policy, self.clock())
        self.leader: FollowMaster | None = None
        self.connection = 0
        self.peer = 0
        self.joined = 0
        self.heard_at = 0.0
        self.links: dict[str, Link] = {}
        self.file = self.file_records = 0
        self.confirmed = 0
        self._examined = _NOTHING
        self._reported = (-1, -1)
        self.world.at(self.world.now + self.world.random.uniform(0, TICK), self.tick, member=self)

    def crash(self, *, is_power_loss: bool) -> None:
        """End the run; what is not synced is lost with the power."""
        self.is_up = False
        self.run += 1
        self.frozen_until = 0.0
        self._thaws.clear()
        self.version += 1
        if is_power_loss and len(self.log) > self.synced:
            del self.log[self.world.random.randint(self.synced, len(self.log)) :]

    def freeze(self, seconds: float) -> None:
        """Stop for a time."""
        self.frozen_until = self.world.now + seconds
        self._thaws.clear()

    def wipe(self) -> None:
        """Exchange the disk for an empty one."""
        self.log, self.synced, self.cluster = [], 0, ""
        self.version += 1
        self.wipes += 1
        self.store = self.new_store_id()

    def new_store_id(self) -> str:
        """Mint an id."""
        return f"s-{self.name}-{self.wipes}"

    # ------------------------------------------------------------ decisions

    def handle(self, event: ElectionEvent) -> None:
        """Have an event decided on, and do what is decided."""
        state, actions = decisions.decide(self.state, event, self.clock())
        self.state = state
        for action in actions:
            self.perform(action)
        record = state.record
        if not self.cluster and record is not None and (not self.log or self.store in record.in_sync):
            self.cluster = record.cluster
        is_released = record is not None and record.state is RecordedState.RELEASED and state.mastery is None
        if is_released and isinstance(event, RegisterChanged | RegisterRead | SwapAnswered):
            self.world.at(self.world.now, self.look, member=self)

    def look(self) -> None:
        """Stand at once if the cluster was released."""
        if self.state.mastery is None:
            self.examine()
            self.handle(TimePassed())

    def perform(self, action: object) -> None:
        """Do what is decided."""
        match action:
            case ReadRegister():
                self.world.ask(self, None)
            case SwapRegister():
                self.world.ask(self, action)
            case ConfirmRecords(sequence):
                self.observer.on_confirmed(self, sequence)
                self.confirmed = sequence
            case FollowMaster():
                self.leader = action
            case StopFollowing():
                self.leader, self.connection = None, 0
            case BeginEpoch(epoch, _):
                self.file, self.file_records = epoch, 1
                self.links, self.confirmed = {}, 0
                self.append([Entry(epoch, f"start {self.name}")])
                self.handle(EpochBegun(len(self.log)))
                self.sync(self.own_synced, self.version, len(self.log))
            case OpenPorts():
                self.observer.on_serving(self)
            case QuiesceClients():
                self.handle(ClientsQuiesced(len(self.log)))
            case HangUp(store, _, reason):
                self.links.pop(store, None)
                self.world.record(self, f"hangs up on {store}: {reason}")
            case StepDown(reason):
                self.links = {}
                self._examined = _NOTHING
                self.world.record(self, f"steps down: {reason}")
            case ReportElection(sentence):
                self.world.record(self, sentence)
            case ReportInSync(stores):
                self.world.record(self, f"in sync are to be: {', '.join(sorted(stores))}")

    def tick(self) -> None:
        """Several times in each lease."""
        self.world.at(self.world.now + TICK / self.rate, self.tick, member=self)
        if self.state.mastery is not None:
            self.report_journals()
            self.handle(TimePassed())
            for store in [*self.links]:
                self.ship(store)
            return
        self.examine()
        self.handle(TimePassed())
        due = self.state.seen_at + LEASE - self.clock()
        if 0 < due < TICK:  # a lease that is over is noticed at once
            self.world.at(self.world.now + due / self.rate + 1e-6, self.handle, TimePassed(), member=self)
        if self.leader is not None and (
            not self.connection or self.clock() - self.heard_at > 2.5 * TICK + REPLICA_TIMEOUT
        ):
            self.dial(self.leader)

    def examine(self) -> None:
        """Report the own store if it has changed."""
        present = (len(self.log), self.version, self.cluster)
        if present != self._examined:
            self._examined = present
            last = self.log[-1].file if self.log else 0
            epochs = [entry.file for entry in self.log if entry.value.startswith("start")]
            self.handle(
                StoreExamined(
                    StoreCondition(
                        cluster=self.cluster,
                        epoch=max(epochs, default=0),
                        is_empty=not self.log,
                        is_sound=True,
                        highest={KAHADB: last},
                        ends={KAHADB: DurableEnd(last, len(self.log))},
                    )
                )
            )

    def report_journals(self) -> None:
        """Report the master's files, and how far what is confirmed reaches."""
        if (self.file, self.confirmed) != self._reported and self.confirmed:
            self._reported = (self.file, self.confirmed)
            end = DurableEnd(self.log[self.confirmed - 1].file, self.confirmed)
            self.handle(JournalsReported({KAHADB: self.file}, {KAHADB: end}))

    # ------------------------------------------------------------ disk

    def append(self, entries: Sequence[Entry]) -> None:
        """Write at the end."""
        contents = self.world.contents
        for position, entry in enumerate(entries, len(self.log)):
            known = contents.setdefault((entry.file, position), entry)
            if known != entry:
                raise Violation(f"P: file {entry.file}, position {position} holds {entry} and {known}")
        self.log.extend(entries)

    def sync(self, then: Callable[..., None], *arguments: Any) -> None:
        """Sync what is written; a disk does so for a frozen process too."""
        when = self.world.now + self.world.random.choice(self.world.plan.disk)
        self.world.at(when, self._on_disk, self.version, len(self.log))
        self.world.at(when, then, *arguments, member=self, source=-2)

    def _on_disk(self, version: int, length: int) -> None:
        if version == self.version:
            self.synced = max(self.synced, length)

    def own_synced(self, version: int, length: int) -> None:
        if version == self.version and self.state.mastery is not None:
            self.handle(RecordsSynced(length))

    # ------------------------------------------------------------ as a master

    def write(self, value: str) -> None:
        """Take a message from a client, and deliver one."""
        if self.state.role is not ElectionRole.SERVING:
            return
        if not decisions.may_tell(self.state, self.clock()):
            self.handle(TimePassed())
            return
        self.observer.on_told(self, "delivers")
        if self.file_records >= FILE_RECORDS:
            if not decisions.may_begin_file(self.state, KAHADB, self.file + 1):
                return  # waits for the register
            self.file += 1
            self.file_records = 0
        self.file_records += 1
        self.append([Entry(self.file, value)])
        self.sync(self.own_synced, self.version, len(self.log))
        for store in [*self.links]:
            self.ship(store)

    def ship(self, store: str) -> None:
        """Send a follower what it has not, or a ping."""
        link, mastery = self.links[store], self.state.mastery
        if mastery is None:
            return
        self.links[store] = link._replace(position=len(self.log))
        batch = self.log[link.position :]
        take = self.world.members[link.peer].on_batch
        self.send(link, take, link.connection, mastery.epoch, link.position, batch, self.clock())

    def send(self, link: Link, call: Callable[..., None], *arguments: Any) -> None:
        self.world.send(self.index, link.connection, link.peer, call, *arguments)

    def on_hello(self, connection: int, peer: int, store: str, files: Sequence[int]) -> None:
        """Answer a follower with what it has to cut and what follows."""
        if self.state.mastery is None:
            return
        self.handle(FollowerJoined(store, connection))
        mastery = self.state.mastery
        if mastery is None or store not in mastery.followers or mastery.followers[store].connection != connection:
            return
        keep = self.common(files)
        link = self.links[store] = Link(connection, peer, len(self.log))
        take = self.world.members[peer].on_plan
        self.send(link, take, connection, mastery.epoch, self.state.known, keep, self.log[keep:], self.clock())

    def common(self, files: Sequence[int]) -> int:
        """Return how many records are the same here: places with one file number hold one content."""
        count = 0
        for file, entry in zip(files, self.log, strict=False):
            if file != entry.file:
                break
            count += 1
        return count

    def on_confirm(
        self, connection: int, store: str, epoch: int, length: int, sent_at: float, has_promised: bool
    ) -> None:
        self.handle(FollowerConfirmed(store, connection, epoch, length, sent_at, has_promised))

    # ------------------------------------------------------------ as a follower

    def dial(self, leader: FollowMaster) -> None:
        """Open a connection to the master."""
        self.connection = self.world.serial()
        self.peer = "abc".index(leader.master.name)
        self.heard_at = self.clock()
        files = [entry.file for entry in self.log]
        take = self.world.members[self.peer].on_hello
        self.world.send(self.index, self.connection, self.peer, take, self.connection, self.index, self.store, files)

    def takes(self, connection: int, epoch: int) -> bool:
        """Return True if a frame of a connection may be taken."""
        return connection == self.connection and decisions.may_take(self.state, epoch)

    def on_plan(
        self,
        connection: int,
        epoch: int,
        known: RegisterState,
        keep: int,
        entries: Sequence[Entry],
        sent_at: float,
    ) -> None:
        """Cut what the master has not, and begin to copy."""
        if connection == self.connection:
            self.handle(RegisterChanged(known))
        if not self.takes(connection, epoch):
            return
        self.cut(keep)
        if len(self.log) != keep:
            self.connection = 0
            return
        self.joined = connection
        self.take(connection, epoch, entries, sent_at)

    def cut(self, length: int) -> None:
        """Cut the log."""
        if length < len(self.log):
            del self.log[length:]
            self.version += 1
            self.synced = min(self.synced, length)

    def on_batch(self, connection: int, epoch: int, position: int, entries: Sequence[Entry], sent_at: float) -> None:
        """Copy what was sent."""
        if not self.takes(connection, epoch) or self.joined != connection:
            return
        if position != len(self.log):
            self.connection = 0
            return
        self.take(connection, epoch, entries, sent_at)

    def take(self, connection: int, epoch: int, entries: Sequence[Entry], sent_at: float) -> None:
        """Write, sync and confirm."""
        self.heard_at = self.clock()
        has_promised = decisions.promises(self.state, epoch)
        self.handle(MasterHeard(epoch))
        confirm = (connection, epoch, self.version, sent_at, has_promised)
        if not entries:
            self.confirm(*confirm, self.synced)
            return
        self.append(entries)
        self.sync(self.confirm, *confirm, len(self.log))

    def confirm(
        self, connection: int, epoch: int, version: int, sent_at: float, has_promised: bool, length: int
    ) -> None:
        """Confirm what is on the disk."""
        if self.takes(connection, epoch) and version == self.version:
            take = self.world.members[self.peer].on_confirm
            self.world.send(
                self.index, connection, self.peer, take, connection, self.store, epoch, length, sent_at, has_promised
            )


class SimGuardian:
    """The guardian of a run whose process has ended, while its machine has not: `released` is the real one.

    It is far slower at times than the real one, which gives up after a lease: how late it is must not matter.
    """

    def __init__(self, member: SimMember) -> None:
        assert member.state.known is not None
        self._world = member.world
        self._index = member.index
        self._run = member.state.me.run
        self._told = member.state.known
        self._soon(self._world.random.choice((0.001, 0.001, 0.05, LEASE, 2 * LEASE)))

    def _soon(self, seconds: float) -> None:
        self._world.at(self._world.now + seconds + self._world.random.expovariate(1 / 0.004), self._ask)

    def _ask(self) -> None:
        """Swap, and after a conflict, or without an answer, try again with what is there then."""
        world, (revision, record) = self._world, self._told
        if world.away_until > world.now or world.is_cut(self._index, REGISTER):
            self._soon(0.1 * LEASE)
            return
        value = guardian_process.released(record.encode().decode(), self._run) if record is not None else ""
        if not value:
            return
        world.record(f"guardian {self._run}", f"swaps revision {revision}")
        result = world.swapped(SwapRegister(revision, ElectionRecord.decode(value.encode())))
        if not result.is_swapped or world.is_cut(REGISTER, self._index):
            self._told = world.register
            self._soon(0.01 * LEASE)


class Observer:
    """Sees what clients see."""

    def on_serving(self, member: SimMember) -> None:
        """A master has opened its ports."""

    def on_told(self, member: SimMember, what: str) -> None:
        """A master has sent something to a client."""

    def on_confirmed(self, member: SimMember, sequence: int) -> None:
        """A master has confirmed everything up to a sequence."""


def record_of(state: RegisterState) -> ElectionRecord:
    """Return the record that must be there."""
    assert state.record is not None
    return state.record
