"""A predecessor that lost its lock without noticing begins a scheduler's data file just when its heir takes over."""

from pathlib import Path

import pytest

from pybroker.broker.domain.errors import LockNotHeld
from pybroker.store.journal.appender import JournalSettings, Preallocation
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import EOF_MARKER, data_file_name
from tests.unit.store.test_claims import Hooked
from tests.unit.store.test_scheduler_store import ONE_JOB_EACH, Life, job

TORN = b"\0\0\0\x1c\x02WRITE BATCH\0\0"


def master(directory: Path) -> Life:
    """Return a master with one confirmed job, in files that take no second one."""
    life = Life(directory, ONE_JOB_EACH)
    life.store.add(job("a"))
    life.flush()
    return life


def newest(life: Life) -> int:
    return life.store._writer.file_id


def recovered(directory: Path) -> list[str]:
    """Return what yet another heir finds."""
    life = Life(directory)
    assert not life.store.damages
    life.kill()
    return list(life.jobs)


def test_once_a_number_is_claimed_no_predecessor_gets_past_it(tmp_path: Path) -> None:
    """Else its next file would stay, and the end of a job that it wrote before would not."""
    stale = master(tmp_path)
    before = newest(stale)

    def go_on() -> None:
        stale.store.remove(added)
        stale.store.add(job("b"))
        with pytest.raises(LockNotHeld, match=rf"{data_file_name(before + 1)} is its own"):
            stale.store.close()

    added = next(iter(stale.store._state.jobs()))
    files = Hooked(tmp_path)
    files.before_replace = [go_on]
    heir = Life(tmp_path, files=files)
    assert list(heir.jobs) == ["a"]
    heir.kill()
    assert recovered(tmp_path) == ["a"]


def test_a_number_that_a_predecessor_takes_first_is_left_to_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stale = master(tmp_path)
    taken = newest(stale) + 1

    def rotate() -> None:
        stale.store.add(job("b"))
        stale.flush()
        assert newest(stale) == taken

    files = Hooked(tmp_path)
    files.before_create = [rotate]
    heir = Life(tmp_path, files=files)
    assert list(heir.jobs) == ["a", "b"], "all that was there when the number was got"
    assert newest(heir) == taken + 1
    assert f"{data_file_name(taken)} is there already" in caplog.text
    stale.store.abandon()
    heir.kill()
    assert recovered(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("tail", [b"", TORN])
def test_a_heir_that_came_no_further_than_its_claim_is_cut_off_as_well(tmp_path: Path, tail: bytes) -> None:
    former = master(tmp_path)
    former.kill()
    path = tmp_path / data_file_name(newest(former))
    path.write_bytes(path.read_bytes().removesuffix(EOF_MARKER) + (tail or EOF_MARKER))
    claim = newest(former) + 1
    claimed = JournalFiles(tmp_path).create(claim)

    heir = Life(tmp_path)
    assert list(heir.jobs) == ["a"]
    assert not heir.store.damages, "what is torn below an empty file was written last"
    assert newest(heir) == claim + 1
    late = path.read_bytes()
    assert late.endswith(EOF_MARKER)
    JournalFiles(tmp_path).write(claimed, (late,), 0)
    JournalFiles(tmp_path).close(claimed)
    heir.kill()
    assert (tmp_path / data_file_name(claim)).read_bytes() == EOF_MARKER
    assert recovered(tmp_path) == ["a"]


def test_damage_to_a_whole_file_is_no_claim(tmp_path: Path) -> None:
    former = master(tmp_path)
    former.store.add(job("b"))
    former.kill()
    last, below = (tmp_path / data_file_name(newest(former) - back) for back in (0, 1))
    last.write_bytes(b"\1" * 100)
    below.write_bytes(below.read_bytes()[:-20])
    heir = Life(tmp_path, JournalSettings(preallocation=Preallocation.NONE))
    assert [damage.file_id for damage in heir.store.damages] == [newest(former) - 1], "only the last may be torn"
    heir.kill()
