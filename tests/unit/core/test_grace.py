"""The grace period of a new master: what connections had on the former one fits again, in any order, and no more."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core.broker import Limits
from pybroker.broker.core.object_memory import GRACE_SECONDS, GUARANTEED_BYTES, PART_MIN, ObjectAccount, ObjectMemory
from pybroker.broker.domain.errors import ResourceLimit
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import World

LIMIT = 4 * PART_MIN
QUEUES_MAX = 100_000
PIECE = 50_000
"""The bytes of each object: large ones, so that there are few."""


class Master:
    """The memory of a master, and its clients."""

    def __init__(self, *, grace: bool) -> None:
        self.now = 1000.0
        self.memory = ObjectMemory(LIMIT, QUEUES_MAX, count=lambda change: None, seconds=lambda: self.now)
        self.accounts: dict[int, ObjectAccount] = {}
        self._created = 0
        if grace:
            self.memory.begin_grace()

    def acquire(self, client: int) -> bool:
        """Have a client create what ends with it; return False if it is refused."""
        try:
            self._account(client).acquire(PIECE, "consumer")
        except ResourceLimit:
            return False
        return True

    def create(self, client: int) -> bool:
        """Have a client create what stays; return False if it is refused, or slowed down by the reserve."""
        account = self._account(client)
        try:
            self.memory.check_lasting(PIECE, account, "queue")
        except ResourceLimit:
            return False
        if account.reserve is not None:
            return False
        self._created += 1
        self.memory.add_lasting(f"{client} {self._created}", PIECE, account)
        return True

    def _account(self, client: int) -> ObjectAccount:
        return self.accounts.setdefault(client, ObjectAccount(self.memory))


def fill(master: Master, actions: list[tuple[int, int, bool]]) -> list[tuple[int, bool]]:
    """Have clients create and remove; return what they have in the end: clients, and whether it stays."""
    has: list[tuple[int, bool]] = []
    for client, count, stays in actions:
        operation = master.create if stays else master.acquire
        for _ in range(count):
            if not operation(client):
                break
            has.append((client, stays))
        for _ in range(-count):
            if (client, stays) not in has or stays:
                break
            has.remove((client, stays))
            master.accounts[client].release(PIECE)
    return has


ACTIONS = st.lists(st.tuples(st.integers(0, 4), st.integers(-100, 400), st.booleans()), max_size=12)


@given(ACTIONS, st.randoms(use_true_random=False))
def test_what_fitted_fits_again_in_any_order(actions: list[tuple[int, int, bool]], order: random.Random) -> None:
    """Piece by piece, those of all clients in between one another."""
    restored = fill(Master(grace=False), actions)
    order.shuffle(restored)
    master = Master(grace=True)
    for client, stays in restored:
        assert master.create(client) if stays else master.acquire(client)


@pytest.mark.parametrize("stays", [False, True])
def test_another_order_does_not_fit_without_grace(stays: bool) -> None:
    """The reason for the grace period."""
    restored = fill(Master(grace=False), [(1, 1000, stays), (2, 1000, stays)])
    late = sorted(restored, reverse=True)
    without, with_grace = Master(grace=False), Master(grace=True)
    assert len(fill(without, [(client, 1, stays) for client, _ in late])) < len(late)
    assert len(fill(with_grace, [(client, 1, stays) for client, _ in late])) == len(late)


@given(ACTIONS)
def test_grace_makes_no_part_larger(actions: list[tuple[int, int, bool]]) -> None:
    master = Master(grace=True)
    fill(master, actions)
    memory = master.memory
    assert memory.shared <= memory.shared_max
    assert memory.lasting <= memory.lasting_max * 3 // 4
    for account in master.accounts.values():
        assert account.held - GUARANTEED_BYTES <= memory.shared_max * 3 // 4
        assert account.created <= memory.lasting_max * 9 // 16


def test_grace_is_over_after_its_time() -> None:
    master = Master(grace=True)
    fill(master, [(1, 1000, False)])
    while master.acquire(2):
        pass
    more_than_usual = master.accounts[2].held - GUARANTEED_BYTES
    assert more_than_usual > 3 * (master.memory.shared_max - master.memory.shared)
    master.accounts[1].release(PIECE)
    assert master.acquire(2)
    master.accounts[1].release(PIECE)
    master.now += GRACE_SECONDS
    assert not master.acquire(2)
    for _ in range(100):
        master.accounts[1].release(PIECE)
    assert master.acquire(2), "by the usual rule"


def test_master_begins_with_the_grace_period() -> None:
    now = [5.0]
    world = World(MemoryStore(), limits=Limits(memory_bytes_max=LIMIT))
    world.broker.usage.paging.monotonic = lambda: now[0]
    objects = world.broker.objects
    first, second = ObjectAccount(objects), ObjectAccount(objects)
    quarter = PART_MIN // 4
    world.broker.recover()
    first.acquire(GUARANTEED_BYTES + 2 * quarter, "consumer")
    second.acquire(GUARANTEED_BYTES + 2 * quarter, "consumer")
    second.release(2 * quarter)
    now[0] += GRACE_SECONDS
    with pytest.raises(ResourceLimit):
        second.acquire(2 * quarter, "consumer")
