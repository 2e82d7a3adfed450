"""The unit of work of a Spark task, and its rows in the form that Spark wants, in a batch query or a stream."""

import functools
import gc
import os
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pybroker.broker.domain.errors import ConfigError
from pybroker.store.columns.files import Piece
from pybroker.store.columns.schema import BY_NAME

_REUSED: Final = "SPARK_REUSE_WORKER"
"""Spark sets this variable for Python workers that serve one task after another, and nowhere else."""


@functools.cache
def set_imports_aside() -> None:
    """Have a worker that serves many tasks look for garbage only among what came after its first.

    Between two tasks a worker runs a full collection, and that walks all that pyspark, pyarrow, pandas and numpy made
    when they were imported: longer than decoding 16 MB of a journal takes. It stays as long as the worker does.
    """
    if os.environ.get(_REUSED):
        gc.freeze()


@dataclass
class JournalPartition(InputPartition):
    """A piece of a data file for one task."""

    piece: Piece


class OutputColumns:
    """The columns that Spark wants, and the form it wants them in.

    Attributes:
        columns: their names.
    """

    def __init__(self, schema: StructType) -> None:
        """Check a schema against the table's.

        Raises:
            ConfigError: a column is not one of the table's, or of another type.
        """
        wanted: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        for each in wanted:
            column = BY_NAME.get(each.name)
            if column is None:
                raise ConfigError(
                    f"the table has no column {each.name}", setting="schema", hint=f"there are {', '.join(BY_NAME)}"
                )
            if each.type != column.type and not _are_integers(each.type, column.type):
                raise ConfigError(f"column {each.name} is {column.type}, not {each.type}", setting="schema")
        self.columns = tuple(wanted.names)
        self._schema = wanted

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with exactly Spark's types."""
        return batch if batch.schema.equals(self._schema) else batch.cast(self._schema)


def _are_integers(one: pa.DataType, other: pa.DataType) -> bool:
    return bool(pa.types.is_integer(one) and pa.types.is_integer(other))
