"""Scenario `election`: two or three members without shared storage, their register, what happens to them, a checker.

The checker knows nothing of decisions. It verifies after every confirmation, and after every change of the register:

* D: each store of the register's in-sync set has everything that was ever confirmed, synced, at its place. So has every
  new master.
* M: what is confirmed is on as many disks as the settings demand.
* O: after a master has begun to serve, no master of a lower epoch confirms or delivers.
* P: no place (file and position) ever holds two contents.
* L: once nothing bad happens any more one member serves, and all have the same records.

Not modelled: removal and compaction of files, contents of records, the scheduler's journal, an election store that
forgets. What an operator forces is in `forced_scenario`.
"""

from collections import Counter

from pybroker.locks.election import decisions
from pybroker.locks.election.election_state import ElectionRole, MasterResigned, ReleaseRequested
from pybroker.locks.election.record import ElectionSettings
from tests.simulation.election_model import (
    LEASE,
    REGISTER,
    ElectionWorld,
    Entry,
    Observer,
    SimGuardian,
    SimMember,
    record_of,
)
from tests.simulation.world import Violation

QUIET_END = 3.0
"""Seconds without load at the end of a history."""

SERVING_ROLES = (ElectionRole.SERVING, ElectionRole.HANDING_OVER)


class ElectionScenario(Observer):
    """One history."""

    stops_clocks = False
    """Machines stop together with their clocks. Then two masters may deliver at once; D, M, P and L hold."""

    faults_end, end = 7.0, 13.5
    """Seconds, of the last fault and of the history."""

    def __init__(self, seed: int, *, is_traced: bool = False) -> None:
        self.world = ElectionWorld(seed, is_traced=is_traced)
        self.random = random = self.world.random
        count = random.choice((2, 3, 3))
        self.least = random.choice((1, 1, 2))
        settings = ElectionSettings(lease_ms=round(LEASE * 1000), min_in_sync=self.least)
        self.members = [SimMember(self.world, index, settings) for index in range(count)]
        self.world.members = self.members
        self.world.on_change = self._check_in_sync
        self.confirmed: list[Entry] = []
        """Everything that was ever confirmed, by position."""
        self.served = 0
        """The highest epoch that began to serve."""
        self.overlaps = 0
        self.counts: Counter[str] = Counter()
        for member in self.members:
            member.observer = self
            self.world.at(random.uniform(0, 0.4), member.boot)

    def run(self) -> None:
        """Run it.

        Raises:
            Violation: a promise is broken.
        """
        self._plan()
        self.world.run(self.end)
        self._finish()

    # ------------------------------------------------------------ load and faults

    def _plan(self) -> None:
        random, at = self.random, self.world.at
        when = 0.6
        while when < self.end - QUIET_END:
            when += random.choice((0.005, 0.04, 0.3, 0.9)) * random.random()
            at(when, self._load, random.choice((1, 1, 4)))
        faults = {
            self._kill: 3.0,
            self._lose_power: 3.0,
            self._freeze: 4.0,
            self._part: 6.0,
            self._cut_register: 4.0,
            self._slow_register: 3.0,
            self._isolate: 3.0,
            self._change_slowly: 2.0,
            self._starve: 2.0,
            self._lose_register: 2.0,
            self._exchange_disk: 0.5,
            self._switch_over: 1.5,
            self._resign: 1.5,
        }
        if self.stops_clocks:
            faults[self._stop_clock] = 8.0
        for _ in range(random.randint(2, 9)):
            at(random.uniform(0.8, self.faults_end), random.choices([*faults], [*faults.values()])[0])
        at(self.faults_end + 1.5, self._heal)

    def _load(self, count: int) -> None:
        for member in self.members:
            if member.is_up and member.frozen_until <= self.world.now:
                for _ in range(count):
                    member.write(f"m{self.world.serial()}")

    def _victim(self) -> SimMember:
        """Mostly the master: it has the most to lose."""
        record = self.world.register.record
        if record is not None and self.random.random() < 0.6:
            return self.members["abc".index(record.master.name)]
        return self.random.choice(self.members)

    def _down(
        self, member: SimMember, *, is_power_loss: bool, is_wiped: bool = False, seconds: float | None = None
    ) -> None:
        if not member.is_up:
            return
        self.counts["crashes"] += 1
        self.world.record(member, f"{'loses power' if is_power_loss else 'is killed'}{', new disk' * is_wiped}")
        if not is_power_loss and member.state.role in SERVING_ROLES:
            self.counts["guardians"] += 1
            SimGuardian(member)
        member.crash(is_power_loss=is_power_loss)
        if is_wiped:
            member.wipe()
        seconds = self.random.choice((0.05, 1.0, 5.0)) if seconds is None else seconds
        self.world.at(self.world.now + seconds, self._restart, member)

    def _restart(self, member: SimMember) -> None:
        if not member.is_up and self.world.now > 0.4:
            member.boot()

    def _kill(self) -> None:
        self._down(self._victim(), is_power_loss=False)

    def _lose_power(self) -> None:
        self._down(self._victim(), is_power_loss=True)
        if self.random.random() < 0.25:
            for member in self.members:
                self._down(member, is_power_loss=True)

    def _exchange_disk(self) -> None:
        self._down(self._victim(), is_power_loss=True, is_wiped=True)

    def _freeze(self) -> None:
        member = self._victim()
        if member.is_up:
            self.counts["freezes"] += 1
            seconds = self.random.choice((0.4, 1.0, 1.2, 2.0)) * LEASE
            member.freeze(seconds)
            self.world.record(member, f"is frozen for {seconds:g} s")

    def _stop_clock(self) -> None:
        member = self._victim()
        if member.is_up:
            seconds = self.random.choice((1.0, 1.5, 2.0)) * LEASE
            member.freeze(seconds)
            member.stopped_seconds += seconds * member.rate
            self.world.record(member, f"is stopped together with its clock for {seconds:g} s")

    def _part(self) -> None:
        one = self._victim()
        other = self.random.choice([member for member in self.members if member is not one])
        self._sever([(one.index, other.index), (other.index, one.index)])

    def _cut_register(self) -> None:
        one = self._victim().index
        ways = [(one, REGISTER), (REGISTER, one)]
        if self.random.random() < 0.3:
            ways += [way for other in self.members for way in ((one, other.index), (other.index, one))]
        self._sever(ways)

    def _sever(self, ways: list[tuple[int, int]]) -> None:
        self.counts["cuts"] += 1
        if self.random.random() < 0.4:
            ways = [self.random.choice(ways)]
        self._cut_all(ways, self.random.choice((0.5, 1.1, 1.5, 3.0)))

    def _isolate(self) -> None:
        """Cut the master off from the register and from all others; half of the time after answers that were late."""
        one = self._victim().index
        cut_at = self.world.now + 0.4 * LEASE
        if self.random.random() < 0.5:
            self.world.lag_until = cut_at
        others = [REGISTER, *(member.index for member in self.members if member.index != one)]
        ways = [way for other in others for way in ((one, other), (other, one))]
        self.world.at(cut_at, self._cut_all, ways)

    def _cut_all(self, ways: list[tuple[int, int]], leases: float = 1.5) -> None:
        until = self.world.now + leases * LEASE
        for way in ways:
            self.world.cuts[way] = max(until, self.world.cuts.get(way, 0.0))
        self.world.record("world", f"cuts {ways} until {until * 1000:.0f} ms")

    def _starve(self) -> None:
        """Leave the master to its followers' promises, and delay or lose those for a while."""
        one = self._victim().index
        self._cut_all([(one, REGISTER), (REGISTER, one)], 3.0)
        others = [member.index for member in self.members if member.index != one]
        ways = [way for other in others for way in ((one, other), (other, one))]
        self.world.at(self.world.now + self.random.uniform(0, LEASE), self._cut_all, ways, 0.5)

    def _change_slowly(self) -> None:
        """Have the master end while swaps take longer than their time-outs, so that several members stand at once."""
        self.world.slow_until = self.world.now + 3.0 * LEASE
        self.world.record("register", f"is slow until {self.world.slow_until * 1000:.0f} ms")
        self.world.at(self.world.now + 0.1 * LEASE, self._kill)

    def _slow_register(self) -> None:
        self.world.slow_until = self.world.now + self.random.choice((1.0, 3.0)) * LEASE
        self.world.record("register", f"is slow until {self.world.slow_until * 1000:.0f} ms")

    def _lose_register(self) -> None:
        self.world.away_until = self.world.now + self.random.choice((0.5, 1.5, 3.0)) * LEASE
        self.world.record("register", f"is away until {self.world.away_until * 1000:.0f} ms")

    def _switch_over(self) -> None:
        record = self.world.register.record
        if record is None:
            return
        member = self.members["abc".index(record.master.name)]
        if member.is_up and member.frozen_until <= self.world.now and member.state.role is ElectionRole.SERVING:
            others = sorted(record.in_sync - {member.store})
            self.counts["switchovers"] += 1
            member.handle(ReleaseRequested(self.random.choice(["", *others])))

    def _resign(self) -> None:
        """Have the master's store fail: it resigns, and ends or goes on as a standby."""
        record = self.world.register.record
        if record is None:
            return
        member = self.members["abc".index(record.master.name)]
        if member.is_up and member.frozen_until <= self.world.now and member.state.mastery is not None:
            self.counts["resignations"] += 1
            self.world.record(member, "resigns")
            member.handle(MasterResigned("its store has failed"))
            if self.random.random() < 0.5:
                self._down(member, is_power_loss=False)

    def _heal(self) -> None:
        self.world.record("world", "nothing bad happens from here on")
        self.world.cuts.clear()
        self.world.slow_until = self.world.lag_until = self.world.away_until = 0.0
        for member in self.members:
            self._restart(member)

    # ------------------------------------------------------------ the checker

    def on_serving(self, member: SimMember) -> None:
        """A master has opened its ports."""
        assert member.state.mastery is not None
        epoch = member.state.mastery.epoch
        self.counts["promotions"] += 1
        self.world.record(member, f"serves, epoch {epoch}")
        if epoch <= self.served:
            self._overlap(f"epoch {epoch} begins to serve after epoch {self.served}")
            return
        self.served = epoch
        for other in self.members:  # whoever may tell something now would do so with the next client's bytes
            if other is member or not other.is_up or other.frozen_until > self.world.now:
                continue
            if other.state.role in SERVING_ROLES and decisions.may_tell(other.state, other.clock()):
                self._overlap(f"epoch {epoch} begins to serve while {other} still may")
        if member.log[: len(self.confirmed)] != self.confirmed:
            raise Violation(f"D: epoch {epoch} serves without what was confirmed")

    def on_told(self, member: SimMember, what: str) -> None:
        """A master has sent something to a client."""
        assert member.state.mastery is not None
        if member.state.mastery.epoch < self.served:
            self._overlap(f"epoch {member.state.mastery.epoch} {what} after epoch {self.served} began to serve")

    def on_confirmed(self, member: SimMember, sequence: int) -> None:
        """A master has confirmed everything up to a sequence."""
        self.on_told(member, "confirms")
        self.counts["confirmed"] += max(0, sequence - len(self.confirmed))
        known = len(self.confirmed)
        if member.log[: min(known, sequence)] != self.confirmed[: min(known, sequence)]:
            raise Violation(f"D: {member} confirms other records than were confirmed before")
        self.confirmed += member.log[known:sequence]
        self._check_in_sync()
        copies = sum(each.synced >= sequence and each.log[:sequence] == member.log[:sequence] for each in self.members)
        if copies + sum(each.wipes for each in self.members) < self.least and sequence > known:
            raise Violation(f"M: {member} confirms up to {sequence}, which {copies} disks have")

    def _overlap(self, text: str) -> None:
        if not self.stops_clocks:
            raise Violation(f"O: {text}")
        self.overlaps += 1

    def _check_in_sync(self) -> None:
        record, count = self.world.register.record, len(self.confirmed)
        if record is None:
            return
        for member in self.members:
            if member.store not in record.in_sync:
                continue
            if member.synced < count or member.log[:count] != self.confirmed:
                raise Violation(f"D: store {member.store} is in sync, and has not all {count} confirmed records")

    def _finish(self) -> None:
        record = record_of(self.world.register)
        if not record.in_sync & {member.store for member in self.members}:
            self.counts["no disk left"] += 1
            return
        if self.least > len({member.store for member in self.members if member.is_up}):
            raise Violation("L: members are missing")
        masters = [member for member in self.members if member.state.role is ElectionRole.SERVING]
        if len(masters) != 1:
            raise Violation(f"L: {len(masters)} members serve in the end: {[each.state.role for each in self.members]}")
        (master,) = masters
        self.counts["histories"] += 1
        if master.log[: len(self.confirmed)] != self.confirmed:
            raise Violation("D: in the end something confirmed is missing")
        for member in self.members:
            if member.log != master.log:
                raise Violation(f"L: in the end {member} has {len(member.log)} records, the master {len(master.log)}")


class StoppedClocksScenario(ElectionScenario):
    """The same, with machines that stop together with their clocks: two masters may deliver, and nothing is lost."""

    stops_clocks = True
