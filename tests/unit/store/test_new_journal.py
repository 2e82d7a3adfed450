"""Scheduled messages that are written into a new journal are those that a scheduler reads from it."""

import os
from pathlib import Path

import pytest

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.jobs import Job
from pybroker.store.journal.reader import data_files
from pybroker.store.journal.tools.observed_replay import read_jobs
from pybroker.store.scheduler import new_journal
from pybroker.store.scheduler.new_journal import write_jobs
from pybroker.store.scheduler.state import JobState


def job(number: int) -> Job:
    return Job(
        job_id=f"ID:job:{number}",
        start_time=number,
        cron="0 3 * * *" if number % 2 else "",
        delay=10,
        period=20,
        repeat=-1,
        next_time=1000 + number,
        data=b"message %d" % number,
    )


def facts(found: Job) -> tuple[object, ...]:
    return (
        found.job_id,
        found.start_time,
        found.cron,
        found.delay,
        found.period,
        found.repeat,
        found.next_time,
        found.data,
    )


def read(directory: Path) -> list[tuple[object, ...]]:
    result = read_jobs(directory, JobState(), held_bytes_max=1 << 20)
    assert not result.damages
    return [facts(each) for each in result.jobs]


@pytest.mark.parametrize("bytes_max", [1 << 20, 200])
def test_jobs_are_read_back_from_one_file_or_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    monkeypatch.setattr(new_journal, "FILE_BYTES_MAX", bytes_max)
    jobs = [job(number) for number in range(5)]
    assert write_jobs(tmp_path / "a" / "scheduler", jobs) == 5
    assert read(tmp_path / "a" / "scheduler") == [facts(each) for each in jobs]
    assert (len(data_files(tmp_path / "a" / "scheduler")) > 1) == (bytes_max == 200)


def test_names_of_new_directories_are_on_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a database are deleted next: after a crash the messages must not be gone with their directory."""
    synced: set[Path] = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(Path(f"/dev/fd/{descriptor}").readlink()))
    directory = tmp_path / "a" / "scheduler"
    write_jobs(directory, [job(1)])
    assert synced >= {tmp_path, tmp_path / "a", directory}
    (tmp_path / "there").mkdir()
    synced.clear()
    write_jobs(tmp_path / "there", [job(1)])
    assert synced >= {tmp_path, tmp_path / "there"}


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="is not empty; name a new directory"):
        write_jobs(tmp_path, [job(1)])
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        write_jobs(tmp_path / "file" / "below", [job(1)])
