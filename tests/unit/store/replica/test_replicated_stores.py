"""A master's stores with followers: what waits for confirmations, reserved numbers, and the broker's id."""

import os
import re
import threading
from pathlib import Path

import pytest

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.identity import BrokerIdentity
from pybroker.broker.domain.replica.operations import CutFile, Journal, RemoveFiles, ReplaceFile, WriteBatch
from pybroker.broker.domain.replica.plan import make_plan
from pybroker.store.journal import store_snapshot
from pybroker.store.journal.clean_stop import CLEAN_STOP
from pybroker.store.journal.format import data_file_name
from pybroker.store.journal.identity import stored_identity
from pybroker.store.journal.reader import data_files
from pybroker.store.replica.receiver import ReplicaReceiver
from tests.replicas import journals
from tests.unit.store.replica.replicated_stores import ReplicatedStores

MESSAGES, SCHEDULER = Journal.MESSAGES, Journal.SCHEDULER
FAR = {MESSAGES: 43, SCHEDULER: 9}


@pytest.fixture
def stores(tmp_path: Path) -> ReplicatedStores:
    it = ReplicatedStores(tmp_path)
    it.begin()
    it.settle()
    return it


def message_files(it: ReplicatedStores) -> list[int]:
    return sorted(data_files(journals(it.root)[MESSAGES]))


def fill_files(it: ReplicatedStores, count: int, first: int = 1) -> None:
    """Send a file's worth of messages, and consume them."""
    for number in range(first, first + count):
        it.send(number, 3500)
    for number in range(first, first + count):
        it.consume(number)


def write_all(it: ReplicatedStores) -> None:
    """Let the own disk have everything, and confirm nothing."""
    done = threading.Event()
    it.messages._writer.end_batch()
    it.messages._writer._commits._inbox.put(done.set)  # behind the batches, as a job that waits for no follower
    assert done.wait(20)
    while it.loop.ready:
        it.loop.turn()


def keep_all(root: Path) -> None:
    """Join a master that has the same files."""
    copy = ReplicaReceiver(root, journals(root))
    manifest = copy.examine()
    copy.begin(1, make_plan(manifest, manifest, {}, {}))
    copy.close()


class TestPromotion:
    def test_snapshot_of_a_member_that_has_followed_stays_of_use(self, tmp_path: Path) -> None:
        former = ReplicatedStores(tmp_path)
        former.begin()
        former.send(1)
        former.settle()
        former.close()
        path = journals(tmp_path)[MESSAGES] / data_file_name(1)
        length = path.stat().st_size
        os.truncate(path, length + 1000)  # as the copy of it, which a follower has begun with room for more
        it = ReplicatedStores(tmp_path, former.next_first_files())
        assert path.stat().st_size == length
        it.begin()
        it.settle()
        it.messages._snapshot_writer._grown_bytes_min = 0
        it.close()
        keep_all(tmp_path)
        follower = store_snapshot.follower(path.parent)
        follower.finish()
        assert follower.resumed_at.file_id == it.messages.epoch
        assert follower.rebuild_count == 0

    def test_it_begins_with_the_numbers_that_it_was_given(self, tmp_path: Path) -> None:
        it = ReplicatedStores(tmp_path, FAR)
        assert it.messages.epoch == 43
        assert it.begin() == 4
        it.settle()
        assert {journal: list(data_files(path)) for journal, path in journals(tmp_path).items()} == {
            MESSAGES: [43],
            SCHEDULER: [9],
        }
        it.kill()

    @pytest.mark.parametrize("taken", [43, 44])
    def test_a_number_that_is_taken_ends_it(self, tmp_path: Path, taken: int) -> None:
        directory = journals(tmp_path)[MESSAGES]
        directory.mkdir(parents=True)
        (directory / f"db-{taken}.log").write_bytes(b"")
        with pytest.raises(StoreUnavailable, match=re.escape(f"db-{taken}.log is there, and this promotion begins")):
            ReplicatedStores(tmp_path, FAR)
        assert list(data_files(directory)) == [taken]

    def test_a_number_that_is_not_reserved_ends_it(self, tmp_path: Path) -> None:
        with pytest.raises(StoreUnavailable, match=r"db-43\.log may not be begun"):
            ReplicatedStores(tmp_path, FAR, ahead=-1)

    def test_it_waits_for_its_first_record_to_be_confirmed(self, tmp_path: Path) -> None:
        it = ReplicatedStores(tmp_path)
        told: list[str] = []
        it.messages.when_durable(lambda: told.append("messages"))
        it.jobs.when_durable(lambda: told.append("jobs"))
        floor = it.begin()
        while it.loop.ready:
            it.loop.turn()
        assert (told, it.synced) == ([], floor)
        it.confirm(floor - 1)
        assert told == ["messages"]
        it.confirm(floor)
        assert told == ["messages", "jobs"]
        it.kill()

    def test_messages_and_jobs_are_those_of_the_former_master(self, tmp_path: Path, stores: ReplicatedStores) -> None:
        stores.send(1)
        stores.schedule(2)
        stores.settle()
        stores.kill()
        heir = ReplicatedStores(tmp_path, FAR, copy=stores.copy)
        heir.begin()
        assert [len(ids) for ids in heir.recovery.queues.values()] == [1]
        assert [job.job_id for job in heir.found_jobs] == ["job-2"]
        heir.send(3)
        heir.settle()
        heir.assert_copied()
        assert message_files(heir) == [1, 43]
        heir.kill()


