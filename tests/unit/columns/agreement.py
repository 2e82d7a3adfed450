"""Common parts of the table's tests: journals made by hand, and the two decoders' answers side by side."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pybroker.store.columns.chunks import WINDOW_BYTES
from pybroker.store.columns.files import list_files, plan
from pybroker.store.columns.schema import COLUMNS, arrow_schema
from pybroker.store.columns.selection import EVERYTHING, Selection
from pybroker.store.columns.table import read, read_rows
from pybroker.store.journal.format import EOF_MARKER, data_file_name, encode_batch, encode_record

EVERY_COLUMN = tuple(column.name for column in COLUMNS)

Rows = list[dict[str, Any]]


def write_file(directory: Path, batches: Iterable[Sequence[bytes]], file_id: int = 1, *, checksum: bool = True) -> Path:
    """Write a data file of batches of payloads."""
    path = directory / data_file_name(file_id)
    encoded = [encode_batch([encode_record(each) for each in batch], checksum=checksum) for batch in batches]
    path.write_bytes(b"".join(encoded) + EOF_MARKER)
    return path


def vector_rows(
    directory: Path,
    columns: Sequence[str] = EVERY_COLUMN,
    *,
    piece_bytes: int | None = None,
    selection: Selection = EVERYTHING,
    window_bytes: int = WINDOW_BYTES,
) -> Rows:
    """Return a journal's rows as the vectorised decoder has them."""
    rows: Rows = []
    for piece in plan("journal", list_files(directory), piece_bytes):
        for batch in read(piece, columns, selection, window_bytes=window_bytes):
            assert batch.schema.equals(arrow_schema(tuple(columns)))
            batch.validate(full=True)
            rows += batch.to_pylist()
    return rows


def scalar_rows(directory: Path, columns: Sequence[str] = EVERY_COLUMN, *, selection: Selection = EVERYTHING) -> Rows:
    """Return a journal's rows as the scalar decoder has them, each data file read in one piece."""
    schema = arrow_schema(tuple(columns))
    rows: Rows = []
    for piece in plan("journal", list_files(directory), None):
        found = list(read_rows(piece, columns, selection))
        rows += pa.RecordBatch.from_pylist(found, schema=schema).to_pylist()
    return rows


def assert_same(found: Rows, expected: Rows) -> None:
    """Compare row by row, so that a difference is small enough to read. NaN equals itself here."""
    for mine, reference in zip(found, expected, strict=False):
        differing = {
            name: (mine[name], reference[name]) for name in reference if repr(mine[name]) != repr(reference[name])
        }
        assert not differing, f"at {reference}: found and expected {differing}"
    assert len(found) == len(expected)


def assert_agreement(directory: Path, *, piece_bytes: int | None = None, window_bytes: int = WINDOW_BYTES) -> Rows:
    """Check that both decoders agree on a journal, with all columns and with some; return the rows."""
    expected = scalar_rows(directory)
    found = vector_rows(directory, piece_bytes=piece_bytes, window_bytes=window_bytes)
    assert_same(found, expected)
    for columns in NARROW:
        assert_same(vector_rows(directory, columns, piece_bytes=piece_bytes), scalar_rows(directory, columns))
    return found


NARROW = (
    ("offset", "size", "_corrupt_record"),
    ("offset", "record_type", "destination", "message_id"),
    ("time", "time_source", "offset"),
    ("ack_type", "consumer_id", "_corrupt_record"),
    ("timestamp", "broker_in", "priority", "_corrupt_record"),
    ("properties", "_corrupt_record"),
    ("text", "body", "_corrupt_record"),
)
"""Sets of columns that leave some layers undecoded."""
