"""What the journal's store does in pieces: the removal of a long queue, and a cleanup with very many subscriptions."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.store.journal.cleanup import VISITED_AT_ONCE
from tests.unit.store.test_journal_store import QUEUE, Bench, message, names


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "kahadb"


class TestLongCleanup:
    """A cleanup that visits very many subscriptions: in pieces, by a timer."""

    def begun(self, directory: Path) -> tuple[Bench, list[Callable[[], None]]]:
        alarms: list[Callable[[], None]] = []
        bench = Bench(directory, call_later=lambda _, callback: alarms.append(callback))
        bench.store.recover()
        for number in range(VISITED_AT_ONCE):
            place = topic(f"T{number}")
            bench.store.subscribe(
                DurableSubscription(client_id="c", name="s", destination=place, subscribed_destination=place)
            )
        for number in range(100):
            bench.store.add(message(number, size=100))
            bench.store.remove(QUEUE, message(number).message_id)
        bench.sync()
        alarms.clear()
        bench.store.cleanup()
        assert len(alarms) == 1
        assert bench.store.is_cleaning
        return bench, alarms

    def test_files_go_after_the_last_piece(self, directory: Path) -> None:
        bench, alarms = self.begun(directory)
        before = names(directory)
        bench.store.cleanup()  # does not begin another
        while alarms:
            alarms.pop()()
        bench.sync()
        assert len(names(directory)) < len(before)
        assert not bench.store.is_cleaning
        bench.store.close()

    def test_what_a_commit_in_pieces_sends_to_a_durable_subscription_survives(self, directory: Path) -> None:
        bench = Bench(directory)
        bench.store.recover()
        place = topic("T")
        bench.store.subscribe(
            DurableSubscription(client_id="c", name="s", destination=place, subscribed_destination=place)
        )
        for number in range(100):
            bench.store.add(message(number, size=100))
            bench.store.remove(QUEUE, message(number).message_id)
        transaction = LocalTransactionId("ID:c:1", 1)
        for number in range(200, 300):
            bench.store.add(message(number), transaction)
        bench.store.add(message(300, destination=place), transaction)
        steps = bench.store.commit_steps(transaction)
        next(steps)
        bench.store.cleanup()  # would write the subscription again, behind the commit
        for _ in steps:
            pass
        bench.sync()
        bench.store.abandon()
        new_master = Bench(directory)
        (backlog,) = new_master.store.recover().backlogs
        assert list(backlog.message_ids) == [message(300).message_id]
        new_master.store.abandon()

    def test_an_error_of_a_later_piece_is_reported(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        bench, alarms = self.begun(directory)

        def fail(*_: object) -> None:
            raise ValueError("a bug")

        monkeypatch.setattr(bench.store._collector, "_remove_unneeded", fail)
        while alarms:
            alarms.pop()()
        assert [str(error) for error in bench.failures] == ["a bug"]
        assert not bench.store.is_cleaning
        bench.store.abandon()

    def test_nothing_is_written_once_the_store_is_given_up(self, directory: Path) -> None:
        bench, alarms = self.begun(directory)
        bench.store.abandon()
        before = names(directory)
        for alarm in alarms:
            alarm()
        assert names(directory) == before
        assert bench.failures == []

    def test_a_stop_cleans_up_at_once(self, directory: Path) -> None:
        bench, alarms = self.begun(directory)
        before = names(directory)
        bench.store.close()
        after = names(directory)
        for alarm in alarms:
            alarm()
        assert names(directory) == after
        assert len(after) < len(before)


class TestLongRemoval:
    """The removal of a long queue: recorded at once, and counted in pieces."""

    COUNT = 10_000

    def filled(self, directory: Path) -> tuple[Bench, list[Callable[[], None]]]:
        alarms: list[Callable[[], None]] = []
        bench = Bench(directory, call_later=lambda _, callback: alarms.append(callback))
        bench.store.recover()
        for number in range(self.COUNT):
            bench.store.add(message(number))
        bench.sync()
        alarms.clear()
        return bench, alarms

    @staticmethod
    def live(bench: Bench) -> int:
        return sum(bench.store._state.usage.live.values())

    def test_messages_are_counted_in_pieces_by_one_timer(self, directory: Path) -> None:
        bench, alarms = self.filled(directory)
        bench.store.remove_destination(QUEUE)
        bench.store.add(message(1, destination=queue("OTHER")))
        bench.store.remove_destination(queue("OTHER"))
        left = [self.live(bench)]
        while alarms:
            assert len(alarms) == 1
            alarms.pop()()
            left.append(self.live(bench))
        assert left == sorted(left, reverse=True)
        assert len(left) > 2
        assert left[-1] == 0
        bench.store.close()

    def test_a_crash_during_it_leaves_no_message(self, directory: Path) -> None:
        bench, alarms = self.filled(directory)
        bench.store.remove_destination(QUEUE)
        assert self.live(bench)
        bench.store.cleanup()
        bench.sync()
        bench.store.abandon()
        for alarm in alarms:
            alarm()
        other = Bench(directory)
        assert other.store.recover().queues == {}
        other.store.close()

    def test_a_snapshot_or_the_end_has_all_counted(self, directory: Path) -> None:
        bench, _ = self.filled(directory)
        bench.store.remove_destination(QUEUE)
        bench.store.write_snapshot()
        assert self.live(bench) == 0
        for number in range(self.COUNT):
            bench.store.add(message(number))
        bench.store.remove_destination(QUEUE)
        bench.store.close()
        assert self.live(bench) == 0


class TestRetroactiveSubscription:
    """A durable subscription that gets what its topic has: in pieces, by a timer."""

    COUNT = 5_000

    def begun(self, directory: Path) -> tuple[Bench, list[Callable[[], None]]]:
        alarms: list[Callable[[], None]] = []
        bench = Bench(directory, call_later=lambda _, callback: alarms.append(callback))
        bench.store.recover()
        self.subscribe(bench, "first")
        for number in range(self.COUNT):
            bench.store.add(message(number, destination=topic("T")))
        bench.sync()
        alarms.clear()
        found = self.subscribe(bench, "second", retroactive=True)
        assert list(found) == [message(number).message_id for number in range(self.COUNT)]
        assert alarms
        return bench, alarms

    def subscribe(self, bench: Bench, name: str, *, retroactive: bool = False) -> Sequence[str]:
        place = topic("T")
        made = DurableSubscription(client_id="c", name=name, destination=place, subscribed_destination=place)
        return bench.store.subscribe(made, retroactive=retroactive)

    def test_acknowledgements_of_both_between_the_pieces_count(self, directory: Path) -> None:
        bench, alarms = self.begun(directory)
        for number in range(self.COUNT - 1):
            bench.store.acknowledge(topic("T"), "c:first", message(number).message_id)
        for number in range(1, self.COUNT, 2):
            bench.store.acknowledge(topic("T"), "c:second", message(number).message_id)
        while alarms:
            alarms.pop()()
        for number in range(2, self.COUNT, 2):
            bench.store.acknowledge(topic("T"), "c:second", message(number).message_id)
        assert list(bench.store._state.destinations[topic("T")].messages) == [
            message(number).message_id for number in (0, self.COUNT - 1)
        ]
        bench.sync()
        bench.store.abandon()
        new_master = Bench(directory)
        left = {each.subscription.name: list(each.message_ids) for each in new_master.store.recover().backlogs}
        assert left == {"first": [message(self.COUNT - 1).message_id], "second": [message(0).message_id]}
        new_master.store.abandon()

    def test_snapshot_waits_for_the_last_piece(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        bench, alarms = self.begun(directory)
        written: list[bool] = []
        monkeypatch.setattr(bench.store._snapshot_writer, "is_due", lambda *_: True)
        monkeypatch.setattr(bench.store, "write_snapshot", lambda: written.append(True))
        bench.store.cleanup()
        assert not written
        while alarms:
            alarms.pop()()
        bench.store.cleanup()
        assert written
        bench.store.abandon()
