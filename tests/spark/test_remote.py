"""Data files that Spark fetches by itself: the same table as from a mount."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.journal_generator import Totals, generate
from pybroker.broker.domain.errors import ConfigError
from pybroker.spark_jobs.remote import read_remote
from pybroker.store.columns.table import Mode
from pybroker.store.journal.format import BATCH_HEADER_BYTES

COLUMNS = ("file", "offset", "record_type", "time", "time_source", "destination", "message_id", "properties", "text")


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Totals]:
    """A journal of a few data files."""
    directory = tmp_path_factory.mktemp("remote") / "kahadb"
    return directory, generate(directory, 1_200_000, file_bytes_max=400_000)


@pytest.mark.component("java")
def test_the_table_is_that_of_a_mount(spark: Any, sample: tuple[Path, Totals]) -> None:
    directory, totals = sample
    (directory / "lock").write_bytes(b"\0" * 8)
    there = read_remote(spark, directory.as_uri(), COLUMNS)
    here = spark.read.format("kahadb").option("columns", ",".join(COLUMNS)).load(str(directory))
    assert there.schema == here.schema
    rows = sorted(map(_comparable, there.collect()))
    assert rows == sorted(map(_comparable, here.collect()))
    assert len(rows) == totals.records


def _comparable(row: Any) -> tuple[str, ...]:
    return tuple(repr(sorted(value.items()) if isinstance(value, dict) else value) for value in row)


@pytest.mark.component("java")
def test_damage_is_reported_with_its_origin(spark: Any, sample: tuple[Path, Totals], tmp_path: Path) -> None:
    directory, _ = sample
    damaged = bytearray((directory / "db-1.log").read_bytes())
    damaged[BATCH_HEADER_BYTES + 10] ^= 0xFF
    for name, data in (("db-1.log", damaged), ("db-2.log", (directory / "db-2.log").read_bytes())):
        (tmp_path / name).write_bytes(data)
    wanted = ("directory", "file", "offset", "_corrupt_record")
    (row,) = read_remote(spark, tmp_path.as_uri(), wanted).where("_corrupt_record is not null").collect()
    assert (row["file"], row["offset"]) == (1, 0)
    assert row["directory"].endswith(str(tmp_path))
    with pytest.raises(Exception, match=rf"{tmp_path}/db-1\.log: offset 0: .*checksum"):
        read_remote(spark, tmp_path.as_uri(), wanted, mode=Mode.FAILFAST).count()


@pytest.mark.component("java")
def test_what_cannot_be_read_is_reported_before_a_query_runs(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no data file"):
        read_remote(spark, tmp_path.as_uri())
    with pytest.raises(ConfigError, match="the table has no column colour; there are"):
        read_remote(spark, tmp_path.as_uri(), ["colour"])
