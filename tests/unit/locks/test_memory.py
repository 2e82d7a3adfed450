"""The memory lock's own promise: a simulation can revoke it."""

import pytest

from pybroker.broker.domain.errors import LockNotHeld
from pybroker.locks.memory import LockRegistry, MemoryLock


def test_revoked_lock_is_lost_and_free() -> None:
    registry = LockRegistry()
    first, second = MemoryLock(registry), MemoryLock(registry)
    assert first.try_acquire()
    registry.revoke(first.name)
    with pytest.raises(LockNotHeld, match="memory:lock: the lock is not held"):
        first.check()
    assert second.try_acquire()
    first.release()
    second.check()


def test_locks_of_other_names_or_registries_are_independent() -> None:
    registry = LockRegistry()
    assert MemoryLock(registry, "a").try_acquire()
    assert MemoryLock(registry, "b").try_acquire()
    assert MemoryLock(LockRegistry(), "a").try_acquire()
    assert not MemoryLock(registry, "a").try_acquire()
