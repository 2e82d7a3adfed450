"""The lock that members of the simulated world share: a server's, which may revoke it from a silent member.

`revoke` is what a frozen or cut-off holder meets. It may learn of it at its next look, or go on believing in its lock
for ever: then only the journal keeps it from confirming anything (decision 030).
"""

from pybroker.broker.domain.errors import LockNotHeld
from tests.simulation.world import Process, Signal, World


class LockServer:
    """Knows who has the lock."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.holder: SimLock | None = None
        self.changed = Signal(world)

    def revoke(self, *, is_noticed: bool) -> None:
        """Take the lock from its holder."""
        if self.holder is not None:
            self.world.record("lock", f"is taken from {self.holder.process.name}{'' if is_noticed else ', unnoticed'}")
            self.holder.is_deluded = not is_noticed
            self.free(self.holder)

    def free(self, lock: "SimLock") -> None:
        if self.holder is lock:
            self.holder = None
            self.changed.notify()


class SimLock:
    """One member's hand on the lock (a `LockProvider`)."""

    name = "simulated lock"

    def __init__(self, server: LockServer, process: Process) -> None:
        self.process = process
        self.is_deluded = False
        """True: it was taken away, and this member does not know."""
        self._server = server
        self._is_cancelled = False
        process.on_death.append(self.release)

    def try_acquire(self) -> bool:
        """Take the lock if it is free."""
        if self._server.holder is None:
            self._server.holder = self
            self.is_deluded = False
            self._server.world.record("lock", f"is given to {self.process.name}")
        return self._server.holder is self

    def acquire(self) -> bool:
        """Wait until the lock is ours. False when `cancel` ended the wait."""
        self._server.changed.wait_for(lambda: self._is_cancelled or self.try_acquire(), None)
        is_ours = not self._is_cancelled
        if not is_ours:
            self._is_cancelled = False
            self.release()
        return is_ours

    def cancel(self) -> None:
        """End the wait in another thread, or the next one."""
        self._is_cancelled = True
        self._server.changed.notify()

    def check(self) -> None:
        """Make sure that the lock is still ours, as far as we know.

        Raises:
            LockNotHeld: it is not.
        """
        if self._server.holder is not self and not self.is_deluded:
            raise LockNotHeld("the simulated lock is another's")

    def release(self) -> None:
        """Give the lock back."""
        self.is_deluded = False
        self._server.free(self)
