"""Faults of members in both scenarios: kills, power failures, freezes, a lock taken away, disks that fail.

Most of it happens to the lock's holder: there is the most to lose.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tests.simulation.disk import SimDisk
from tests.simulation.locks import LockServer
from tests.simulation.world import Process


class Victim(Protocol):
    """A member."""

    process: Process

    def stop(self) -> None:
        """Request an orderly end."""
        ...


Fault = Callable[[], None]


class Faults:
    """Faults of members."""

    def __init__(self, disk: SimDisk, locks: LockServer, members: Sequence[Victim]) -> None:
        self._world = disk.world
        self._disk = disk
        self._locks = locks
        self._members = members
        """All there are, or the latest of each host."""
        self._fail_at = ""

    def plan(self, begin: float, end: float, most: int, weights: Mapping[Fault, float]) -> None:
        """Have some happen between two times, drawn by their weights."""
        random = self._world.random
        for _ in range(random.randint(1, most)):
            fault = random.choices(list(weights), list(weights.values()))[0]
            self._world.after(random.uniform(begin, end), fault)

    def end(self) -> None:
        """Have nothing fail from here on."""
        self._world.record("world", "nothing bad happens from here on")
        self._empty()
        self._fail_at = ""

    def check(self, operation: str) -> None:
        """Fail a disk operation if one is to fail."""
        if self._fail_at == operation:
            self._fail_at = ""
            self._world.record("disk", f"{operation} fails")
            raise OSError(5, "the disk has failed")

    # ------------------------------------------------------------ processes

    def kill(self) -> None:
        if (member := self._master()) is not None:
            self._world.record(member.process.name, "is killed")
            member.process.kill()

    def fail_power(self) -> None:
        self._world.record("world", "power fails")
        for member in self._members:
            member.process.kill()
        self._disk.fail_power()

    def freeze(self) -> None:
        if (member := self._master()) is not None:
            member.process.freeze(self._world.random.choice((0.01, 0.1, 0.3)))

    def revoke(self) -> None:
        random = self._world.random
        if (member := self._master()) is not None:
            if random.random() < 0.7:
                member.process.freeze(random.choice((0.002, 0.02, 0.2)))
            self._locks.revoke(is_noticed=random.random() < 0.3)

    def stop(self) -> None:
        if (member := self._master()) is not None:
            member.stop()

    def step_clock(self) -> None:
        for member in self._members:
            member.process.clock_error_ms += self._world.random.choice((-7_200_000, -1000, 86_400_000))

    def _master(self) -> Victim | None:
        """Return who has the lock."""
        holder = self._locks.holder
        return next((each for each in self._members if holder is not None and each.process is holder.process), None)

    # ------------------------------------------------------------ the disk

    def fill(self) -> None:
        self._world.record("disk", "is nearly full")
        self._disk.space = self._world.random.randint(0, 30_000)
        self._world.after(self._world.random.uniform(0, 0.2), self._empty)

    def _empty(self) -> None:
        self._disk.space = None

    def fail_disk(self) -> None:
        self._fail_at = self._world.random.choice(("write", "sync", "create", "rename"))
