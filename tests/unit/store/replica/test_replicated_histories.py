"""What a master ships makes a copy with the same files, over random histories of both journals."""

import random
from pathlib import Path

import pytest

from pybroker.broker.domain.jobs import Job
from pybroker.broker.domain.replica.operations import RemoveFiles, ReplaceFile
from tests.unit.store.replica.replicated_stores import QUEUE, CopiedFiles, ReplicatedStores

EPOCHS = 3
ROUNDS = 10
KINDS = {
    "BeginFile",
    "WriteBatch",
    "CutFile",
    "RemoveFiles MESSAGES",
    "RemoveFiles SCHEDULER",
    "ReplaceFile MESSAGES",
}


@pytest.mark.parametrize("seeds", [range(3), range(3, 6), range(6, 9)])
def test_the_shipped_operations_make_an_equal_copy(tmp_path: Path, seeds: range) -> None:
    kinds: set[str] = set()
    for seed in seeds:
        kinds |= _History(tmp_path / str(seed), random.Random(seed)).run()
    assert kinds >= KINDS


class _History:
    """A random history of several masters on one directory, and of one copy."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self._root = root
        self._rng = rng
        self._copy = CopiedFiles()
        self._number = 0
        self._held: list[int] = []
        self._jobs: list[Job] = []
        self._kinds: set[str] = set()

    def run(self) -> set[str]:
        """Return the kinds of operations that were shipped."""
        stores = ReplicatedStores(self._root, copy=self._copy)
        for epoch in range(EPOCHS):
            floor = stores.begin()
            assert floor == len(stores.shipped)
            self._live(stores)
            stores.settle()
            stores.assert_copied()
            self._note(stores)
            if self._rng.random() < 0.5:
                stores.close()
                stores.assert_copied()
            else:
                self._work(stores, 10)
                stores.kill()
            first = stores.next_first_files(self._rng.choice((1, 2, 9)))
            if epoch < EPOCHS - 1:
                stores = ReplicatedStores(self._root, first, copy=self._copy)
                self._held = [int(each.rpartition(":")[2]) for each in stores.recovery.queues.get(QUEUE, ())]
                self._jobs = list(stores.found_jobs)
        return self._kinds

    def _live(self, stores: ReplicatedStores) -> None:
        for _ in range(ROUNDS):
            self._work(stores, self._rng.randrange(1, 25))
            if self._rng.random() < 0.5:
                stores.messages.cleanup()
                stores.jobs.cleanup()
            if self._rng.random() < 0.5:
                stores.confirm(self._rng.randint(stores.sequencer.confirmed, stores.synced))
            if self._rng.random() < 0.4:
                stores.settle()

    def _work(self, stores: ReplicatedStores, count: int) -> None:
        rng = self._rng
        for _ in range(count):
            match rng.randrange(8):
                case 0 | 1 | 2:
                    self._number += 1
                    stores.send(self._number, rng.choice((1, 100, 900, 5000)))
                    self._held.append(self._number)
                case 3 | 4 | 5 if self._held:  # the first message stays, and holds the files behind it together
                    stores.consume(self._held.pop(rng.randrange(len(self._held) > 1, len(self._held))))
                case 6:
                    self._number += 1
                    self._jobs.append(stores.schedule(self._number, rng.choice((1, 300, 2000))))
                case 7 if self._jobs:
                    job = self._jobs[rng.randrange(len(self._jobs))]
                    if rng.random() < 0.3:
                        stores.jobs.reschedule(job, job.next_time + 10)
                    else:
                        self._jobs.remove(job)
                        stores.jobs.remove(job)
                case _:
                    pass
            if rng.random() < 0.3:
                stores.loop.turn()

    def _note(self, stores: ReplicatedStores) -> None:
        for _, operation in stores.shipped:
            self._kinds.add(type(operation).__name__)
            if isinstance(operation, RemoveFiles | ReplaceFile):
                self._kinds.add(f"{type(operation).__name__} {operation.journal.name}")
