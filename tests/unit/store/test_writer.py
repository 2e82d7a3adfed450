# mypy: disable-error-code="arg-type, call-overload, override"
"""The journal writer: batches, rotation, order of callbacks, and what a failure stops."""

import errno
import math
import os
import random
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pybroker.broker.domain.errors import LockNotHeld, StoreUnavailable
from pybroker.store.group_commit import (
    IDLE_BYTES_MAX,
    IDLE_SECONDS,
    INLINE_BYTES_MAX,
    INLINE_WAITERS_MAX,
    TRIAL_EVERY,
)
from pybroker.store.journal.appender import JournalSettings, Preallocation, SyncStrategy
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import (
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    EOF_MARKER,
    Location,
    encode_record,
)
from pybroker.store.journal.writer import JournalWriter
from tests.runtimes import runtime, wait_for_end

WAIT_SECONDS = 20.0
FIRST = encode_record(b"first")


class Loop:
    """An event loop's two scheduling calls, turned by hand."""

    def __init__(self) -> None:
        self.ready: list[Callable[[], None]] = []
        self.arrived = threading.Condition()
        self.alarms: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.alarms.append((seconds, callback))

    def ring(self) -> None:
        """Let the requested time come."""
        alarms, self.alarms = self.alarms, []
        for _, callback in alarms:
            callback()

    def call_soon(self, callback: Callable[[], None]) -> None:
        with self.arrived:
            self.ready.append(callback)
            self.arrived.notify()

    def turn(self) -> None:
        """Run what is ready now, as one turn of a loop does."""
        with self.arrived:
            ready, self.ready = self.ready, []
        for callback in ready:
            callback()

    def run_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            with self.arrived:
                assert self.arrived.wait_for(lambda: self.ready, WAIT_SECONDS), "nothing happens any more"
            self.turn()


class RecordingFiles(JournalFiles):
    """Journal files that record their calls and fail as configured."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.calls: list[str] = []
        self.fail_at: dict[str, OSError] = {}
        self.hold_write = threading.Event()
        self.hold_write.set()
        self.synced = threading.Semaphore(0)

    def record(self, name: str) -> None:
        self.calls.append(name)
        error = self.fail_at.get(name)
        if error is not None:
            raise error

    def create(self, file_id: int, preallocate_bytes: int = 0, *, is_claim: bool = False) -> int:
        descriptor = super().create(file_id, preallocate_bytes, is_claim=is_claim)
        self.calls.clear()
        self.record("create")
        return descriptor

    def write(self, descriptor: int, buffers: Sequence[bytes], offset: int) -> None:
        assert self.hold_write.wait(WAIT_SECONDS)
        self.record("write")
        super().write(descriptor, buffers, offset)

    def fill(self, descriptor: int, start: int, stop: int) -> None:
        if error := self.fail_at.get("fill"):
            raise error
        JournalFiles.write(self, descriptor, (bytes(stop - start),), start)

    def sync(self, descriptor: int) -> None:
        self.record("sync")
        super().sync(descriptor)
        self.synced.release()


class Rig:
    """A writer on a directory, with everything around it in view."""

    def __init__(self, directory: Path, *, idles: bool = False, **settings: object) -> None:
        self.loop = Loop()
        self.files = RecordingFiles(directory)
        self.failures: list[Exception] = []
        self.fence: Exception | None = None
        self.monotonic = time.monotonic
        self.log: list[str] = []
        self.settings = JournalSettings(**{"inline_seconds_max": 0.0, **settings})
        self.writer = JournalWriter(
            self.files,
            file_id=1,
            settings=self.settings,
            runtime=runtime(
                self.loop.call_soon,
                call_later=self.loop.call_later if idles else None,
                fence=lambda: self.check(),
                on_failure=self.failures.append,
                monotonic=lambda: self.monotonic(),
            ),
        )
        self.first = self.writer.start([FIRST])
        self.files.calls.clear()

    def check(self) -> None:
        if self.fence is not None:
            raise self.fence

    def recorder(self, text: str) -> Callable[[], None]:
        return lambda: self.log.append(text)

    def flush(self) -> None:
        self.loop.run_until(lambda: self.writer.unwritten_bytes == 0)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def batches(path: Path) -> list[list[tuple[int, bytes]]]:
    """Return a data file's batches as (offset, payload) lists: a second, simple-minded reader."""
    data = path.read_bytes()
    found, position = [], 0
    while data[position : position + 5] != EOF_MARKER:
        magic, length, checksum = BATCH_HEADER.unpack_from(data, position)
        assert magic == BATCH_MAGIC
        position += BATCH_HEADER_BYTES
        end = position + length
        assert checksum in (0, zlib.adler32(data[position:end]))
        batch = []
        while position < end:
            size = int.from_bytes(data[position : position + 4], "big")
            assert data[position + 4] == 1
            batch.append((position, data[position + 5 : position + size]))
            position += size
        assert position == end
        found.append(batch)
    return found


