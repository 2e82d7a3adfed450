"""The steps of a take-over, on their own: their order, and what a failure at each of them leaves behind."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.errors import JournalCorrupt, LockNotHeld, StoreUnavailable
from pybroker.store.journal import takeover
from pybroker.store.journal.appender import JournalSettings, Preallocation
from pybroker.store.journal.collector import DAMAGED_DIRECTORY
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import EOF_MARKER, data_file_id, data_file_name
from pybroker.store.journal.reader import Damage, data_files
from pybroker.store.journal.reserve import RESERVE_NAME, Reserve
from pybroker.store.journal.takeover import JournalEnd, TakeOver
from pybroker.store.journal.writer import JournalWriter
from tests.crash.test_fence import Jobs, Member, Messages
from tests.descriptors import open_in
from tests.runtimes import runtime

SETTINGS = JournalSettings(preallocation=Preallocation.NONE)
INDEX = "db.data"
HALF_COPY = "db-1.log.sealed"
WRITTEN = b"what the former master wrote"
TORN = b"half a batch"

STEPS = [
    "read",
    "fence 1",
    "create 2",
    "fence 2",
    "remove copies",
    "finish 2",
    "fence 3",
    "remove index",
    "keep 1",
    "fence 4",
    "replace 1",
    "fence 5",
    "begin",
]
"""Steps of a take-over from a master that was killed in a write."""

ERRORS = [OSError(errno.EIO, "I/O error"), LockNotHeld("lost"), KeyboardInterrupt()]


class Disk(JournalFiles):
    """Journal files that record each step, and run the test's action before it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.steps: list[str] = []
        self.before: dict[str, Callable[[], None]] = {}
        self._fence_count = 0

    def at(self, step: str) -> None:
        self.steps.append(step)
        self.before.pop(step, lambda: None)()

    def fence(self) -> None:
        self._fence_count += 1
        self.at(f"fence {self._fence_count}")

    def create(self, file_id: int, preallocate_bytes: int = 0, *, is_claim: bool = False) -> int:
        assert is_claim
        self.at(f"create {file_id}")
        return super().create(file_id, preallocate_bytes, is_claim=is_claim)

    def write(self, descriptor: int, buffers: Any, offset: int) -> None:
        self.before.pop("write", lambda: None)()
        super().write(descriptor, buffers, offset)

    def remove(self, *paths: Path) -> None:
        self.at({RESERVE_NAME: "spend reserve", HALF_COPY: "remove copies"}.get(paths[0].name, "remove index"))
        super().remove(*paths)

    def link(self, path: Path, target: Path) -> None:
        self.at(f"keep {data_file_id(path.name)}")
        super().link(path, target)

    def replace(self, file_id: int, content: Any, *fence: Callable[[], None]) -> None:
        self.at(f"replace {file_id}")
        super().replace(file_id, content, *fence)


class Reading:
    """Reads files of which anything up to `TORN`, or up to an EOF marker, was written whole."""

    def __init__(self, disk: Disk, *, is_clean: bool) -> None:
        self.found: dict[int, bytes] = {}
        self._disk = disk
        self._is_clean = is_clean

    def read(self) -> None:
        self._disk.at("read")

    def finish(self, below: int) -> JournalEnd:
        self._disk.at(f"finish {below}")
        contents = {file_id: path.read_bytes() for file_id, path in data_files(self._disk.directory).items()}
        self.found = {
            file_id: content.removesuffix(TORN).removesuffix(EOF_MARKER)
            for file_id, content in contents.items()
            if file_id < below
        }
        return JournalEnd(
            damages=[],
            torn_tails=[
                Damage(file_id, len(content), len(TORN), "torn")
                for file_id, content in self.found.items()
                if contents[file_id].endswith(TORN)
            ],
            open_ends={file_id: len(content) for file_id, content in self.found.items()},
            is_clean=self._is_clean,
            flaw=lambda file_id, content: None if content == self.found[file_id] else 7,
        )


class Rig:
    """One take-over, and the writers it has made."""

    def __init__(self, directory: Path, *, is_clean: bool = False, may_create: bool = True) -> None:
        self.disk = Disk(directory)
        self.reading = Reading(self.disk, is_clean=is_clean)
        self.writers: list[JournalWriter] = []
        self._takeover = TakeOver(
            self.disk,
            self._new_writer,
            check=self.disk.fence,
            reserve=Reserve(self.disk, 4096),
            index_files=[INDEX],
            may_create=may_create,
        )

    def _new_writer(self, file_id: int) -> JournalWriter:
        world = runtime(fence=self.disk.fence)
        self.writers.append(JournalWriter(self.disk, file_id=file_id, settings=SETTINGS, runtime=world))
        return self.writers[-1]

    def run(self) -> dict[int, bytes]:
        """Take the directory over, and return what was read."""
        reading = self._takeover.run(lambda: self.reading, lambda _: self.disk.at("begin"))
        assert open_in(self.disk.directory) == [data_file_name(self.writers[-1].file_id)]
        self.writers[-1].close_claim()
        return reading.found


