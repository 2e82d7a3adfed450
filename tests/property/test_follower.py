"""A follower's state equals a replay from the first file, whatever a master does at the same time."""

import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from pybroker.store.journal import store_snapshot
from pybroker.store.journal.follower import Follower
from pybroker.store.journal.reader import data_files
from pybroker.store.journal.replay import replay
from pybroker.store.journal.state import StoreState
from pybroker.store.journal.store import JournalStore
from pybroker.store.journal.store_snapshot import SNAPSHOT_NAME, follower
from tests.conformance.conftest import JournalLives, MemoryLives, bodies, snapshot, text_message
from tests.conformance.test_store_model import SETTINGS, Soak, StoreMachine
from tests.runtimes import runtime
from tests.unit.store.states import described

STEPS_MAX = 5000


def caught_up(reader: Follower) -> Follower:
    """Let a follower read all there is."""
    for _ in range(STEPS_MAX):
        if reader.advance().is_at_end:
            return reader
    raise AssertionError("the follower never comes to an end")


def check(reader: Follower) -> None:
    """Compare a follower that has read everything with a replay."""
    fresh = StoreState()
    replay(reader.directory, fresh)
    assert described(reader.state) == described(fresh)
    existing = data_files(reader.directory).keys()
    for file_id, answered in fresh.usage.references.items():
        # What was compacted is answered by no one any more. To believe it is keeps a file for longer, no more.
        assert answered <= reader.state.usage.references.get(file_id, set())
    for answered in reader.state.usage.references.values():
        assert answered <= existing
    for producer, (number, file_id) in fresh.sequences.items():
        assert reader.state.sequences.last(producer) == number
        assert reader.state.sequences.recorded_in([file_id])[producer] == number


class FollowedLives(JournalLives):
    """A journal whose masters begin with whatever there is to begin with, and write an index at each clean stop."""

    follower: Follower | None = None
    """The follower to promote next; None: begin with the snapshot, if there is one."""

    def _make(self) -> JournalStore:
        self.is_master = True
        follower, self.follower = self.follower, None
        return JournalStore(
            self.directory,
            settings=self.settings,
            runtime=runtime(self.loop.call_soon, fence=self._check, on_failure=self.failures.append),
            follower=follower,
            snapshot_bytes_min=0,
        )

    def checkpoint(self) -> None:
        """Have an index written, and wait for it."""
        self.store.write_snapshot()
        self.flush()
        self.loop.turn()
        for thread in threading.enumerate():
            if thread.name == "journal-snapshot":
                thread.join()


class FollowedMachine(StoreMachine):
    """A store, its model, and two followers: one that looks often, one that seldom does.

    A master that begins starts from its former master's follower, from the index, or from the first file.
    """

    make_journal = staticmethod(lambda directory: FollowedLives(directory, settings=SETTINGS))
    make_memory = staticmethod(MemoryLives)
    make_message = staticmethod(text_message)
    snapshot = staticmethod(snapshot)
    bodies = staticmethod(bodies)

    def __init__(self) -> None:
        super().__init__()
        self.followers = [Follower(self.directory), Follower(self.directory)]

    @rule(look=st.booleans())
    def follow(self, look: bool) -> None:
        self.followers[0].advance(scan=look)

    @rule()
    def follow_to_the_end(self) -> None:
        caught_up(self.followers[0])

    @rule(number=st.integers(0, 1))
    def compare(self, number: int) -> None:
        self.journal.flush()
        check(caught_up(self.followers[number]))

    @rule()
    def write_an_index(self) -> None:
        self.journal.checkpoint()

    @rule()
    def follow_from_the_index(self) -> None:
        self.followers[1] = follower(self.directory)

    @rule()
    def remove_the_index(self) -> None:
        (self.directory / SNAPSHOT_NAME).unlink(missing_ok=True)

    @rule(number=st.integers(0, 1))
    def promote_after_a_crash(self, number: int) -> None:
        self.journal.flush()
        self.memory.crash()
        self.journal.crash()
        self._promote(number)

    @rule(number=st.integers(0, 1))
    def promote_after_a_stop(self, number: int) -> None:
        self.memory.close()
        self.journal.close()
        self.journal.loop.turn()
        self._promote(number)

    def _promote(self, number: int) -> None:
        self.journal.follower = self.followers[number]
        self.followers[number] = Follower(self.directory)
        self.open_both()

    def teardown(self) -> None:
        self.journal.flush()
        for each in (*self.followers, follower(self.directory)):
            check(caught_up(each))
        super().teardown()


def test_a_follower_agrees_with_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_snapshot, "SLICE_MESSAGES", 2)  # so that queues are long, and materialised after a start
    run_state_machine_as_test(
        FollowedMachine,
        settings=settings(
            max_examples=25, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )


@pytest.mark.parametrize("seed", range(3))
def test_deletions_compactions_and_take_overs_need_no_rebuild(seed: int, tmp_path: Path) -> None:
    journal = JournalLives(tmp_path, settings=SETTINGS)
    journal.open()
    soak = Soak([journal.store], text_message, seed)
    soak.subscribe()
    close, late = Follower(tmp_path), Follower(tmp_path)
    for step in range(1, 901):
        soak.step()
        if step % 5 == 0:
            close.advance(scan=step % 25 == 0)
        if step % 15 == 0:
            journal.flush()
            caught_up(close)
            journal.cleanup()
        if step % 150 == 0:
            journal.flush()
            journal.crash()
            soak.forget_transaction()
            journal.open()
            soak.stores[0] = journal.store
        if step % 100 == 0:
            journal.flush()
            check(caught_up(close))
        if step % 300 == 0:
            check(caught_up(late))
    journal.crash()
    assert close.rebuild_count == 0