def contents(directory: Path) -> list[tuple[Location, bytes]]:
    """Return every record in the directory with its location, in the order of the journal."""
    ids = sorted(int(path.stem.removeprefix("db-")) for path in directory.glob("db-*.log"))
    return [
        (Location(file_id, offset), payload)
        for file_id in ids
        for batch in batches(directory / f"db-{file_id}.log")
        for offset, payload in batch
    ]


class TestBatches:
    def test_everything_of_one_turn_is_one_write_and_one_sync(self, rig: Rig, tmp_path: Path) -> None:
        for number in range(100):
            rig.writer.append(encode_record(b"%d" % number))
        rig.flush()
        assert rig.files.calls == ["write", "sync"]
        assert [len(batch) for batch in batches(tmp_path / "db-1.log")] == [1, 100]
        rig.writer.close()

    def test_what_arrives_while_a_batch_is_written_is_the_next_batch(self, rig: Rig, tmp_path: Path) -> None:
        rig.files.hold_write.clear()
        rig.writer.append(encode_record(b"a"))
        rig.loop.turn()
        for payload in (b"b", b"c", b"d"):
            rig.writer.append(encode_record(payload))
            rig.loop.turn()
        rig.files.hold_write.set()
        rig.flush()
        assert [len(batch) for batch in batches(tmp_path / "db-1.log")] == [1, 1, 3]
        rig.writer.close()

    def test_a_batch_stays_below_its_limit(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, batch_bytes_max=28 + 3 * 100)
        for _ in range(7):
            rig.writer.append(encode_record(b"x" * 95))
        rig.flush()
        # Three records would make exactly the limit, and ActiveMQ's comparison is strict.
        assert [len(batch) for batch in batches(tmp_path / "db-1.log")] == [1, 2, 2, 2, 1]
        rig.writer.close()

    def test_a_record_beyond_the_batch_limit_is_a_batch_of_its_own(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, batch_bytes_max=1000)
        for payload in (b"a", b"b" * 5000, b"c"):
            rig.writer.append(encode_record(payload))
        rig.flush()
        assert [[len(p) for _, p in batch] for batch in batches(tmp_path / "db-1.log")] == [[5], [1], [5000], [1]]
        rig.writer.close()

    def test_unwritten_bytes_counts_open_and_submitted_batches(self, rig: Rig) -> None:
        assert rig.writer.unwritten_bytes == 0
        rig.files.hold_write.clear()
        rig.writer.append(encode_record(b"x" * 95))
        assert rig.writer.unwritten_bytes == 28 + 100
        rig.loop.turn()
        rig.writer.append(encode_record(b"x" * 95))
        rig.writer.append(encode_record(b"x" * 95))
        assert rig.writer.unwritten_bytes == 28 + 100 + 28 + 200
        rig.files.hold_write.set()
        rig.flush()
        assert rig.writer.unwritten_bytes == 0
        rig.writer.close()

    def test_without_checksums_the_field_is_zero(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, checksum=False)
        rig.writer.close()
        assert BATCH_HEADER.unpack_from((tmp_path / "db-1.log").read_bytes())[2] == 0


