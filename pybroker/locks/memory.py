"""A lock between brokers of one process: for `memory:` stores, tests and simulation.

It behaves like a lock on a file, including its loss while it is held (`LockRegistry.revoke`). It excludes no other
process.
"""

import threading

from pybroker.broker.domain.errors import LockNotHeld


class LockRegistry:
    """Holds the locks of one process by name, as a file system holds lock files."""

    def __init__(self) -> None:
        """Create a registry in which every lock is free."""
        self.changed = threading.Condition()
        self.holders: dict[str, MemoryLock] = {}

    def revoke(self, name: str) -> None:
        """Take a lock away from its holder, as the removal of a lock file does. The next waiter acquires it."""
        with self.changed:
            self.holders.pop(name, None)
            self.changed.notify_all()


class MemoryLock:
    """One broker's handle on a lock in a registry (a `LockProvider`)."""

    def __init__(self, registry: LockRegistry, name: str = "memory:lock") -> None:
        """Create a handle. Handles with the same registry and name exclude one another."""
        self._registry = registry
        self._name = name
        self._cancelled = False

    @property
    def name(self) -> str:
        """The lock's name in its registry."""
        return self._name

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free. Return True when this handle holds it."""
        with self._registry.changed:
            return self._registry.holders.setdefault(self._name, self) is self

    def acquire(self) -> bool:
        """Wait for the lock and acquire it. Return False when `cancel` ended the wait."""
        with self._registry.changed:
            self._registry.changed.wait_for(lambda: self._cancelled or self.try_acquire())
            if not self._cancelled:
                return True
            self._cancelled = False
            self.release()
            return False

    def cancel(self) -> None:
        """End the wait in another thread, or else the next wait, so that no cancel is lost to a race."""
        with self._registry.changed:
            self._cancelled = True
            self._registry.changed.notify_all()

    def check(self) -> None:
        """Verify that this handle still holds the lock.

        Raises:
            LockNotHeld: it was released or revoked.
        """
        if self._registry.holders.get(self._name) is not self:
            raise LockNotHeld(f"{self._name}: the lock is not held by this broker")

    def release(self) -> None:
        """Release the lock. Does nothing when it is not held."""
        with self._registry.changed:
            if self._registry.holders.get(self._name) is self:
                self._registry.revoke(self._name)
