"""The data source `kahadb`: a journal as a Spark table, read in parallel by data files and by batches inside them.

Spark's Python data sources have no column pruning: all columns of the schema are requested, even by `count()`. So fewer
columns are had by a narrower schema, `.schema("file int, destination string")`, or by the option `columns`.

The decoding is `pybroker.store.columns`; here is what Spark needs around it.
"""

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from pybroker.spark_jobs.filters import Pushed, push
from pybroker.spark_jobs.options import Options, parse
from pybroker.spark_jobs.output import JournalPartition, OutputColumns, set_imports_aside
from pybroker.store.columns.files import NoJournal, list_files, plan
from pybroker.store.columns.schema import arrow_schema
from pybroker.store.columns.table import Mode, read

NAME: Final = "kahadb"


class KahaDBSource(DataSource):
    """`spark.read.format("kahadb")`; Spark finds it as `pyspark_kahadb.DefaultSource`."""

    pushdown_default = False
    """The default of the option for filter pushdown. Spark refuses a source with pushdown until its session allows it,
    see `pyspark_kahadb.register`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.chosen: Options = parse(options, pushdown=self.pushdown_default)

    @classmethod
    def name(cls) -> str:
        """Return what to call it in `format`."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns that the options name."""
        _check_directories(self.chosen)
        return from_arrow_schema(arrow_schema(self.chosen.columns))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what plans and reads a batch query."""
        _check_directories(self.chosen)
        kind = PushdownReader if self.chosen.pushdown else JournalReader
        return kind(self.chosen, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return what plans and reads a stream."""
        from pybroker.spark_jobs.stream import JournalStreamReader  # workers of batch queries never need it

        _check_directories(self.chosen)
        return JournalStreamReader(self.chosen, schema)


class PushdownSource(KahaDBSource):
    """The same for a session in which Spark pushes filters down."""

    pushdown_default = True


def _check_directories(options: Options) -> None:
    for directory in options.directories:
        list_files(Path(directory), archive=options.archive)


class JournalReader(DataSourceReader):
    """Plans a partition per piece of a data file, and reads it."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._output = OutputColumns(schema)
        self._pushed = Pushed()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the pieces to read, in the journal's order."""
        options = self._options
        found: list[InputPartition] = []
        for directory in options.directories:
            files = list_files(Path(directory), archive=options.archive)
            if not files and options.mode is Mode.FAILFAST:
                raise NoJournal("the directory is empty", Path(directory))
            pieces = plan(directory, files, options.partition_bytes, self._pushed.takes_file)
            found.extend(JournalPartition(piece) for piece in pieces)
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a piece's rows."""
        if not isinstance(partition, JournalPartition):
            return  # what Spark makes of an empty plan
        output, pushed = self._output, self._pushed
        for batch in read(partition.piece, output.columns, pushed.selection, self._options.mode):
            yield output(batch)
        set_imports_aside()  # at the end, when all that a task needs was imported


class PushdownReader(JournalReader):
    """The same, and takes filters over."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take over those that are applied exactly; return the others."""
        self._pushed, left = push(filters)
        return left
