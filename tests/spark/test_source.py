# mypy: disable-error-code="misc"
"""The data source `kahadb` in a real Spark: what it reads, its options, and its errors when there is nothing."""

import gc
import os
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pybroker.store.journal.commands import Trace, encode
from tests.unit.columns.agreement import write_file

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

GOLDEN = Path(__file__).parents[1] / "golden" / "kahadb"


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    for name in ("02-consumed-gc", "09-scheduled", "10-corrupt-batch"):
        with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def consumed(journals: Path) -> str:
    return str(journals / "02-consumed-gc" / "kahadb")


@pytest.fixture
def pushing(spark: "SparkSession") -> Iterator[None]:
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "true")
    yield
    spark.conf.unset(name)


def table(spark: "SparkSession", path: str | list[str], **options: Any) -> "DataFrame":
    return spark.read.format("kahadb").options(**options).load(path)


def test_spark_finds_it_and_reads_every_column_of_every_record(spark: "SparkSession", consumed: str) -> None:
    from tests.unit.columns.agreement import vector_rows

    rows = table(spark, consumed).orderBy("position").collect()

    assert [(row.file, row.offset, row.message_id, row.text) for row in rows] == [
        (row["file"], row["offset"], row["message_id"], row["text"]) for row in vector_rows(Path(consumed))
    ]
    assert {row.directory for row in rows} == {consumed}
    assert Counter(row.record_type for row in rows)["rewritten_data_file"] == 2


def test_partitions_follow_files_and_batches_inside_them(spark: "SparkSession", consumed: str) -> None:
    whole = table(spark, consumed, columns="file,offset")
    cut = table(spark, consumed, columns="file,offset", partitionBytes=4096)

    assert whole.rdd.getNumPartitions() == len(list(Path(consumed).glob("db-*.log")))
    assert cut.rdd.getNumPartitions() > whole.rdd.getNumPartitions()
    assert sorted(cut.collect()) == sorted(whole.collect())


def test_a_schema_chooses_columns_and_sql_can_name_the_source(spark: "SparkSession", consumed: str) -> None:
    rows = spark.read.format("kahadb").schema("destination string, offset int, message binary").load(consumed)
    assert rows.columns == ["destination", "offset", "message"]
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW journal USING kahadb OPTIONS (path '{consumed}')")
    counted = spark.sql("SELECT count(*) AS n FROM journal WHERE record_type = 'add_message'").collect()[0].n
    assert rows.where("message IS NOT NULL").count() == counted > 0


def test_several_journals_are_one_table(spark: "SparkSession", journals: Path, consumed: str) -> None:
    scheduler = str(journals / "09-scheduled" / "scheduler")
    rows = table(spark, [consumed, scheduler], columns="directory,record_type,job").collect()
    assert {row.directory for row in rows} == {consumed, scheduler}
    assert {row.job.scheduler for row in rows if row.record_type == "add_scheduled_job"} == {"JMS"}


@pytest.mark.usefixtures("pushing")
@pytest.mark.parametrize(
    "condition",
    [
        "destination IN ('A', 'CONS.Q') AND record_type = 'add_message'",
        "file >= 4 AND file <= 9 AND destination IS NOT NULL AND NOT record_type = 'add_message'",
    ],
)
def test_filters_that_are_pushed_down_leave_the_same_rows(spark: "SparkSession", consumed: str, condition: str) -> None:
    columns = "file,offset,record_type,destination,text"
    pushed = table(spark, consumed, columns=columns, pushdown=True).where(condition)
    rows = [row for row in table(spark, consumed, columns=columns).collect()]
    plain = spark.createDataFrame(rows, pushed.schema).where(condition)
    assert sorted(pushed.collect(), key=str) == sorted(plain.collect(), key=str)


def test_modes_show_drop_or_raise_damage(spark: "SparkSession", journals: Path) -> None:
    damaged = str(journals / "10-corrupt-batch" / "kahadb")
    shown = table(spark, damaged).where("_corrupt_record IS NOT NULL").collect()
    assert {row.checksum for row in shown} == {None, "bad"}
    assert all(row.size and row.record_type is None for row in shown)

    sound = table(spark, damaged, mode="DROPMALFORMED", columns="offset,record_type")
    assert sound.count() == table(spark, damaged).count() - len(shown)
    assert sound.where("record_type IS NULL").count() == 0

    with pytest.raises(Exception, match=r"JournalCorrupt: .*db-\d+\.log: offset \d+: ") as error:
        table(spark, damaged, mode="FAILFAST", columns="offset").collect()
    assert any(f"db-{row.file}.log: offset {row.offset}: {row._corrupt_record}" in str(error.value) for row in shown)


def test_a_record_type_of_the_future_is_a_marked_row(spark: "SparkSession", tmp_path: Path) -> None:
    write_file(tmp_path, [[encode(Trace("now")), b"\x63\x00"]])
    rows = table(spark, str(tmp_path)).orderBy("offset").collect()
    assert [(row.record_type, row._corrupt_record) for row in rows] == [
        ("trace", None),
        ("unknown", "unknown command type 99"),
    ]


