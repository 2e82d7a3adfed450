# mypy: disable-error-code="override"
"""The scheduler's journal: ActiveMQ's, the records of each job, removal of files, take-overs."""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.errors import JournalCorrupt, LockNotHeld, StoreUnavailable
from pybroker.broker.domain.jobs import FOR_EVER, Job
from pybroker.broker.domain.openwire.message import decode as decode_message
from pybroker.store.journal.appender import JournalSettings, Preallocation
from pybroker.store.journal.commands import (
    AddMessage,
    AddScheduledJob,
    Command,
    DestroyScheduler,
    RemoveScheduledJob,
    RemoveScheduledJobs,
    RescheduleJob,
    decode,
    encode,
)
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import EOF_MARKER, data_file_name, encode_batch, encode_record
from pybroker.store.journal.reader import DataFileWalk, data_files, load
from pybroker.store.scheduler.store import JournalJobStore
from tests.runtimes import runtime, wait_for_end

ONE_JOB_EACH = JournalSettings(file_bytes_max=300, batch_bytes_max=1500, preallocation=Preallocation.NONE)
"""Files that hold one job of 200 bytes each."""


class Turns:
    """An event loop's scheduling calls."""

    def __init__(self) -> None:
        self.ready: list[Callable[[], None]] = []
        self.failures: list[Exception] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.ready.append(callback)

    def turn(self) -> None:
        ready, self.ready = self.ready, []
        for callback in ready:
            callback()


