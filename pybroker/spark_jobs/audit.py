"""Checks that a journal agrees with itself: damage, acknowledgements of nothing, duplicates, gaps, open transactions.

| check                     | severity         | meaning                                                            |
|---------------------------|------------------|--------------------------------------------------------------------|
| damaged                   | damage           | bytes that cannot be used: a wrong checksum, or no record           |
| unchecked                 | notice           | batches without a checksum: changes in them go unnoticed           |
| missing file              | notice           | a gap in the files' numbers: collected, or lost                    |
| acknowledged, never added | notice or damage | the message is in no file; damage if no file can be missing        |
| acknowledged again        | notice           | compaction copies acknowledgements; brokers repeat them            |
| added again               | hazard           | one id twice in one destination: a store keeps the first           |
| sequence gap              | hint             | a producer's numbers have a hole                                   |
| unfinished transaction    | notice           | neither committed nor rolled back by the journal's end             |
| in doubt                  | notice           | prepared, without an outcome: what it touches is held              |

Gaps are hints only: messages that are not persistent, or are for topics without durable subscriptions, take numbers
too.
`pybroker journal check` knows more about a single journal, and what each broker would do about it.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pybroker.spark_jobs.cli import run
from pybroker.spark_jobs.history import MESSAGE, PREPARED, History, Source, Tables, file_of, full_name, history_of
from pybroker.spark_jobs.queue_report import producer
from pybroker.store.columns.schema import CORRUPT
from pybroker.store.journal.tools.findings import EXAMPLES_MAX, Level, complete_until, unfinished_transaction

_COLUMNS: Final = (
    "check string, severity string, directory string, file int, offset bigint, count bigint, detail string"
)
_OFFSET_MASK: Final = 2**32 - 1
_HINT: Final = "hint"
_SEVERITIES: Final = (*(level.value for level in Level), _HINT)


def audit(spark: SparkSession, source: Source | History) -> Tables:
    """Return `findings`, the worst first."""
    history = history_of(spark, source)
    checks = (_damaged, _unchecked, _missing, _never_added, _acknowledged_again, _added_again, _gaps, _unfinished)
    findings = checks[0](history)
    for check in checks[1:]:
        findings = findings.unionByName(check(history))
    rank = F.array_position(F.array(*(F.lit(each) for each in _SEVERITIES)), F.col("severity"))
    return {"findings": findings.orderBy(rank, "check", "directory", "file", "offset")}


def _finding(
    found: DataFrame,
    check: str | Column,
    severity: str | Column,
    detail: Column,
    *,
    position: str = "position",
    count: str | Column = "count",
) -> DataFrame:
    place = F.col(position)
    return found.select(
        (F.lit(check) if isinstance(check, str) else check).alias("check"),
        (F.lit(severity) if isinstance(severity, str) else severity).alias("severity"),
        "directory",
        file_of(place).alias("file"),
        place.bitwiseAND(_OFFSET_MASK).alias("offset"),
        (F.col(count) if isinstance(count, str) else count).cast("long").alias("count"),
        detail.alias("detail"),
    )


def _examples(column: str) -> Column:
    return F.concat_ws(", ", F.slice(F.array_sort(F.collect_set(column)), 1, EXAMPLES_MAX))


def _damaged(history: History) -> DataFrame:
    damaged = history.records.where(F.col(CORRUPT).isNotNull())
    detail = F.concat(F.col(CORRUPT), F.lit(" ("), F.col("size").cast("string"), F.lit(" bytes)"))
    return _finding(damaged, "damaged", Level.DAMAGE.value, detail, count=F.lit(1))


def _unchecked(history: History) -> DataFrame:
    unchecked = history.records.where(F.col("checksum") == "none").groupBy("directory", "file")
    found = unchecked.agg(F.count("*").alias("count"), F.min("position").alias("position"))
    return _finding(found, "unchecked", Level.NOTICE.value, F.lit("records in batches without a checksum"))


def _missing(history: History) -> DataFrame:
    files = history.records.select("directory", "file").distinct()
    before = F.coalesce(F.lag("file").over(Window.partitionBy("directory").orderBy("file")), F.lit(0))
    gaps = (
        files.withColumn("count", F.col("file") - before - 1)
        .where(F.col("count") > 0)
        .withColumn("position", F.col("file").cast("long") * 2**32)
    )
    ends = F.col("file") - F.col("count"), F.col("file") - 1
    detail = F.format_string("no records in db-%d.log to db-%d.log: collected or lost", *ends)
    return _finding(gaps, "missing file", "notice", detail)


def _never_added(history: History) -> DataFrame:
    adds = history.operations.where(F.col("record_type") != "remove_message").select(*MESSAGE).distinct()
    acks = history.effects.where(F.col("record_type") == "remove_message")
    none = acks.join(adds, list(MESSAGE), "left_anti")
    is_add = F.col("record_type").isin("add_message", "update_message")
    adding = history.records.where(is_add).groupBy("directory").agg(F.collect_set("file").alias("files")).collect()
    complete = history.spark.createDataFrame(
        [(row.directory, complete_until(row.files)) for row in adding], "directory string, complete_until int"
    )
    found = (
        none.groupBy("directory", "destination_type", "destination")
        .agg(F.count("*").alias("count"), F.min("position").alias("position"), _examples("message_id").alias("ids"))
        .join(F.broadcast(complete), "directory", "left")
    )
    severity = F.when(file_of("position") <= F.col("complete_until"), "damage").otherwise("notice")
    return _finding(found, "acknowledged, never added", severity, F.concat_ws(": ", full_name(), "ids"))


def _acknowledged_again(history: History) -> DataFrame:
    acks = history.effects.where(F.col("record_type") == "remove_message")
    repeated = acks.groupBy(*MESSAGE, "subscription").agg(
        (F.count("*") - 1).alias("again"), F.max("position").alias("position")
    )
    return _by_destination(repeated, "acknowledged again", "notice")


def _added_again(history: History) -> DataFrame:
    adds = history.effects.where(F.col("record_type") == "add_message")
    repeated = adds.groupBy(*MESSAGE).agg((F.count("*") - 1).alias("again"), F.max("position").alias("position"))
    return _by_destination(repeated, "added again", "hazard")


def _by_destination(repeated: DataFrame, check: str, severity: str) -> DataFrame:
    found = (
        repeated.where(F.col("again") > 0)
        .groupBy("directory", "destination_type", "destination")
        .agg(F.sum("again").alias("count"), F.min("position").alias("position"), _examples("message_id").alias("ids"))
    )
    return _finding(found, check, severity, F.concat_ws(": ", full_name(), "ids"))


def _gaps(history: History) -> DataFrame:
    sequence = F.try_to_number(F.regexp_extract("message_id", ":([0-9]{1,18})$", 1), F.lit("9" * 18)).cast("long")
    sent = history.operations.where(F.col("record_type") == "add_message")
    numbers = (
        sent.select("directory", producer().alias("producer_id"), sequence.alias("number"), "position")
        .where(F.col("number").isNotNull())
        .groupBy("directory", "producer_id", "number")
        .agg(F.min("position").alias("position"))
    )
    in_order = Window.partitionBy("directory", "producer_id").orderBy("number")
    holes = numbers.withColumn("before", F.lag("number").over(in_order)).where(F.col("number") > F.col("before") + 1)
    found = holes.groupBy("directory", "producer_id").agg(
        F.sum(F.col("number") - F.col("before") - 1).alias("count"),
        F.count("*").alias("holes"),
        F.min_by(F.struct(F.col("before") + 1, F.col("number") - 1), "number").alias("first"),
        F.min("position").alias("position"),
    )
    detail = F.format_string(
        "%s: %d holes, the first from %d to %d", "producer_id", "holes", F.col("first.col1"), F.col("first.col2")
    )
    return _finding(found, "sequence gap", _HINT, detail)


def _unfinished(history: History) -> DataFrame:
    found: list[tuple[object, ...]] = []
    for row in history.unfinished.collect():
        location = divmod(row.first_position, 2**32)
        finding = unfinished_transaction(
            row.directory,
            row.transaction,
            added=row.sent,
            removed=row.acknowledged,
            file_ids=row.files,
            is_prepared=row.outcome == PREPARED,
        )
        found.append((finding.kind, finding.level.value, row.directory, *location, 1, finding.what))
    return history.spark.createDataFrame(found, _COLUMNS)


if __name__ == "__main__":
    run(audit)