def test_file_that_vanishes_after_planning_follows_the_mode(spark: "SparkSession", tmp_path: Path) -> None:
    from pybroker.spark_jobs.options import parse
    from pybroker.spark_jobs.source import JournalReader, KahaDBSource

    path = write_file(tmp_path, [[encode(Trace("now"))]])
    found: dict[str, Any] = {}
    for mode in ("PERMISSIVE", "DROPMALFORMED", "FAILFAST"):
        write_file(tmp_path, [[encode(Trace("now"))]])
        options = {"path": str(tmp_path), "mode": mode, "columns": "file,_corrupt_record"}
        reader = JournalReader(parse(options), KahaDBSource(options).schema())
        (partition,) = reader.partitions()
        path.unlink()
        if mode == "FAILFAST":
            with pytest.raises(Exception, match=r"db-1\.log: offset 0: the data file is gone"):
                list(reader.read(partition))
        else:
            found[mode] = [row for batch in reader.read(partition) for row in batch.to_pylist()]
    assert found["DROPMALFORMED"] == []
    assert [(row["file"], "gone" in row["_corrupt_record"]) for row in found["PERMISSIVE"]] == [(1, True)]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (None, {}, "there is no such directory"),
        ("notes.txt", {}, "no KahaDB journal"),
        ("scheduler/db-1.log", {}, "the journal may be in .*scheduler"),
        ("db-1.log", {"mode": "FAILFASTER"}, "did you mean FAILFAST"),
        ("db-1.log", {"partitionBytess": "1"}, "did you mean partitionBytes"),
        ("db-1.log", {"columns": "destinationn"}, "did you mean destination"),
    ],
)
def test_what_cannot_be_read_is_reported_on_load(
    spark: "SparkSession", tmp_path: Path, content: str | None, options: dict[str, str], message: str
) -> None:
    folder = tmp_path / "journal"
    if content is not None:
        (folder / content).parent.mkdir(parents=True)
        (folder / content).touch()
    with pytest.raises(Exception, match=message):
        table(spark, str(folder), **options)


@pytest.mark.parametrize("name", ["kahadb", "KahaDB"])
def test_data_directory_of_a_broker_is_its_journal(
    spark: "SparkSession", consumed: str, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).symlink_to(consumed)
    rows = table(spark, [str(tmp_path), str(tmp_path / name)]).select("directory").collect()
    assert {row.directory for row in rows} == {str(tmp_path / name)}
    assert len(rows) == table(spark, consumed).count(), "one journal by two names is read once"


def test_an_empty_directory_has_no_rows_and_fails_fast(spark: "SparkSession", tmp_path: Path) -> None:
    assert table(spark, str(tmp_path)).count() == 0
    with pytest.raises(Exception, match="the directory is empty"):
        table(spark, str(tmp_path), mode="FAILFAST").count()


def test_register_makes_spark_push_filters_down(spark: "SparkSession", consumed: str) -> None:
    import pyspark_kahadb

    try:
        pyspark_kahadb.register(spark)
        rows = table(spark, consumed, columns="file,record_type").where("record_type = 'trace'")
        assert {row.record_type for row in rows.collect()} == {"trace"}
    finally:
        spark.conf.unset(pyspark_kahadb.PUSHDOWN)
        spark.dataSource.register(pyspark_kahadb.DefaultSource)


# ---------------------------------------------------------------- what it does to a worker


def _environment(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa

    for _ in batches:
        yield pa.RecordBatch.from_pylist([{"reused": os.environ.get("SPARK_REUSE_WORKER", "")}])


def test_spark_marks_a_worker_that_serves_more_than_one_task(spark: "SparkSession") -> None:
    assert spark.range(1).mapInArrow(_environment, "reused string").collect()[0].reused


@pytest.mark.parametrize("reused", [True, False])
def test_reused_worker_freezes_its_imports_for_gc(
    consumed: str, monkeypatch: pytest.MonkeyPatch, *, reused: bool
) -> None:
    from pybroker.spark_jobs.output import set_imports_aside
    from pybroker.spark_jobs.source import KahaDBSource

    if reused:
        monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    else:
        monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    source = KahaDBSource({"path": consumed, "columns": "file,offset"})
    reader = source.reader(source.schema())
    set_imports_aside.cache_clear()
    before, objects = gc.get_freeze_count(), len(gc.get_objects())
    try:
        assert sum(batch.num_rows for batch in reader.read(reader.partitions()[0]))  # type: ignore[union-attr]
        set_aside, left = gc.get_freeze_count() - before, len(gc.get_objects())
    finally:
        set_imports_aside.cache_clear()

    assert (left < set_aside > objects / 2) if reused else (set_aside <= 0)  # fewer: some have ended
