"""Random histories of a replicated pair: connections that are cut, restarts, and masters that change.

Checked after each change of master, and at the end: nothing that was confirmed is missing, and the stores are equal.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pybroker.broker.domain.replica.operations import Journal
from pybroker.store.journal.reader import data_files
from pybroker.store.replica.receiver import ReceiverSettings, is_unfinished
from pybroker.transports.replica.follower import ReplicaFollower
from pybroker.transports.replica.link import FollowerLink
from pybroker.transports.replica.server import ReplicaServer, StreamPolicy
from tests import in_memory
from tests.replicas import (
    FOLLOWER,
    MASTER,
    MasterNode,
    assert_equal_stores,
    closed,
    follower,
    journals,
    logical,
    trace,
)

M = Journal.MESSAGES
POLICY = StreamPolicy(timeout=0.5, queue_bytes_max=200_000)
"""Little memory: a burst of writes sends a follower back to the catch-up."""


class CutLink(FollowerLink):
    """A connection that ends after so many bytes from the master."""

    budget = 1 << 60

    def _write(self, data: bytes) -> None:
        if self._reason:
            return
        super()._write(data[: self.budget])
        self.budget -= len(data)
        if self.budget < 0:
            self._reason = "cut"
            assert self._transport is not None
            self._transport.close()


class CuttingServer(ReplicaServer):
    """A server that cuts its connections, while there are numbers left."""

    cuts: list[int]

    def _new_link(self) -> FollowerLink:
        link = super()._new_link()
        link.__class__ = CutLink
        if self.cuts:
            link.budget = self.cuts.pop(0)  # type: ignore[attr-defined]
        return link


class Pair:
    """Two stores, one of which is the master's."""

    def __init__(self, base: Path, cuts: Sequence[int]) -> None:
        self.cuts = list(cuts)
        self.roots = [base / "a", base / "b"]
        self.members = [MASTER, FOLLOWER]
        self.epoch = 1
        self.next_file = 1
        self.master: MasterNode
        self.copy: ReplicaFollower
        self.number = 0
        self.run_number = 0

    async def start(self) -> None:
        """Begin an epoch with the first store as the master's."""
        self.master = MasterNode(self.roots[0], POLICY, epoch=self.epoch, member=self.members[0])
        self.master.server.__class__ = CuttingServer
        self.master.server.cuts = self.cuts  # type: ignore[attr-defined]
        await self.master.start()
        for journal in Journal:
            self.begin(journal)
            self.write(journal, 1)
        self.follow()

    def follow(self) -> None:
        self.run_number += 1
        member = replace(self.members[1], run=f"l-{self.run_number}")
        options = ReceiverSettings(preallocate_bytes=self.run_number % 2 * 100_000)
        root, port = self.roots[1], self.master.port
        self.copy = follower(root, port, epoch=self.epoch, member=member, timeout=POLICY.timeout, settings=options)
        self.copy.start()

    def begin(self, journal: Journal) -> None:
        self.master.journals.begin(journal, self.next_file)
        self.next_file += 1

    def write(self, journal: Journal, size: int) -> None:
        self.number += 1
        self.master.journals.write(journal, trace(f"{self.number}" + "x" * size))

    def replace(self, index: int) -> None:
        finished = sorted(data_files(journals(self.roots[0])[M]))[:-1]
        if finished:
            self.number += 1
            self.master.journals.replace(M, finished[index % len(finished)], trace(f"compacted {self.number}"))

    def remove(self, count: int) -> None:
        finished = sorted(data_files(journals(self.roots[0])[M]))[:-1]
        if finished[:count]:
            self.master.journals.remove(M, *finished[:count])

    async def confirmed(self) -> None:
        """Wait until everything is confirmed."""
        await self.master.events.until_confirmed(self.master.journals.sequence, self.members[1].store)

    async def restart(self) -> None:
        await closed(self.copy)
        self.follow()

    async def switch(self, tail: Sequence[int]) -> None:
        """Have the follower become the master, while the master has a tail of which it may have a beginning."""
        await self.confirmed()
        confirmed = logical(self.roots[0])
        for size in tail:
            self.write(M, size)
        await closed(self.copy)
        await self.master.close()
        assert not is_unfinished(self.roots[1])
        found = logical(self.roots[1], may_be_torn=True)
        for key, content in confirmed.items():
            assert found[key].startswith(content), f"{key} lacks what was confirmed"
        self.roots.reverse()
        self.members.reverse()
        self.epoch += 1
        await self.start()

    async def end(self) -> None:
        await self.confirmed()
        await closed(self.copy)
        await self.master.close()
        assert_equal_stores(*self.roots)
        assert not is_unfinished(self.roots[1])


sizes = st.one_of(st.integers(0, 200), st.sampled_from([5000, 100_000, 1 << 20, 2_500_000]))
steps = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(Journal), st.lists(sizes, max_size=5)),
    st.tuples(st.just("begin"), st.sampled_from(Journal)),
    st.tuples(st.just("replace"), st.integers(0, 5)),
    st.tuples(st.just("remove"), st.integers(1, 2)),
    st.tuples(st.just("confirmed")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("switch"), st.lists(st.integers(0, 2000), max_size=3)),
)
cuts = st.lists(st.one_of(st.integers(0, 3000), st.integers(0, 2_000_000)), max_size=6)


async def _run(base: Path, history: Sequence[tuple[object, ...]], cuts: Sequence[int]) -> None:
    pair = Pair(base, cuts)
    await pair.start()
    for step in history:
        match step:
            case ("write", Journal() as journal, lengths):
                for size in cast("list[int]", lengths):
                    pair.write(journal, size)
                    await asyncio.sleep(0)
            case ("confirmed" | "restart" | "switch" as name, *arguments):
                await getattr(pair, str(name))(*arguments)
            case (name, *arguments):
                getattr(pair, str(name))(*arguments)
            case _:
                raise AssertionError(step)
    await pair.end()


@given(st.lists(steps, max_size=12), cuts)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_stores_are_equal_after_any_history(history: Sequence[tuple[object, ...]], cuts: Sequence[int]) -> None:
    with tempfile.TemporaryDirectory(dir=in_memory.place()) as directory:
        asyncio.run(_run(Path(directory), history, cuts))
