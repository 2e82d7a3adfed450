"""Writes scheduled messages into a new scheduler's journal, such as one for an ActiveMQ that had them in a database."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.jobs import Job
from pybroker.store.journal.commands import encode
from pybroker.store.journal.compaction import encode_data_file
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import FILE_BYTES_MAX, encode_record
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
        for file_id, records in enumerate(_parts(jobs), 1):
            files.replace(file_id, encode_data_file(records))
            count += len(records)
    except OSError as error:
        path = error.filename or directory
        raise StoreUnavailable(f"{path} cannot be written: {error.strerror or error}", path=str(path)) from error
    return count


def _parts(jobs: Iterable[Job]) -> Iterator[list[bytes]]:
    """Yield the records of one data file after the other."""
    records: list[bytes] = []
    byte_count = 0
    for job in jobs:
        assert job.data is not None, "the caller has loaded it"
        record = encode_record(encode(add_command(job, job.data)))
        if records and byte_count + len(record) >= FILE_BYTES_MAX:
            yield records
            records, byte_count = [], 0
        records.append(record)
        byte_count += len(record)
    if records:
        yield records
