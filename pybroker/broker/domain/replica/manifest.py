"""The manifest of a store: its data files, how long their logical contents are, and a checksum of each.

Numbers of data files are used once in a cluster's life. So of two files with one number the contents of one are the
beginning of the other's, unless one was compacted or is damaged, which the checksum shows.

```text
+-------+ then per file, in ascending order of journal and number:
| count | +-------------+---------+---------+--------------+
| u32   | | journal  u8 | file    | length  | CRC-32 of    |    length: of the logical contents, which end
+-------+ |             | u32     | u32     | these   u32  |    before the EOF marker
          +-------------+---------+---------+--------------+
```

Source: specification of replication, 4.3.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pybroker.broker.domain.big_endian import BYTE_AND_THREE_UNSIGNED_INTS, UNSIGNED_INT
from pybroker.broker.domain.errors import MalformedData
from pybroker.broker.domain.replica.operations import FilePlace, Journal

MANIFEST_FILES_MAX: Final = 100_000
"""The limit to the data files of a manifest: a store of 3 TB, with data files of 32 MB."""

COUNT: Final = UNSIGNED_INT
_FILE: Final = BYTE_AND_THREE_UNSIGNED_INTS
MANIFEST_BYTES_MAX: Final = COUNT.size + MANIFEST_FILES_MAX * _FILE.size


class MalformedFrame(MalformedData):
    """A frame of a replication stream that cannot be used. The connection has to be closed."""


class ManifestFile(NamedTuple):
    """A data file. Ordered by journal and number.

    Attributes:
        journal: its journal.
        file_id: its number.
        length: bytes of its logical contents.
        crc: their CRC-32; 0 for none.
    """

    journal: Journal
    file_id: int
    length: int
    crc: int


Manifest = Sequence[ManifestFile]
"""Each file once, in ascending order."""


def manifest_ends(manifest: Manifest) -> dict[Journal, FilePlace]:
    """Return the end of each journal that has a data file."""
    return {each.journal: FilePlace(each.file_id, each.length) for each in manifest}


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest's bytes."""
    return COUNT.pack(len(manifest)) + b"".join(_FILE.pack(*each) for each in manifest)


def decode_manifest(data: bytes | memoryview) -> Manifest:
    """Return the manifest that these bytes are.

    Raises:
        MalformedFrame: they are none, or have too many files; found before memory is allocated for them.
    """
    files: list[ManifestFile] = []
    for journal, file_id, length, crc in entries(_FILE, data, MANIFEST_FILES_MAX):
        each = ManifestFile(as_journal(journal), file_id, length, crc)
        if files and files[-1][:2] >= each[:2]:
            raise MalformedFrame(f"data file {file_id} is out of order")
        files.append(each)
    return files


def entries(layout: struct.Struct, data: bytes | memoryview, count_max: int) -> Iterator[tuple[int, ...]]:
    """Return the entries of a table of data files with their count before it.

    Raises:
        MalformedFrame: the count is too high, or is not that of the bytes.
    """
    if len(data) < COUNT.size:
        raise MalformedFrame("a table of data files ends before its count")
    (count,) = COUNT.unpack_from(data)
    if count > count_max:
        raise MalformedFrame(f"a table of {count} data files: at most {count_max} are supported")
    if len(data) != COUNT.size + count * layout.size:
        raise MalformedFrame(f"a table of {count} data files has {len(data)} bytes")
    return layout.iter_unpack(data[COUNT.size :])


def as_journal(number: int) -> Journal:
    """Return the journal with this number.

    Raises:
        MalformedFrame: there is none.
    """
    try:
        return Journal(number)
    except ValueError:
        raise MalformedFrame(f"there is no journal {number}") from None
