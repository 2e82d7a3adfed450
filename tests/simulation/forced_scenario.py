"""Scenario `forced-promotion`: an operator has a store that lacks something become the master.

All that `election` has happens, and members are away for long: a store is left behind, and the master with everything
is lost. The operator knows nothing but what a member shows, and is right in one thing: the process of the master that
was shown has ended. What is checked besides:

* F: a store that lacks something becomes the master at an operator's word only, over the content of the register that
  the operator was shown; and what is lost lies behind the place that was named.

What is lost so is forgotten by the checker. D, M, O, P and L hold for everything else.
"""

from typing import NamedTuple

from pybroker.locks.election.election_state import PromotionForced
from pybroker.locks.election.forced_promotion import LackingStore, lacking_store, quiet_seconds_left
from pybroker.locks.election.record import KAHADB, DurableEnd, ElectionRecord
from tests.simulation.election_model import LEASE, REGISTER, Entry, SimMember
from tests.simulation.election_scenario import ElectionScenario
from tests.simulation.world import Violation

LOOK_SECONDS = 0.5
AWAY_LEASES = 7.0


class _Word(NamedTuple):
    """What an operator was shown, and agreed to."""

    store: str
    revision: int


class ForcedPromotionScenario(ElectionScenario):
    """One history."""

    faults_end, end = 26.0, 34.0

    def __init__(self, seed: int, *, is_traced: bool = False) -> None:
        super().__init__(seed, is_traced=is_traced)
        self._said: dict[_Word, DurableEnd] = {}
        """The ends that were shown, for each word."""
        self._former: ElectionRecord | None = None

    # ------------------------------------------------------------ disasters and operators

    def _plan(self) -> None:
        super()._plan()
        self.world.at(self.random.uniform(1.5, 6.0), self._leave_behind)
        self.world.at(2.0, self._look)

    def _leave_behind(self) -> None:
        """Have others miss something, and then lose the master for long, or cut it off from all of them."""
        record = self.world.register.record
        if record is None:
            return
        master = self.members["abc".index(record.master.name)]
        others = [member for member in self.members if member is not master]
        missed = self.random.uniform(1.5, 3.0)
        for member in others:
            if member is others[0] or self.random.random() < 0.7:
                self._down(member, is_power_loss=self.random.random() < 0.5, seconds=missed)
        self.world.at(self.world.now + missed * self.random.uniform(0.7, 1.0), self._lose_master, master)

    def _lose_master(self, master: SimMember) -> None:
        if self.random.random() < 0.7:
            self._down(master, is_power_loss=self.random.random() < 0.5, seconds=AWAY_LEASES * LEASE)
            return
        ends = [REGISTER, *(member.index for member in self.members if member is not master)]
        self._cut_all(
            [way for end in ends for way in ((master.index, end), (end, master.index))],
            AWAY_LEASES,
        )

    def _look(self) -> None:
        """Ask each member if it could be promoted, and agree after some thought."""
        if self.world.now < self.faults_end:
            self.world.at(self.world.now + LOOK_SECONDS, self._look)
        for member in self.members:
            if not member.is_up or member.frozen_until > self.world.now:
                continue
            found = lacking_store(member.state)
            if not isinstance(found, str) and not quiet_seconds_left(member.state, member.clock()):
                self.world.at(self.world.now + self.random.choice((0.0, 0.2, 2.0)), self._agree, member, found)

    def _agree(self, member: SimMember, found: LackingStore) -> None:
        if not member.is_up or member.frozen_until > self.world.now or not self.is_off(found.record.master.run):
            return
        end = found.store.ends.get(KAHADB, DurableEnd(0, 0))
        self.world.record(member, f"is to become master over revision {found.revision}, and ends at {end}")
        self._said[_Word(member.store, found.revision)] = end
        member.handle(PromotionForced(found.revision))

    def is_off(self, run: str) -> bool:
        """Return True if a run has ended."""
        return not any(member.is_up and member.state.me.run == run for member in self.members)

    # ------------------------------------------------------------ the checker

    def _check_in_sync(self) -> None:
        former, record = self._former, self.world.register.record
        self._former = record
        if former is not None and record is not None and _is_of_an_outsider(record, former):
            self._note_forced(record)
        super()._check_in_sync()

    def _note_forced(self, record: ElectionRecord) -> None:
        word = _Word(record.master.store, self.world.register.revision - 1)
        if word not in self._said:
            raise Violation(f"F: {record.master.name} becomes master without what was confirmed, at no one's word")
        log = self.members["abc".index(record.master.name)].log
        count = _common(log, self.confirmed)
        for position, entry in enumerate(self.confirmed[count:], count):
            if (entry.file, position) < self._said[word]:
                raise Violation(f"F: {entry} is lost, and {self._said[word]} was named")
        self.counts["forced"] += 1
        self.counts["lost"] += len(self.confirmed) - count
        del self.confirmed[count:]


def _is_of_an_outsider(record: ElectionRecord, former: ElectionRecord) -> bool:
    """Return True if a promotion was of a store that was not in sync."""
    return record.epoch != former.epoch and record.master.store not in former.in_sync


def _common(one: list[Entry], other: list[Entry]) -> int:
    """Return how many records are the same in both."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count
