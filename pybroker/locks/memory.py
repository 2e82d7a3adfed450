"""A lock between brokers of one process: for `memory:` stores, tests and simulation.

It behaves as a lock on a file does, down to being taken away under its holder (`LockRegistry.revoke`), and excludes
nobody outside the process.
"""

import threading

from pybroker.broker.domain.errors import LockNotHeld


class LockRegistry:
    """What a file system is to file locks: the place where those who share a lock meet."""

    def __init__(self) -> None:
        """Start with every lock free."""
        self.changed = threading.Condition()
        self.holders: dict[str, MemoryLock] = {}

    def revoke(self, name: str) -> None:
        """Take a lock from its holder, as its death, or the removal of a lock file, does; the next waiter gets it."""
        with self.changed:
            self.holders.pop(name, None)
            self.changed.notify_all()


class MemoryLock:
    """One broker's hand on a lock in a registry (a `LockProvider`)."""

    def __init__(self, registry: LockRegistry, name: str = "memory:lock") -> None:
        """Prepare to lock `name`; those with the same registry and name exclude one another."""
        self._registry = registry
        self._name = name
        self._cancelled = False

    @property
    def name(self) -> str:
        """What it locks."""
        return self._name

    def try_acquire(self) -> bool:
        """Take the lock if it is free. True: it is ours."""
        with self._registry.changed:
            return self._registry.holders.setdefault(self._name, self) is self

    def acquire(self) -> bool:
        """Wait until the lock is ours. False when `cancel` ended the wait."""
        with self._registry.changed:
            self._registry.changed.wait_for(lambda: self._cancelled or self.try_acquire())
            if not self._cancelled:
                return True
            self._cancelled = False
            self.release()
            return False

    def cancel(self) -> None:
        """End the wait in another thread, or the next one if none is going on, so that no cancel is lost to a race."""
        with self._registry.changed:
            self._cancelled = True
            self._registry.changed.notify_all()

    def check(self) -> None:
        """Make sure that the lock is still ours.

        Raises:
            LockNotHeld: it was released or revoked.
        """
        if self._registry.holders.get(self._name) is not self:
            raise LockNotHeld(f"{self._name}: the lock is not held by this broker")

    def release(self) -> None:
        """Give the lock back; nothing happens when it is not held."""
        with self._registry.changed:
            if self._registry.holders.get(self._name) is self:
                self._registry.revoke(self._name)
