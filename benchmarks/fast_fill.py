"""A journal of a million messages in seconds: whole batches by the store's own encoder, without a store around them.

What is written is what a broker would have written, had its producer sent so many messages and none were received.
"""

import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from benchmarks.workload import messages
from pybroker.broker.domain.message import Message
from pybroker.store.journal.appender import Appender, JournalSettings, SyncStrategy
from pybroker.store.journal.commands import encode_add_record
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import BATCH_HEADER_BYTES, FILE_BYTES_MAX

BATCH_MESSAGES = 100
"""Messages per batch with a busy producer's window."""


def write_journal(directory: Path, count: int, *, batch_messages: int = BATCH_MESSAGES) -> int:
    """Fill an empty or missing directory with that many messages of 1 KB; return the last data file's id."""
    return write_messages(directory, messages(count), batch_messages=batch_messages)


def write_messages(directory: Path, wanted: Iterable[Message], *, batch_messages: int = BATCH_MESSAGES) -> int:
    """Fill an empty or missing directory with persistent messages of queues; return the last data file's id."""
    directory.mkdir(parents=True, exist_ok=True)
    appender = Appender(JournalFiles(directory), JournalSettings(sync=SyncStrategy.NEVER), time.monotonic)
    each = iter(wanted)
    file_id, offset = 1, 0
    while records := [encode_add_record(message) for message in islice(each, batch_messages)]:
        length = BATCH_HEADER_BYTES + sum(map(len, records))
        if offset and offset + length > FILE_BYTES_MAX:
            file_id, offset = file_id + 1, 0
        appender.write(file_id, offset, records)
        offset += length
    appender.close()
    return file_id