class Life:
    """One run of a store on a directory."""

    def __init__(
        self,
        directory: Path,
        settings: JournalSettings | None = None,
        fence: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        self.turns = Turns()
        self.store = JournalJobStore(
            directory,
            settings=settings,
            runtime=runtime(self.turns.call_soon, fence=fence, on_failure=self.turns.failures.append),
            **options,
        )
        self.jobs = {job.job_id: job for job in self.store.recover()}

    def flush(self) -> None:
        """Wait for the writer's thread, and run its callbacks."""
        done = threading.Event()
        self.store._writer.submit(done.set)
        assert done.wait(20)
        self.turns.turn()

    def cleanup(self) -> None:
        self.store.cleanup()
        self.flush()

    def kill(self) -> None:
        self.flush()
        self.store.abandon()


def job(job_id: str, next_time: int = 1000, **fields: Any) -> Job:
    return Job(job_id=job_id, start_time=1, next_time=next_time, data=fields.pop("data", b"x" * 200), **fields)


def added(job_id: str, time: int, **fields: Any) -> AddScheduledJob:
    values = {"scheduler": "JMS", "start_time": 1, "cron_entry": "", "delay": 0, "period": 0, "repeat": 0}
    values |= {"payload": b"payload", **fields}
    return AddScheduledJob(job_id=job_id, next_execution_time=time, **values)  # type: ignore[arg-type]


def write(directory: Path, **files: Sequence[Command]) -> None:
    """Write data files `db1`, `db2`, … of one batch each."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, commands in files.items():
        batch = encode_batch([encode_record(encode(command)) for command in commands])
        (directory / data_file_name(int(name[2:]))).write_bytes(batch + EOF_MARKER)


def literally(directory: Path) -> set[tuple[str, int, int]]:
    """Return name, time and repeat of the jobs in a journal as ActiveMQ reads it, which makes no allowances."""
    jobs: dict[tuple[int, str], AddScheduledJob] = {}
    for file_id, path in data_files(directory).items():
        for _, payload in DataFileWalk(load(path), file_id):
            match decode(payload):
                case AddScheduledJob() as made:
                    jobs.setdefault((made.next_execution_time, made.job_id), made)
                case RescheduleJob(_, job_id, time, next_time, _):
                    moved = jobs.pop((time, job_id), None)
                    if moved is not None:
                        runs = moved.repeat - 1 if moved.repeat > 0 and not moved.cron_entry else moved.repeat
                        jobs[next_time, job_id] = moved._replace(repeat=runs)
                case RemoveScheduledJob(_, job_id, time):
                    jobs.pop((time, job_id), None)
                case RemoveScheduledJobs(_, start, end):
                    jobs = {key: made for key, made in jobs.items() if not start <= key[0] <= end}
                case _:
                    pass
    return {(job_id, time, made.repeat) for (time, job_id), made in jobs.items()}


def known(jobs: Sequence[Job]) -> set[tuple[str, int, int]]:
    return {(job.job_id, job.next_time, job.repeat) for job in jobs}


# ---------------------------------------------------------------- ActiveMQ's journal


def test_activemqs_own_jobs(sample: Callable[[str], Any]) -> None:
    found = sample("09-scheduled")
    life = Life(found.scheduler)
    for captured in found.facts["truth_journal_only"]["scheduled"]:
        read = life.jobs.pop(captured["job_id"])
        message = decode_message(life.store.load(read))
        assert (read.start_time, read.delay, read.period) == (
            captured["start_time"],
            captured["delay"],
            captured["period"],
        )
        assert (read.repeat, read.cron, read.run_count) == (
            captured["repeat"],
            captured["cron"],
            captured["execution_count"],
        )
        assert read.next_time == captured["next_execution_millis"]
        assert (message.text(), str(message.destination)) == (captured["text"], captured["destination"])
        assert str(message.message_id) == captured["message_id"]
    assert not life.jobs
    life.store.abandon()


def test_activemqs_index_goes(sample: Callable[[str], Any]) -> None:
    directory = sample("09-scheduled").scheduler
    Life(directory).store.close()
    assert sorted(path.name for path in directory.iterdir()) == ["db-1.log", "db-2.log", "lock"]


def test_records_about_what_is_not_there_mean_nothing(tmp_path: Path) -> None:
    write(
        tmp_path,
        db1=[
            RescheduleJob("JMS", "no one", 1, 2, 1),
            RemoveScheduledJob("JMS", "no one", 1),
            RemoveScheduledJob("JMS", "no one", -1),
            RemoveScheduledJobs("JMS", 0, 10),
            added("a", 100),
            added("a", 100),
            RemoveScheduledJob("JMS", "a", 99),
            RescheduleJob("JMS", "a", 101, 200, 1),
        ],
    )
    life = Life(tmp_path)
    assert known(list(life.jobs.values())) == {("a", 100, 0)}
    life.store.abandon()


def test_removal_whatever_the_time(tmp_path: Path) -> None:
    write(tmp_path, db1=[added("a", 100), added("b", 100), RemoveScheduledJob("JMS", "a", -1)])
    life = Life(tmp_path)
    assert list(life.jobs) == ["b"]
    life.store.abandon()


def test_a_destroyed_scheduler_and_one_that_is_not_ours(tmp_path: Path) -> None:
    other = added("foreign", 100, scheduler="other")
    write(tmp_path, db1=[added("a", 100), other, DestroyScheduler("JMS"), added("b", 100)], db2=[])
    life = Life(tmp_path)
    assert list(life.jobs) == ["b"]
    life.store.remove(life.jobs["b"])
    life.cleanup()
    assert (tmp_path / "db-1.log").exists(), "it holds someone's job"
    life.store.abandon()


# ---------------------------------------------------------------- what ActiveMQ's index knew

LOST_MOVES: dict[str, Any] = {
    "db1": [added("stays", 9000), added("a", 100, repeat=8, period=100)],
    # db2 moved the job from 100 to 200 and to 300; collected, because a later move is known
    "db3": [RescheduleJob("JMS", "a", 300, 400, 3)],
}


def test_a_job_with_collected_moves_is_at_its_last_move(tmp_path: Path) -> None:
    write(tmp_path, **LOST_MOVES)
    assert literally(tmp_path) == {("stays", 9000, 0), ("a", 100, 8)}, "what a recovery without index makes of it"
    life = Life(tmp_path)
    assert known(list(life.jobs.values())) == {("stays", 9000, 0), ("a", 400, 5)}
    life.kill()
    assert literally(tmp_path) == {("stays", 9000, 0), ("a", 400, 5)}, "and now the journal itself records it"


def test_a_job_that_ended_after_collected_moves_is_over(tmp_path: Path) -> None:
    write(tmp_path, **LOST_MOVES, db4=[RemoveScheduledJob("JMS", "a", 400)])
    life = Life(tmp_path)
    assert list(life.jobs) == ["stays"]
    life.kill()
    assert literally(tmp_path) == {("stays", 9000, 0)}


def test_a_record_of_another_time_does_not_move_a_single_job(tmp_path: Path) -> None:
    """One of two jobs of one name ended, and the file with its addition was collected."""
    write(tmp_path, db1=[added("same", 100)], db3=[RemoveScheduledJob("JMS", "same", 200)])
    life = Life(tmp_path)
    assert list(life.jobs) == ["same"]
    life.store.abandon()


@pytest.mark.parametrize(("start", "end", "left"), [(50, 150, {"a"}), (350, 450, set()), (0, 9999, set())])
def test_ranges_mean_the_time_a_job_really_has(tmp_path: Path, start: int, end: int, left: set[str]) -> None:
    write(tmp_path, **LOST_MOVES, db4=[RemoveScheduledJobs("JMS", start, end), added("new", 1)])
    life = Life(tmp_path)
    assert set(life.jobs) - {"stays"} == left | {"new"}
    expected = known(list(life.jobs.values()))
    life.kill()
    assert literally(tmp_path) == expected


# ---------------------------------------------------------------- which files go


def files(directory: Path) -> set[int]:
    return set(data_files(directory))


def test_files_without_live_jobs_go_and_take_nothing_along(tmp_path: Path) -> None:
    life = Life(tmp_path, ONE_JOB_EACH)
    jobs = [job(f"j{number}") for number in range(6)]
    life.store.add(*jobs)
    for each in jobs[:3]:
        life.store.remove(each)
    life.cleanup()
    assert not files(tmp_path) & {1, 2, 3}
    expected = known(jobs[3:])
    life.kill()
    assert literally(tmp_path) == expected


def test_a_record_stays_as_long_as_what_it_makes_void(tmp_path: Path) -> None:
    """The removal of `gone` is in a later file than its addition, which stays because of `stays`."""
    settings = JournalSettings(file_bytes_max=700, preallocation=Preallocation.NONE, compact_after_cleanups=0)
    life = Life(tmp_path, settings)
    stays, gone = job("stays", 9000), job("gone")
    life.store.add(stays, gone)
    life.store.remove(gone)
    for number in range(12):
        passing = job(f"p{number}")
        life.store.add(passing)
        life.store.remove(passing)
    life.flush()
    assert len(files(tmp_path)) > 5
    for _ in range(3):
        life.cleanup()
    life.kill()
    assert literally(tmp_path) == {("stays", 9000, 0)}
    life = Life(tmp_path, settings)
    assert list(life.jobs) == ["stays"]
    life.store.abandon()


def test_one_job_of_long_ago_does_not_keep_all_that_followed(tmp_path: Path) -> None:
    settings = JournalSettings(file_bytes_max=2000, preallocation=Preallocation.NONE, compact_after_cleanups=2)
    life = Life(tmp_path, settings)
    old = job("old", 9000)
    life.store.add(old)
    previous = job("first")
    life.store.add(previous)
    for number in range(40):  # each job ends in the file of the next: a chain down to the oldest file
        following = job(f"p{number}")
        life.store.add(following)
        life.store.remove(previous)
        previous = following
    life.store.remove(previous)
    life.flush()
    assert len(files(tmp_path)) > 5
    for _ in range(5):
        life.cleanup()
    assert len(files(tmp_path)) <= 2
    assert life.store.load(old) == b"x" * 200
    life.kill()
    assert literally(tmp_path) == {("old", 9000, 0)}


def test_a_job_that_repeats_for_ever_does_not_grow_the_journal(tmp_path: Path) -> None:
    life = Life(tmp_path, JournalSettings(file_bytes_max=1000, preallocation=Preallocation.NONE))
    endless = job("endless", 0, repeat=FOR_EVER)
    life.store.add(endless)
    for time in range(1, 200):
        life.store.reschedule(endless, time)
        if time % 20 == 0:
            life.cleanup()
    life.cleanup()
    assert len(files(tmp_path)) <= 2
    life.kill()
    assert literally(tmp_path) == {("endless", 199, FOR_EVER)}


def test_files_can_be_kept_elsewhere(tmp_path: Path) -> None:
    archive = tmp_path / "data-archive"
    settings = JournalSettings(file_bytes_max=300, preallocation=Preallocation.NONE, archive_directory=archive)
    life = Life(tmp_path, settings)
    gone = job("gone")
    life.store.add(gone, job("other"))
    life.store.remove(gone)
    life.cleanup()
    life.store.close()
    assert "db-1.log" in {path.name for path in archive.iterdir()}


def test_a_file_that_cannot_be_removed_does_not_end_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Stubborn(JournalFiles):
        def remove(self, *paths: Path) -> None:
            if any(path.name.endswith(".log") for path in paths):
                raise PermissionError(1, "not yours", str(paths[0]))
            super().remove(*paths)

    life = Life(tmp_path, ONE_JOB_EACH, files=Stubborn(tmp_path))
    gone = job("gone")
    life.store.add(gone, job("other"))
    life.store.remove(gone)
    with caplog.at_level(logging.WARNING):
        life.cleanup()
    assert "this cleanup ends early" in caplog.text
    assert not life.store.is_cleaning
    assert not life.turns.failures
    life.store.abandon()


# ---------------------------------------------------------------- memory


def test_messages_beyond_the_limit_are_read_back(tmp_path: Path) -> None:
    life = Life(tmp_path, ONE_JOB_EACH, held_bytes_max=450)
    jobs = [job(f"j{number}", data=bytes([number]) * 200) for number in range(5)]
    life.store.add(*jobs)
    assert all(each.data for each in jobs), "what is not on disk yet cannot be read from there"
    life.flush()
    assert [each.data is None for each in jobs] == [False, False, True, True, True]
    assert [life.store.load(each)[0] for each in jobs] == [0, 1, 2, 3, 4]
    life.store.remove(jobs[0])
    life.store.remove(jobs[1])
    late = job("late")
    life.store.add(late)
    life.flush()
    assert late.data is not None, "there is space again"
    life.kill()
    life = Life(tmp_path, ONE_JOB_EACH, held_bytes_max=450)
    assert {name for name, each in life.jobs.items() if each.data is None} == {"j2", "j3", "j4"}
    life.store.abandon()


def test_a_job_that_cannot_be_read_back_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    life = Life(tmp_path, ONE_JOB_EACH, held_bytes_max=0)
    lost, other = job("lost", repeat=5), job("other")
    life.store.add(lost, other)
    life.flush()
    (path,) = (path for path in data_files(tmp_path).values() if b"lost" in path.read_bytes())
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(JournalCorrupt, match=path.name):
        life.store.load(lost)
    assert life.store.load(other) == b"x" * 200
    life.store.reschedule(lost, 2000)
    assert "stays where it is" in caplog.text
    path.unlink()
    with pytest.raises(StoreUnavailable):
        life.store.load(lost)
    life.store.abandon()


# ---------------------------------------------------------------- damage, former masters, failures


def test_a_torn_tail_is_cut_and_damage_reported(tmp_path: Path) -> None:
    write(tmp_path, db1=[added("a", 1)], db2=[added("b", 1)], db3=[added("c", 1)])
    for name in ("db-2.log", "db-3.log"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-20])
    torn = path.read_bytes()
    life = Life(tmp_path)
    assert list(life.jobs) == ["a"]
    assert [damage.file_id for damage in life.store.damages] == [2], "the last file's tail may be torn"
    assert (tmp_path / "db-3.log").read_bytes() == EOF_MARKER
    assert (tmp_path / "damaged" / "db-3.log").read_bytes() == torn, "it may be damage to a whole one"
    life.store.abandon()


def test_records_of_messages_and_garbage_are_damage(tmp_path: Path) -> None:
    write(tmp_path, db1=[AddMessage(queue("Q"), "ID:1", b"m", 4, False, None), added("a", 1)])
    garbage = encode_batch([encode_record(b"\x0b\x05hello")]) + EOF_MARKER
    (tmp_path / "db-2.log").write_bytes(garbage)
    life = Life(tmp_path)
    assert list(life.jobs) == ["a"]
    assert len(life.store.damages) == 2
    life.store.abandon()


def test_a_newer_versions_journal_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "db-1.log").write_bytes(encode_batch([encode_record(b"\x63\x00")]) + EOF_MARKER)
    before = (tmp_path / "db-1.log").read_bytes()
    with pytest.raises(JournalCorrupt, match="newer version"):
        Life(tmp_path)
    assert (tmp_path / "db-1.log").read_bytes() == before
    assert files(tmp_path) == {1}


@pytest.mark.parametrize("clean", [True, False])
def test_a_former_master_that_is_still_alive_writes_into_nothing(tmp_path: Path, clean: bool) -> None:
    former = Life(tmp_path)
    former.store.add(job("a"))
    former.flush()
    if clean:
        former.store.close()
    before = (tmp_path / "db-1.log").stat().st_ino
    new_master = Life(tmp_path)
    assert list(new_master.jobs) == ["a"]
    assert ((tmp_path / "db-1.log").stat().st_ino == before) is clean, "a clean stop needs no copy"
    if not clean:
        former.store.add(job("late"))
        with pytest.raises(LockNotHeld, match=r"db-2\.log is its own"):
            former.store.close()
    new_master.store.abandon()
    assert list(Life(tmp_path).jobs) == ["a"]


@pytest.mark.parametrize("tail", [EOF_MARKER, b"\0\0\0\x1c\x02WRITE BATCH\0\0"], ids=["whole", "torn"])
def test_master_that_only_claimed_a_number_is_cut_off(tmp_path: Path, tail: bytes) -> None:
    write(tmp_path, db1=[added("a", 1)])
    path = tmp_path / "db-1.log"
    path.write_bytes(path.read_bytes().removesuffix(EOF_MARKER) + tail)
    claimed = JournalFiles(tmp_path).create(2)

    life = Life(tmp_path)
    assert list(life.jobs) == ["a"]
    assert not life.store.damages, "what is torn below an empty file was written last"
    late = path.read_bytes()
    assert late.endswith(EOF_MARKER)
    JournalFiles(tmp_path).write(claimed, (late,), 0)
    JournalFiles(tmp_path).close(claimed)
    life.kill()
    assert (tmp_path / "db-2.log").read_bytes() == EOF_MARKER
    assert list(Life(tmp_path).jobs) == ["a"]


def test_damage_to_a_whole_file_is_no_claim(tmp_path: Path) -> None:
    write(tmp_path, db1=[added("a", 1)])
    path = tmp_path / "db-1.log"
    path.write_bytes(path.read_bytes()[:-20])
    (tmp_path / "db-2.log").write_bytes(b"\1" * 100)
    life = Life(tmp_path)
    assert [damage.file_id for damage in life.store.damages] == [1], "only the last may be torn"
    life.kill()


def test_a_failed_write_is_reported_once_and_ends_the_store(tmp_path: Path) -> None:
    class Broken(JournalFiles):
        fails = False

        def write(self, descriptor: int, buffers: Sequence[bytes], offset: int) -> None:
            if self.fails:
                raise OSError(5, "Input/output error")
            super().write(descriptor, buffers, offset)

    disk = Broken(tmp_path)
    life = Life(tmp_path, files=disk)
    notified: list[str] = []
    disk.fails = True
    life.store.add(job("a"))
    life.store.when_durable(lambda: notified.append("safe"))
    life.turns.turn()
    wait_for_end(life.store._writer._commits._worker)
    life.turns.turn()
    assert len(life.turns.failures) == 1
    assert not notified
    with pytest.raises(StoreUnavailable):
        life.store.add(job("b"))


def test_a_master_that_lost_its_lock_promises_nothing(tmp_path: Path) -> None:
    is_master = True

    def check() -> None:
        if not is_master:
            raise LockNotHeld("gone")

    life = Life(tmp_path, fence=check)
    notified: list[str] = []
    is_master = False
    life.store.add(job("a"))
    life.store.when_durable(lambda: notified.append("safe"))
    life.turns.turn()
    wait_for_end(life.store._writer._commits._worker)
    life.turns.turn()
    assert [type(failure) for failure in life.turns.failures] == [LockNotHeld]
    assert not notified
    with pytest.raises(LockNotHeld):
        Life(tmp_path, fence=check)


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "scheduler").write_text("a file")
    with pytest.raises(StoreUnavailable):
        Life(tmp_path / "scheduler")
