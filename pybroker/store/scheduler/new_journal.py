"""Writes scheduled messages into a new scheduler's journal, such as one for an ActiveMQ that had them in a database."""

from collections.abc import Iterable
from pathlib import Path

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.jobs import Job
from pybroker.store.journal.commands import encode
from pybroker.store.journal.compaction import encode_data_file, records_of_files
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import FILE_BYTES_MAX
from pybroker.store.scheduler.state import add_command


def write_jobs(directory: Path, jobs: Iterable[Job]) -> int:
    """Write jobs, with their messages, into a directory; return how many. They are on disk on return.

    Args:
        directory: new or empty.
        jobs: the jobs, each with its `data`.

    Raises:
        StoreUnavailable: there is something in the directory, or it cannot be written. What was written stays.
    """
    count = 0
    try:
        _make_directory(directory)
        if any(directory.iterdir()):
            raise StoreUnavailable(f"{directory} is not empty", path=str(directory), hint="name a new directory")
        files = JournalFiles(directory)
        for file_id, records in enumerate(records_of_files(map(_payload, jobs), FILE_BYTES_MAX), 1):
            files.replace(file_id, encode_data_file(records))
            count += len(records)
    except OSError as error:
        path = error.filename or directory
        raise StoreUnavailable(f"{path} cannot be written: {error.strerror or error}", path=str(path)) from error
    return count


def _make_directory(directory: Path) -> None:
    """Make a directory whose name is on disk, and those of its parents that are made; else a crash takes its files.

    The name of one that is there is synced too: an earlier run may have been interrupted before that.
    """
    made = [directory, *(each for each in directory.parents if not each.exists())]
    directory.mkdir(parents=True, exist_ok=True)
    for each in made:
        JournalFiles(each.parent).sync_directory()


def _payload(job: Job) -> bytes:
    assert job.data is not None, "the caller has loaded it"
    return encode(add_command(job, job.data))