class TestConfirmation:
    def test_a_message_on_the_own_disk_alone_is_not_confirmed(self, stores: ReplicatedStores) -> None:
        stores.send(1)
        write_all(stores)
        assert stores.synced == len(stores.shipped)
        assert stores.told == 0
        assert stores.messages.unwritten_bytes > 0, "producers feel a slow follower"
        stores.confirm()
        assert (stores.told, stores.messages.unwritten_bytes) == (1, 0)
        stores.kill()

    def test_files_are_removed_once_that_is_confirmed_on_which_it_rests(self, stores: ReplicatedStores) -> None:
        fill_files(stores, 3)
        stores.messages.cleanup()
        write_all(stores)
        assert message_files(stores) == [1, 2, 3]
        assert not [each for _, each in stores.shipped if isinstance(each, RemoveFiles)]
        stores.settle()
        assert message_files(stores) == [3]
        (removal,) = (each for _, each in stores.shipped if isinstance(each, RemoveFiles))
        assert removal == RemoveFiles(MESSAGES, [1, 2])
        stores.kill()

    def test_files_are_compacted_once_that_is_confirmed_on_which_it_rests(self, stores: ReplicatedStores) -> None:
        stores.send(1)  # stays, and keeps the acknowledgements of its file's other messages
        for number in range(2, 60):
            stores.send(number, 400)
            if number > 4:
                stores.consume(number - 3)
        stores.settle()
        stores.consume(59)  # the cleanup is decided with this, and it is not confirmed
        stores.messages.cleanup()
        write_all(stores)
        assert not [each for _, each in stores.shipped if isinstance(each, ReplaceFile)]
        stores.settle()
        assert [each for _, each in stores.shipped if isinstance(each, ReplaceFile)]
        stores.assert_copied()
        stores.kill()

    def test_a_stop_in_order_ships_its_remark(self, stores: ReplicatedStores) -> None:
        stores.send(1)
        stores.close()
        batches = [each for _, each in stores.shipped if isinstance(each, WriteBatch)]
        assert CLEAN_STOP.encode() in b"".join(batches[-1].content)
        assert stores.sequencer.last == stores.synced
        stores.assert_copied()


class TestReservedNumbers:
    def full(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> ReplicatedStores:
        """Return stores that need a number which is not reserved."""
        it = ReplicatedStores(tmp_path, ahead=1)
        it.begin()
        for number in range(1, 4):
            it.send(number, 3500)

        def is_waiting() -> bool:
            it.confirm()
            return "db-3.log waits" in caplog.text

        it.messages._writer.end_batch()
        while not is_waiting():
            it.loop.turn()
        return it

    def test_a_file_waits_for_its_number(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        it = self.full(tmp_path, caplog)
        assert message_files(it) == [1, 2]
        assert it.file_reports[-1] == {MESSAGES: 3, SCHEDULER: 1}
        assert not [each for _, each in it.shipped if isinstance(each, CutFile) and each.file_id == 2]
        assert it.told < 3
        it.sequencer.reserve({MESSAGES: 3, SCHEDULER: 2})
        it.settle()
        assert message_files(it) == [1, 2, 3]
        it.assert_copied()
        it.kill()

    def test_a_stop_without_a_number_is_no_stop_in_order(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        it = self.full(tmp_path, caplog)
        with pytest.raises(StoreUnavailable, match=r"db-3\.log may not be begun: its number is not reserved"):
            it.messages.close()
        it.jobs.abandon()

    def test_a_master_that_loses_its_lock_waits_no_longer(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        it = self.full(tmp_path, caplog)
        it.kill()
        worker = it.messages._writer._commits._worker
        assert worker is not None
        worker.join(20)
        assert not worker.is_alive()
        assert message_files(it) == [1, 2]


class TestIdentity:
    CLUSTER = BrokerIdentity("ID:cluster-1", "localhost")

    def test_a_store_that_is_new_gets_the_id_of_the_cluster(self, tmp_path: Path) -> None:
        it = ReplicatedStores(tmp_path, identity=self.CLUSTER)
        assert it.recovery.broker_id == "ID:cluster-1"
        it.kill()

    def test_a_store_with_another_id_gets_that_of_the_cluster(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        former = ReplicatedStores(tmp_path, identity=BrokerIdentity("ID:own-1", "localhost"))
        former.kill()
        it = ReplicatedStores(tmp_path, FAR, identity=self.CLUSTER)
        assert it.recovery.broker_id == "ID:cluster-1"
        assert stored_identity(journals(tmp_path)[MESSAGES]) == self.CLUSTER
        assert "the broker's id was ID:own-1, and is that of the cluster now: ID:cluster-1" in caplog.text
        it.kill()
