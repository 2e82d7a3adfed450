"""Formats of a KahaDB journal: data files, batches, records. Pure; reader and writer handle the files.

A directory holds data files `db-<id>.log`; ids count from 1 and may have gaps. A data file is a sequence of
batches and, behind the last one, an EOF marker. There is no file header. Integers are big-endian.

```text
batch  = batch control record, then one or more user records
         +----------+------+---------------+------------+--------------+
control  | size: 28 | type | magic         | length     | checksum     |
record   | i32      | u8 2 | "WRITE BATCH" | i32        | i64          |
         +----------+------+---------------+------------+--------------+
         length:   bytes of user records that follow
         checksum: Adler-32 over exactly those bytes; 0 means that the batch is not checksummed

         +----------+------+---------------+
user     | size     | type | payload       |    size counts these 5 bytes of header too
record   | i32      | u8 1 | size - 5      |
         +----------+------+---------------+

EOF marker: 2D 71 4D 61 34
```

Each write of a batch ends with an EOF marker that the next batch overwrites; what lies behind a marker is stale and
means nothing. A batch never spans files. A record's `Location` is where its header begins.

Source: ActiveMQ 5.17, `Journal` and `DataFileAppender`.
"""

import re
import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

EOF_MARKER = b"-qMa4"
RECORD_HEADER_BYTES = 5
BATCH_HEADER_BYTES = 28
BATCH_MAGIC = struct.pack(">iB11s", BATCH_HEADER_BYTES, 2, b"WRITE BATCH")
"""The constant first 16 bytes of a batch, by which a reader finds the next batch behind a damaged one."""

USER_RECORD = 1
FILE_BYTES_MAX = 32 * 1024 * 1024
"""Size at which a data file is closed: ActiveMQ's `journalMaxFileLength`. Smaller files are collected sooner."""
BATCH_BYTES_MAX = 4 * 1024 * 1024
"""Size at which a batch is closed: ActiveMQ's `journalMaxWriteBatchSize`, about what one disk write does at once."""
OFFSET_MAX = 2**31 - 1
"""ActiveMQ keeps file ids and offsets in signed 32-bit integers."""

RECORD_HEADER = struct.Struct(">iB")
BATCH_HEADER = struct.Struct(">16siq")

_DATA_FILE_NAME = re.compile(r"db-([0-9]{1,10})\.log", re.ASCII)


class Location(NamedTuple):
    """Location of a record: the data file and the byte offset of the record's header in it. Ordered as written."""

    file_id: int
    offset: int

    def __str__(self) -> str:
        """Return `file:offset`."""
        return f"{self.file_id}:{self.offset}"


def encode_record(payload: bytes) -> bytes:
    """Return a user record around an encoded command."""
    return RECORD_HEADER.pack(RECORD_HEADER_BYTES + len(payload), USER_RECORD) + payload


def batch_header(length: int, checksum: int) -> bytes:
    """Return the control record of a batch with `length` bytes of user records.

    Args:
        length: bytes of user records.
        checksum: their Adler-32, or 0 for none.
    """
    return BATCH_HEADER.pack(BATCH_MAGIC, length, checksum)


def encode_batch(records: Sequence[bytes], *, checksum: bool = True) -> bytes:
    """Return a batch of encoded user records, without the EOF marker that has to follow the last one of a write."""
    body = b"".join(records)
    return batch_header(len(body), zlib.adler32(body) if checksum else 0) + body


def data_file_name(file_id: int) -> str:
    """Return a data file's name; the id is not padded."""
    return f"db-{file_id}.log"


def data_file_id(name: str) -> int | None:
    """Return the id in a data file's name, or None when it is no data file's name."""
    match = _DATA_FILE_NAME.fullmatch(name)
    if match is None or int(match[1]) > OFFSET_MAX:
        return None
    return int(match[1])
