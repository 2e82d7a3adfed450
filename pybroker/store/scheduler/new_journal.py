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
        directory.mkdir(parents=True, exist_ok=True)
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


def _payload(job: Job) -> bytes:
    assert job.data is not None, "the caller has loaded it"
    return encode(add_command(job, job.data))
