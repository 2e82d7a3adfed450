"""A journal that no worker has mounted: data files in HDFS or an object store, as a table.

```text
spark.read.format("binaryFile") ── path, content ──> mapInArrow: a temporary file, decoded as ever ──> the table
```

Spark itself fetches the files, with whatever credentials and connectors it has; the decoder is that of the source
`kahadb`. What is given up: a data file is one task's, whole, and must be shorter than 2 GiB, Spark's own limit; filters
are not pushed down; there is no stream. A file that a broker is still writing does not belong in such a place.
"""

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from pybroker.broker.domain.errors import ConfigError, JournalCorrupt
from pybroker.spark_jobs.output import OutputColumns
from pybroker.store.columns.files import Piece
from pybroker.store.columns.schema import BY_NAME, DEFAULT_COLUMNS, arrow_schema
from pybroker.store.columns.table import Mode, read
from pybroker.store.journal.format import data_file_id

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def read_remote(
    spark: SparkSession,
    uris: str | Sequence[str],
    columns: Sequence[str] = DEFAULT_COLUMNS,
    *,
    mode: Mode = Mode.PERMISSIVE,
) -> DataFrame:
    """Return the table of a journal's data files, wherever Spark can read.

    Args:
        spark: a session whose connectors know the place.
        uris: directories with `db-*.log` files, such as `s3a://bucket/archive/kahadb`; `directory` is such a URI then.
        columns: names of the columns wanted; what only others need is not decoded.
        mode: treatment of damage. The end of a directory's newest file may be torn, as that of a copy is.

    Raises:
        ConfigError: there is no column of that name, or no data file.
    """
    for name in columns:
        if name not in BY_NAME:
            raise ConfigError(
                f"the table has no column {name}", setting="columns", hint=f"there are {', '.join(BY_NAME)}"
            )
    places = [uris] if isinstance(uris, str) else list(uris)
    files = spark.read.format("binaryFile").option("pathGlobFilter", "db-*.log").load(places)
    newest = _newest([str(row["path"]) for row in files.select("path").collect()])
    if not newest:
        raise ConfigError("no data file (db-<number>.log) is there", setting="uris", hint=", ".join(places))
    schema = from_arrow_schema(arrow_schema(tuple(columns)))
    decode = partial(_decode, schema=schema, newest=newest, mode=mode)
    return files.select("path", "content").mapInArrow(decode, schema)


def _newest(paths: Sequence[str]) -> frozenset[str]:
    """Return the last data file of each directory."""
    last: dict[str, tuple[int, str]] = {}
    for path in paths:
        directory, _, name = path.rpartition("/")
        file_id = data_file_id(name)
        if file_id is not None:
            last[directory] = max(last.get(directory, (0, "")), (file_id, path))
    return frozenset(path for _, path in last.values())


def _decode(
    batches: Iterator[pa.RecordBatch], schema: "StructType", newest: frozenset[str], mode: Mode
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of data files that come as path and content; in a worker."""
    output = OutputColumns(schema)
    for batch in batches:
        for row in batch.to_pylist():
            for rows in _decode_one(row["path"], row["content"], output, newest, mode):
                yield output(rows)


def _decode_one(
    path: str, content: bytes, output: OutputColumns, newest: frozenset[str], mode: Mode
) -> Iterator[pa.RecordBatch]:
    directory, _, name = path.rpartition("/")
    file_id = data_file_id(name)
    if file_id is None:
        return  # db-x.log is no data file
    with tempfile.NamedTemporaryFile(prefix="pybroker-", suffix=f"-{name}") as copy:
        copy.write(content)
        copy.flush()
        piece = Piece(directory, copy.name, file_id, growing=path in newest)
        try:
            yield from read(piece, output.columns, mode=mode)
        except JournalCorrupt as error:
            prefix, suffix = f"{error.path}: offset {error.offset}: ", f"; {error.hint}"
            reason = str(error).removeprefix(prefix).removesuffix(suffix)
            raise JournalCorrupt(reason, path=path, offset=error.offset, hint=error.hint) from error