def write(directory: Path, **files: bytes) -> None:
    """Write data files `db1`, `db2`, …"""
    for name, content in files.items():
        (directory / data_file_name(int(name[2:]))).write_bytes(content)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def fail(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def no_space() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A journal as a master leaves it that is killed in a write, and ActiveMQ's index."""
    directory = tmp_path / "kahadb"
    directory.mkdir()
    write(directory, db1=WRITTEN + TORN)
    (directory / INDEX).touch()
    (directory / HALF_COPY).touch()
    return directory


# ------------------------------------------------------------ the order, and where it ends


def test_steps_are_taken_in_order(directory: Path) -> None:
    rig = Rig(directory)
    assert rig.run() == {1: WRITTEN}
    assert rig.disk.steps == STEPS
    assert names(directory) == {"db-1.log", "db-2.log", DAMAGED_DIRECTORY}
    assert (directory / "db-1.log").read_bytes() == WRITTEN + EOF_MARKER
    assert (directory / DAMAGED_DIRECTORY / "db-1.log").read_bytes() == WRITTEN + TORN


@pytest.mark.parametrize(
    ("step", "error"),
    [(step, error) for step in STEPS for error in ERRORS if not (step == "keep 1" and isinstance(error, OSError))],
)
def test_failure_at_any_step_leaves_a_journal_to_take_over(directory: Path, step: str, error: BaseException) -> None:
    rig = Rig(directory)
    rig.disk.before[step] = fail(error)
    with pytest.raises(StoreUnavailable if isinstance(error, OSError) else type(error)):
        rig.run()
    assert rig.disk.steps[-1] == step
    assert not open_in(directory)
    left = names(directory)
    passed = STEPS[: STEPS.index(step)]
    assert ("db-2.log" in left) == ("create 2" in passed), "a claim stays"
    assert (HALF_COPY not in left) == ("remove copies" in passed)
    assert (INDEX not in left) == ("remove index" in passed)
    assert (directory / "db-1.log").read_bytes() == WRITTEN + (EOF_MARKER if "fence 5" in passed else TORN)

    claims = dict.fromkeys([2] if "db-2.log" in left else [], b"")
    assert Rig(directory).run() == {1: WRITTEN} | claims
    assert (directory / "db-1.log").read_bytes() == WRITTEN + EOF_MARKER


def test_copy_of_a_frozen_former_master_replaces_nothing(directory: Path) -> None:
    """It is frozen between its check and the renaming; the new master is killed in the middle of a copy of its own."""
    former = Rig(directory)
    checks = iter([None, LockNotHeld("lost")])

    def take_over_and_die() -> None:
        new = Rig(directory)
        new.disk.before["fence 5"] = fail(KeyboardInterrupt())
        new.disk._remove_unfinished = lambda *copy: None  # type: ignore[method-assign]  # a kill leaves it
        with pytest.raises(KeyboardInterrupt):
            new.run()

    def fence() -> None:
        if (error := next(checks)) is not None:
            raise error
        take_over_and_die()

    os.close(former.disk.create(2, is_claim=True))
    with pytest.raises(LockNotHeld):
        former.disk.replace(1, (WRITTEN, EOF_MARKER), fence)
    assert (directory / "db-1.log").read_bytes() == WRITTEN + TORN
    assert Rig(directory).run()[1] == WRITTEN


# ------------------------------------------------------------ the claim


def test_number_taken_first_is_left_and_read(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(directory)
    rig.disk.before["create 2"] = lambda: write(directory, db2=b"more" + EOF_MARKER)
    assert rig.run() == {1: WRITTEN, 2: b"more"}
    assert rig.disk.steps[:6] == ["read", "fence 1", "create 2", "fence 2", "read", "create 3"]
    assert "db-2.log is there already" in caplog.text


def test_claim_below_another_number_is_made_again(directory: Path) -> None:
    """The list of files was old when the highest number was taken from it."""
    rig = Rig(directory)
    rig.disk.before["create 2"] = lambda: write(directory, db5=b"more" + EOF_MARKER)
    assert rig.run() == {1: WRITTEN, 2: b"", 5: b"more"}
    assert rig.writers[-1].file_id == 6


def test_numbers_taken_again_and_again_end_the_takeover(directory: Path) -> None:
    rig = Rig(directory)

    def take(file_id: int) -> None:
        (directory / data_file_name(file_id)).touch()
        rig.disk.before[f"create {file_id + 1}"] = lambda: take(file_id + 1)

    rig.disk.before["create 2"] = lambda: take(2)
    with pytest.raises(StoreUnavailable, match="data files appear faster than one can be begun"):
        rig.run()
    assert len(data_files(directory)) == 1 + takeover.CLAIMS_MAX
    assert INDEX in names(directory)


def test_lock_lost_with_the_number_changes_nothing(directory: Path) -> None:
    """This master was frozen while it read, and the one that took the number is the right one."""
    rig = Rig(directory)

    def lose() -> None:
        write(directory, db2=b"of the other master")
        rig.disk.before["fence 2"] = fail(LockNotHeld("another has it"))

    rig.disk.before["create 2"] = lose
    with pytest.raises(LockNotHeld):
        rig.run()
    assert names(directory) == {"db-1.log", "db-2.log", INDEX, HALF_COPY}
    assert (directory / "db-2.log").read_bytes() == b"of the other master"


@pytest.mark.parametrize("step", ["fence 2", "fence 3"])
def test_number_above_the_claim_ends_the_takeover(directory: Path, step: str) -> None:
    """Another master has taken the journal over, whatever the state of the lock: see decision 030."""
    rig = Rig(directory)
    rig.disk.before[step] = lambda: write(directory, db3=b"of another master")
    with pytest.raises(LockNotHeld):
        rig.run()
    assert rig.disk.steps[-1] == step
    assert not open_in(directory)


# ------------------------------------------------------------ a full disk


@pytest.mark.parametrize(("step", "claimed"), [("create 2", 2), ("write", 3), ("replace 1", 2)])
def test_full_disk_costs_the_reserve(directory: Path, step: str, claimed: int) -> None:
    """A claim that could be created and not be filled stays all the same."""
    (directory / RESERVE_NAME).write_bytes(bytes(4096))
    rig = Rig(directory)
    rig.disk.before[step] = fail(no_space())
    assert rig.run() == {1: WRITTEN} | dict.fromkeys(range(2, claimed), b"")
    assert rig.writers[-1].file_id == claimed
    assert rig.disk.steps.count("spend reserve") == 1
    assert (directory / "db-1.log").read_bytes() == WRITTEN + EOF_MARKER


@pytest.mark.parametrize("step", ["create 2", "write", "replace 1"])
def test_full_disk_without_a_reserve_is_explained(directory: Path, step: str) -> None:
    rig = Rig(directory)
    rig.disk.before[step] = fail(no_space())
    with pytest.raises(StoreUnavailable, match="No space left"):
        rig.run()
    assert ("db-2.log" in names(directory)) == (step != "create 2")
    assert (directory / "db-1.log").read_bytes() == WRITTEN + TORN
    assert not open_in(directory)


# ------------------------------------------------------------ the seal


def test_file_that_changed_since_it_was_read_is_not_sealed(directory: Path) -> None:
    rig = Rig(directory)
    other = WRITTEN.upper() + TORN
    rig.disk.before["fence 3"] = lambda: write(directory, db1=other)
    with pytest.raises(JournalCorrupt, match="other bytes than a moment ago") as caught:
        rig.run()
    assert caught.value.offset == 7
    assert (directory / "db-1.log").read_bytes() == other
    assert not open_in(directory)


def test_clean_stop_spares_all_but_claims_and_torn_files(directory: Path) -> None:
    write(directory, db1=b"one" + EOF_MARKER, db2=b"two" + TORN, db3=EOF_MARKER)
    rig = Rig(directory, is_clean=True)
    rig.run()
    assert [step for step in rig.disk.steps if step.startswith(("keep", "replace"))] == [
        "keep 2",
        "replace 2",
        "replace 3",
    ]


def test_torn_file_that_cannot_be_kept_is_sealed(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(directory)
    rig.disk.before["keep 1"] = fail(OSError(errno.EPERM, "Operation not permitted"))
    rig.run()
    assert "could not be kept" in caplog.text
    assert (directory / "db-1.log").read_bytes() == WRITTEN + EOF_MARKER


# ------------------------------------------------------------ the directory


def test_missing_directory_is_made(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "kahadb"
    assert Rig(directory).run() == {}
    assert names(directory) == {"db-1.log"}


def test_journal_that_has_to_be_there_is_taken_over(directory: Path) -> None:
    assert Rig(directory, may_create=False).run() == {1: WRITTEN}


@pytest.mark.parametrize("kind", [Messages, Jobs])
@pytest.mark.parametrize("is_there", [True, False], ids=["empty", "missing"])
def test_no_journal_is_begun_where_one_has_to_be(tmp_path: Path, kind: type[Member], is_there: bool) -> None:
    """The directory is like a bare mount point."""
    directory = tmp_path / "store"
    if is_there:
        directory.mkdir()
    with pytest.raises(StoreUnavailable, match=r"store.*mount"):
        kind(directory, may_create=False).open()
    assert not is_there or not list(directory.iterdir())
    assert directory.exists() is is_there
