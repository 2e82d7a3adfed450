"""docs/spark.md describes every column and option as it is."""

from pathlib import Path

import pytest

from pybroker.spark_jobs import options
from pybroker.store.columns.rows import RECORD_TYPES
from pybroker.store.columns.schema import COLUMNS

DOCUMENT = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
TYPES = {
    "string": "string",
    "int32": "int",
    "int64": "bigint",
    "bool": "boolean",
    "binary": "binary",
    "timestamp[us, tz=UTC]": "timestamp",
    "map<string, string>": "map<string,string>",
}


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_each_column_is_described(column: object) -> None:
    assert isinstance(column, type(COLUMNS[0]))
    kind = TYPES.get(str(column.type), "struct")
    only = " Only when it is named." if column.on_request else ""
    assert f"| `{column.name}` | {kind} | {column.layer.name.lower()} | {column.meaning}{only} |" in DOCUMENT


def test_each_option_and_record_type_is_named() -> None:
    named = set(options._NAMES) - {"path", "paths"}
    assert {name for name in named if f"| `{name}` |" not in DOCUMENT} == set()
    kinds = {*RECORD_TYPES, "subscribe", "unsubscribe"} - {"subscription"}
    assert {kind for kind in kinds if f"`{kind}`" not in DOCUMENT} == set()