class TestLocations:
    @pytest.mark.parametrize("preallocation", Preallocation)
    @pytest.mark.parametrize("seed", range(6))
    def test_locations_returned_by_append_are_where_the_records_are(
        self, tmp_path: Path, preallocation: Preallocation, seed: int
    ) -> None:
        rng = random.Random(seed)
        rig = Rig(tmp_path, file_bytes_max=4000, batch_bytes_max=1500, preallocation=preallocation)
        expected = [(rig.first[0], b"first")]
        for _ in range(120):
            payload = rng.randbytes(rng.choice((1, 50, 300, 1400, 6000)))
            record = encode_record(payload)
            if rng.random() < 0.3:
                cut = rng.randrange(len(record))
                location = rig.writer.append_pieces((record[:cut], record[cut:], b""))
            else:
                location = rig.writer.append(record)
            expected.append((location, payload))
            if rng.random() < 0.3:
                rig.loop.turn()
        rig.writer.close()
        assert contents(tmp_path) == expected
        assert len({location.file_id for location, _ in expected}) > 10

    def test_a_file_is_closed_before_a_batch_reaches_its_limit(self, tmp_path: Path) -> None:
        limit = 2000
        rig = Rig(tmp_path, file_bytes_max=limit)
        end = 28 + len(FIRST)
        fits = limit - end - 1
        assert rig.writer.append(b"\0" * fits) == Location(1, end + 28)
        rig.loop.turn()
        rig.flush()
        assert rig.writer.append(encode_record(b"next")) == Location(2, 28)
        rig.writer.close()

    def test_one_byte_more_goes_into_a_new_file(self, tmp_path: Path) -> None:
        limit = 2000
        rig = Rig(tmp_path, file_bytes_max=limit)
        assert rig.writer.append(b"\0" * (limit - 28 - len(FIRST))) == Location(2, 28)
        rig.writer.close()

    def test_a_giant_record_gets_a_file_of_its_own(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, file_bytes_max=1000)
        giant = encode_record(b"g" * 50_000)
        assert [rig.writer.append(r).file_id for r in (giant, giant, FIRST)] == [2, 3, 4]
        rig.writer.close()
        assert [len(payload) for _, payload in contents(tmp_path)] == [5, 50_000, 50_000, 5]

    def test_a_record_no_file_can_hold_is_refused(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pybroker.store.journal.writer.RECORD_BYTES_MAX", 10)
        with pytest.raises(ValueError, match="a data file takes 10"):
            rig.writer.append(b"\0" * 11)
        rig.writer.close()


class TestFiles:
    def test_a_preallocated_file_has_two_eof_markers(self, rig: Rig, tmp_path: Path) -> None:
        data = (tmp_path / "db-1.log").read_bytes()
        end = 28 + len(FIRST)
        assert len(data) == rig.settings.file_bytes_max
        assert data[end : end + 5] == EOF_MARKER
        assert data[-5:] == EOF_MARKER
        assert data[end + 5 : -5].count(0) == len(data) - end - 10
        rig.writer.close()

    def test_a_finished_file_ends_behind_its_eof_marker(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, file_bytes_max=1000)
        rig.writer.append(encode_record(b"x" * 980))
        rig.writer.close()
        for name in ("db-1.log", "db-2.log"):
            data = (tmp_path / name).read_bytes()
            assert data.endswith(EOF_MARKER)
            assert data.count(EOF_MARKER) == 1

    def test_a_file_that_exists_is_never_taken_over(self, tmp_path: Path) -> None:
        (tmp_path / "db-1.log").write_bytes(b"another master's")
        with pytest.raises(StoreUnavailable, match=r"db-1\.log: File exists"):
            Rig(tmp_path)
        assert (tmp_path / "db-1.log").read_bytes() == b"another master's"

    def test_replacing_a_file_cuts_off_anyone_who_has_it_open(self, tmp_path: Path) -> None:
        files = JournalFiles(tmp_path)
        stale = files.create(1)
        files.replace(1, [b"sealed", EOF_MARKER])
        files.write(stale, (b"late",), 0)
        files.close(stale)
        assert files.path(1).read_bytes() == b"sealed" + EOF_MARKER
        assert [path.name for path in tmp_path.iterdir()] == ["db-1.log"]


class TestCallbacks:
    def test_callbacks_wait_for_sync_and_fence_and_run_in_order(self, rig: Rig) -> None:
        rig.files.hold_write.clear()
        rig.writer.append(FIRST)
        rig.writer.when_durable(rig.recorder("1"))
        rig.loop.turn()
        rig.writer.when_durable(rig.recorder("2"))  # nothing new: the batch that is being written
        rig.writer.append(FIRST)
        rig.writer.when_durable(rig.recorder("3"))
        rig.loop.turn()
        assert rig.log == []
        rig.files.hold_write.set()
        rig.flush()
        assert rig.log == ["1", "2", "3"]
        rig.writer.close()

    def test_with_nothing_unwritten_a_callback_runs_at_once(self, rig: Rig) -> None:
        rig.writer.when_durable(rig.recorder("now"))
        assert rig.log == ["now"]
        rig.writer.close()

    def test_one_that_raises_costs_neither_others_nor_the_writer(self, rig: Rig) -> None:
        def raises() -> None:
            raise RuntimeError("a bug")

        rig.writer.append(FIRST)
        rig.writer.when_durable(raises)
        rig.writer.when_durable(rig.recorder("safe"))
        rig.flush()
        assert (rig.log, rig.failures) == (["safe"], [])
        rig.writer.append(FIRST)
        rig.writer.close()

    @pytest.mark.parametrize("error", [StoreUnavailable("the jobs have stopped"), LockNotHeld("lost"), OSError("bad")])
    def test_one_that_meets_a_failed_store_ends_the_writer(self, rig: Rig, error: Exception) -> None:
        def raises() -> None:
            raise error

        rig.writer.append(FIRST)
        rig.writer.when_durable(raises)
        rig.writer.when_durable(rig.recorder("safe"))
        rig.flush()
        assert (rig.log, rig.failures) == (["safe"], [error])
        with pytest.raises(StoreUnavailable):
            rig.writer.append(FIRST)
        rig.writer.abandon()

    def test_close_writes_what_is_left_and_its_callbacks_still_run(self, rig: Rig, tmp_path: Path) -> None:
        rig.writer.append(encode_record(b"last"))
        rig.writer.when_durable(rig.recorder("safe"))
        rig.writer.close()
        rig.loop.turn()
        assert rig.log == ["safe"]
        assert contents(tmp_path)[-1][1] == b"last"

    def test_nothing_is_appended_behind_a_close(self, rig: Rig) -> None:
        rig.writer.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            rig.writer.append(FIRST)
        rig.writer.close()

    def test_a_job_runs_after_everything_before_it_is_synced(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, sync=SyncStrategy.PERIODIC, sync_interval_seconds=1000.0)
        done = threading.Event()
        calls: list[str] = []
        rig.writer.append(FIRST)
        rig.writer.submit(lambda: (calls.extend(rig.files.calls), done.set())[1])
        assert done.wait(WAIT_SECONDS)
        assert calls == ["write", "sync"]
        rig.writer.close()


class TestAbandon:
    def test_what_was_not_written_stays_unwritten_and_unconfirmed(self, rig: Rig, tmp_path: Path) -> None:
        rig.writer.append(FIRST)
        rig.writer.when_durable(rig.recorder("open"))
        rig.writer.abandon()
        rig.loop.turn()
        assert rig.log == []
        assert len(contents(tmp_path)) == 1
        with pytest.raises(StoreUnavailable, match="given up"):
            rig.writer.append(FIRST)
        rig.writer.abandon()

    def test_a_write_under_way_is_not_acknowledged(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pybroker.store.group_commit.ABANDON_SECONDS", 0.0)
        rig.files.hold_write.clear()
        rig.writer.append(FIRST)
        rig.writer.when_durable(rig.recorder("under way"))
        rig.loop.turn()
        rig.writer.abandon()
        rig.files.hold_write.set()
        wait_for_end(rig.writer._commits._worker)
        rig.loop.turn()
        assert rig.log == []
        assert rig.failures == []

    def test_the_file_is_left_at_its_full_length(self, rig: Rig, tmp_path: Path) -> None:
        rig.writer.abandon()
        assert (tmp_path / "db-1.log").stat().st_size == rig.settings.file_bytes_max


class TestStrategies:
    def test_periodic_notifies_after_the_write_and_syncs_in_time(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, sync=SyncStrategy.PERIODIC, sync_interval_seconds=0.01)
        assert rig.files.synced.acquire(timeout=WAIT_SECONDS)  # covers the first record
        rig.writer.append(FIRST)
        rig.flush()
        assert rig.files.synced.acquire(timeout=WAIT_SECONDS)
        rig.writer.close()

    def test_periodic_syncs_nothing_more_when_nothing_is_written(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, sync=SyncStrategy.PERIODIC, sync_interval_seconds=1000.0)
        rig.writer.append(FIRST)
        rig.flush()
        assert "sync" not in rig.files.calls
        rig.writer.close()
        assert rig.files.calls.count("sync") == 1

    def test_never_means_never(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, sync=SyncStrategy.NEVER, file_bytes_max=1000)
        for _ in range(5):
            rig.writer.append(encode_record(b"x" * 900))
        rig.writer.submit(lambda: None)
        rig.writer.close()
        assert "sync" not in rig.files.calls
        assert len(contents(tmp_path)) == 6


QUICK = {"inline_seconds_max": math.inf}
"""Settings of a disk that is quick whatever it does."""


class TestIdle:
    """A batch without waiters is left open for a moment, to share a sync with one that has some."""

    @pytest.fixture
    def idle(self, tmp_path: Path) -> Rig:
        rig = Rig(tmp_path, idles=True)
        rig.loop.turn()
        return rig

    def test_an_idle_batch_is_written_when_its_time_is_over(self, idle: Rig, tmp_path: Path) -> None:
        idle.writer.append(encode_record(b"a"))
        idle.loop.turn()
        assert idle.writer.unwritten_bytes > 0
        assert idle.files.calls == []
        assert [seconds for seconds, _ in idle.loop.alarms] == [IDLE_SECONDS]
        idle.loop.ring()
        idle.flush()
        idle.writer.close()
        assert contents(tmp_path)[-1][1] == b"a"

    def test_an_idle_batch_goes_with_the_first_that_has_a_waiter(self, idle: Rig, tmp_path: Path) -> None:
        idle.writer.append(encode_record(b"a"))
        idle.loop.turn()
        idle.writer.append(encode_record(b"b"))
        idle.writer.when_durable(idle.recorder("b"))
        idle.loop.run_until(lambda: bool(idle.log))
        assert idle.files.calls == ["write", "sync"]
        idle.writer.close()
        assert [payload for _, payload in contents(tmp_path)] == [b"first", b"a", b"b"]

    def test_a_waiter_that_comes_later_is_notified(self, idle: Rig) -> None:
        idle.writer.append(encode_record(b"a"))
        idle.loop.turn()
        idle.writer.when_durable(idle.recorder("late"))
        idle.loop.run_until(lambda: bool(idle.log))

    def test_the_next_batch_has_as_much_time(self, idle: Rig) -> None:
        idle.writer.append(encode_record(b"a"))
        idle.loop.turn()
        idle.writer.when_durable(idle.recorder("a"))
        idle.loop.run_until(lambda: bool(idle.log))
        idle.writer.append(encode_record(b"b"))
        idle.loop.turn()
        idle.loop.ring()
        assert idle.writer.unwritten_bytes > 0, "it has just begun"
        idle.loop.ring()
        idle.flush()

    def test_what_comes_while_the_thread_is_busy_is_left_open_too(self, idle: Rig) -> None:
        idle.files.hold_write.clear()
        idle.writer.append(encode_record(b"a"))
        idle.writer.when_durable(idle.recorder("a"))
        idle.loop.turn()
        idle.writer.append(encode_record(b"b"))
        idle.files.hold_write.set()
        idle.loop.run_until(lambda: bool(idle.log))
        idle.loop.turn()
        assert idle.writer.unwritten_bytes > 0
        idle.loop.ring()
        idle.flush()

    def test_much_of_it_is_written_at_once(self, idle: Rig) -> None:
        idle.writer.append(encode_record(bytes(IDLE_BYTES_MAX)))
        idle.loop.turn()
        idle.flush()

    def test_nothing_is_left_when_the_writer_closes(self, idle: Rig, tmp_path: Path) -> None:
        idle.writer.append(encode_record(b"a"))
        idle.loop.turn()
        idle.writer.close()
        idle.loop.ring()
        assert contents(tmp_path)[-1][1] == b"a"


class TestInline:
    """A lone client's small batch is written by the loop itself, where the disk is quick and the thread idle."""

    @pytest.fixture
    def quick(self, tmp_path: Path) -> Rig:
        return Rig(tmp_path, **QUICK)

    @staticmethod
    def send(rig: Rig, payload: bytes = b"x", waiters: int = 1) -> None:
        rig.writer.append(encode_record(payload))
        for number in range(waiters):
            rig.writer.when_durable(rig.recorder(f"{payload[:9].decode()}{number}"))

    def test_inline_batch_is_durable_and_notified_after_the_turn(self, quick: Rig, tmp_path: Path) -> None:
        for payload in (b"a", b"b"):
            quick.files.calls.clear()
            self.send(quick, payload)
            assert quick.files.calls == []
            quick.loop.turn()
            assert quick.files.calls == ["write", "sync"]
            assert quick.log.pop() == f"{payload.decode()}0"
            assert quick.writer.unwritten_bytes == 0
        assert quick.loop.ready == [], "no thread had anything to do with it"
        quick.writer.close()
        assert [payload for _, payload in contents(tmp_path)] == [b"first", b"a", b"b"]

    def test_its_callbacks_may_append(self, quick: Rig, tmp_path: Path) -> None:
        self.send(quick, b"a")
        quick.writer.when_durable(lambda: self.send(quick, b"b"))
        quick.loop.turn()
        assert quick.log == ["a0"]
        quick.loop.turn()
        assert quick.log == ["a0", "b0"]
        quick.writer.close()
        assert [payload for _, payload in contents(tmp_path)] == [b"first", b"a", b"b"]

    @pytest.mark.parametrize("waiters", [0, 1])
    def test_only_short_batches_measure_the_write_time(self, quick: Rig, waiters: int) -> None:
        self.send(quick, b"x" * INLINE_BYTES_MAX)
        quick.flush()
        assert quick.writer.write_seconds == 0.0, "that was no short one"
        self.send(quick, waiters=waiters)
        quick.flush()
        assert quick.writer.write_seconds > 0.0
        quick.writer.close()

    @pytest.mark.parametrize(
        ("payload", "waiters", "settings"),
        [
            (b"x", 0, {}),
            (b"x", INLINE_WAITERS_MAX + 1, {}),
            (b"x" * INLINE_BYTES_MAX, 1, {}),
            (b"x" * 1000, 1, {"file_bytes_max": 900}),
            (b"x", 1, {"sync": SyncStrategy.PERIODIC, "sync_interval_seconds": 1000.0}),
            (b"x", 1, {"sync": SyncStrategy.NEVER}),
            (b"x", 1, {"inline_seconds_max": 0.0}),
        ],
        ids=["no one waits", "many wait", "large", "new file", "periodic", "never", "forbidden"],
    )
    def test_everything_else_is_the_threads(
        self, tmp_path: Path, payload: bytes, waiters: int, settings: dict[str, object]
    ) -> None:
        rig = Rig(tmp_path, **{**QUICK, **settings})
        rig.writer.append(encode_record(b"before"))
        rig.flush()
        rig.files.hold_write.clear()  # The loop would come to a stop here.
        self.send(rig, payload, waiters)
        rig.loop.turn()
        assert rig.log == []
        rig.files.hold_write.set()
        rig.flush()
        assert len(rig.log) == waiters
        rig.writer.close()

    def test_changes_after_a_batch_of_the_thread_are_written_inline(self, quick: Rig) -> None:
        self.send(quick, b"many", INLINE_WAITERS_MAX + 1)
        quick.loop.turn()
        self.send(quick, b"lone")
        quick.loop.run_until(lambda: len(quick.log) > INLINE_WAITERS_MAX)
        quick.loop.turn()
        assert quick.log[-1] == "lone0"
        quick.writer.close()

    def test_a_job_under_way_has_the_disk_to_itself(self, quick: Rig) -> None:
        begun, go_on = threading.Event(), threading.Event()
        quick.writer.submit(lambda: (begun.set(), go_on.wait(WAIT_SECONDS), None)[2])
        assert begun.wait(WAIT_SECONDS)
        self.send(quick)
        quick.loop.turn()
        assert quick.files.calls == []
        go_on.set()
        quick.flush()
        assert quick.log == ["x0"]
        quick.writer.close()

    @pytest.mark.parametrize("operation", ["fill", "write", "sync"])
    def test_a_failed_operation_stops_the_writer_and_is_reported(self, quick: Rig, operation: str) -> None:
        quick.files.fail_at[operation] = OSError(errno.EIO, os.strerror(errno.EIO))
        self.send(quick)
        quick.loop.turn()
        quick.files.fail_at.clear()
        attempts = list(quick.files.calls)
        quick.writer.when_durable(quick.recorder("later"))
        with pytest.raises(StoreUnavailable, match=os.strerror(errno.EIO)):
            quick.writer.append(FIRST)
        with pytest.raises(StoreUnavailable, match=os.strerror(errno.EIO)):
            quick.writer.close()
        quick.loop.turn()
        assert quick.log == []
        assert len(quick.failures) == 1
        assert isinstance(quick.failures[0].__cause__, OSError)
        assert quick.files.calls == attempts, "a failed operation is not tried again"

    def test_a_closed_fence_prevents_callbacks_after_the_sync(self, quick: Rig) -> None:
        quick.fence = LockNotHeld("the lock file was replaced")
        self.send(quick)
        quick.loop.turn()
        assert quick.files.calls == ["write", "sync"]
        assert (quick.log, quick.failures) == ([], [quick.fence])
        with pytest.raises(LockNotHeld):
            quick.writer.close()

    def test_a_callback_that_raises_stops_no_other_callback(self, quick: Rig) -> None:
        def raises() -> None:
            raise RuntimeError("a bug")

        quick.writer.append(FIRST)
        quick.writer.when_durable(raises)
        quick.writer.when_durable(quick.recorder("safe"))
        quick.loop.turn()
        assert (quick.log, quick.failures) == (["safe"], [])
        quick.writer.close()

    def test_what_was_abandoned_is_not_written(self, quick: Rig, tmp_path: Path) -> None:
        self.send(quick)
        quick.writer.abandon()
        quick.loop.turn()
        assert quick.log == []
        assert len(contents(tmp_path)) == 1

    @pytest.mark.parametrize("slow", ["sync", "fence"])
    def test_a_disk_is_quick_when_its_writes_of_late_were(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: str
    ) -> None:
        rig = Rig(tmp_path, inline_seconds_max=0.0005)
        now, takes = [0.0], [0.0002]

        def pass_time(*_: object) -> None:
            now[0] += takes[0]

        monkeypatch.setattr(*((rig.files, "sync") if slow == "sync" else (rig, "check")), pass_time)
        monkeypatch.setattr(rig, "monotonic", lambda: now[0])

        def sends_until(inline: bool, takes_seconds: float) -> int:
            takes[0] = takes_seconds
            for count in range(200):
                self.send(rig)
                rig.loop.turn()
                ran_inline = bool(rig.log)  # what the thread posts is for the next turn
                rig.flush()
                rig.log.clear()
                if ran_inline is inline:
                    return count
            raise AssertionError("it never came to that")

        assert sends_until(True, 0.0002) == 0
        assert sends_until(False, 0.01) == 1, "one slow write is enough"
        assert sends_until(True, 0.0002) == TRIAL_EVERY - 2, "a trial is made now and then"
        assert sends_until(True, 0.0002) > 0, "and one quick write is not enough"
        rig.writer.close()


class TestFailure:
    @pytest.mark.parametrize(
        ("operation", "number"),
        [("write", errno.EIO), ("sync", errno.EIO), ("sync", errno.ENOSPC), ("sync", errno.EDQUOT)],
    )
    def test_a_failed_operation_stops_the_writer_and_is_reported(self, rig: Rig, operation: str, number: int) -> None:
        rig.writer.append(FIRST)
        rig.writer.when_durable(rig.recorder("before"))
        rig.flush()
        rig.files.fail_at[operation] = OSError(number, os.strerror(number))
        rig.writer.append(FIRST)
        rig.writer.when_durable(rig.recorder("failed"))
        rig.loop.turn()
        rig.writer.append(FIRST)
        rig.writer.when_durable(rig.recorder("behind"))
        rig.loop.run_until(lambda: bool(rig.failures))
        rig.files.fail_at.clear()
        attempts = list(rig.files.calls)

        rig.writer.when_durable(rig.recorder("later"))
        with pytest.raises(StoreUnavailable, match=os.strerror(number)):
            rig.writer.append(FIRST)
        with pytest.raises(StoreUnavailable, match=os.strerror(number)):
            rig.writer.close()
        rig.loop.turn()

        assert rig.log == ["before"]
        assert len(rig.failures) == 1
        assert isinstance(rig.failures[0].__cause__, OSError)
        assert rig.files.calls == attempts, "a failed operation is not tried again"

    def test_a_closed_fence_prevents_callbacks_after_the_sync(self, rig: Rig) -> None:
        rig.fence = LockNotHeld("the lock file was replaced")
        rig.writer.append(FIRST)
        rig.writer.when_durable(rig.recorder("notified"))
        rig.loop.run_until(lambda: bool(rig.failures))
        assert rig.files.calls == ["write", "sync"]
        assert rig.log == []
        assert rig.failures == [rig.fence]
        with pytest.raises(LockNotHeld):
            rig.writer.close()

    def test_a_closed_fence_stops_jobs_too(self, rig: Rig) -> None:
        rig.fence = LockNotHeld("gone")
        rig.writer.submit(rig.recorder("job"))
        rig.loop.run_until(lambda: bool(rig.failures))
        assert rig.log == []
        with pytest.raises(LockNotHeld):
            rig.writer.close()

    def test_a_failing_periodic_sync_is_a_failure(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, sync=SyncStrategy.PERIODIC, sync_interval_seconds=1000.0)
        rig.files.fail_at["sync"] = OSError(errno.EIO, "broken")
        rig.writer.append(FIRST)
        rig.flush()
        with pytest.raises(StoreUnavailable, match="broken"):
            rig.writer.close()
        rig.loop.turn()
        assert len(rig.failures) == 1

    def test_a_file_that_cannot_be_created_is_a_failure(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, file_bytes_max=100)
        rig.files.fail_at["create"] = OSError(errno.EIO, "Input/output error")
        rig.writer.append(b"\0" * 100)
        rig.loop.run_until(lambda: bool(rig.failures))
        with pytest.raises(StoreUnavailable, match="Input/output error"):
            rig.writer.close()

    def test_a_fence_closed_from_the_start_starts_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(LockNotHeld):
            JournalWriter(
                JournalFiles(tmp_path),
                file_id=1,
                settings=JournalSettings(),
                runtime=runtime(Loop().call_soon, fence=_refuse, on_failure=[].append),
            ).start([FIRST])


def _refuse() -> None:
    raise LockNotHeld("never held")
