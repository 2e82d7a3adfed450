"""Reads one record of a copy for a master whose own disk does not give it back. Blocks.

The batch that has the record is found by the control records before it, and must be sound as a whole: its checksum fits
its bytes. A master knows where a record begins, and not where its batch does.
"""

import os
from pathlib import Path

from pybroker import regular
from pybroker.store.journal.format import (
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
)
from pybroker.store.journal.reader import verify


def sound_record(path: Path, offset: int) -> bytes:
    """Return the record at an offset of a data file, with its header; nothing if there is none in a sound batch.

    Raises:
        OSError: the file cannot be read.
    """
    descriptor = regular.descriptor(path)
    try:
        batch, start = _batch_around(descriptor, offset)
    finally:
        os.close(descriptor)
    bounds = verify(batch, 0)
    if isinstance(bounds, str):
        return b""
    position, end = bounds
    while position < end and start + position < offset:
        position += RECORD_HEADER.unpack_from(batch, position)[0]
    if position >= end or start + position != offset:
        return b""
    return batch[position : position + RECORD_HEADER.unpack_from(batch, position)[0]]


def _batch_around(descriptor: int, offset: int) -> tuple[bytes, int]:
    """Return the batch that an offset is in, and where it begins; an empty one if there is none."""
    start = 0
    while start < offset:
        header = os.pread(descriptor, BATCH_HEADER_BYTES, start)
        if len(header) < BATCH_HEADER_BYTES:
            break
        magic, length, _ = BATCH_HEADER.unpack(header)
        if magic != BATCH_MAGIC or length < RECORD_HEADER_BYTES:
            break
        end = start + BATCH_HEADER_BYTES + length
        if offset < end:
            return os.pread(descriptor, end - start, start), start
        start = end
    return b"", start
