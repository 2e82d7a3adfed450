"""The reasons for which data files stay, as `pybroker journal why` gives them, for many journals at once.

Spark counts what lies where: live messages per file, and which file's records make which other file's void. From these
facts, a few for each file, `pybroker.store.journal.tools.why` concludes what is held and by what.

A file that holds nothing is listed with `held` false; `pybroker journal why` also lists the records that the broker
rewrites before it deletes such a file.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pybroker.broker.domain.destination import queue
from pybroker.spark_jobs.cli import run
from pybroker.spark_jobs.history import PREPARED, History, Source, Tables, file_of, full_name, history_of
from pybroker.spark_jobs.lifetimes import FILE_SHIFT, RecordEvent, subscription_lifetimes
from pybroker.store.journal.cleanup import PENDING_CHECKED_MAX
from pybroker.store.journal.declared_queues import DECLARED_PREFIX, DeclaredQueues, decode_declared
from pybroker.store.journal.reader import data_files
from pybroker.store.journal.tools.journal_snapshot import lowest_writable
from pybroker.store.journal.tools.why import (
    EXAMPLES_MAX,
    Reason,
    RetentionFacts,
    explain,
    held_by_messages,
    held_by_subscription,
    held_by_transaction,
)

_FILES: Final = (
    "directory string, file int, bytes bigint, held boolean, cause string, what string, messages bigint, "
    "examples array<string>, remedy string, files array<int>, because array<int>"
)


def journal_pins(spark: SparkSession, source: Source | History) -> Tables:
    """Return `files`, a row per file and reason that holds it, or one without `cause`; and `live`, messages by file."""
    history = history_of(spark, source)
    live = _live_by_file(history)
    rows = [
        (directory, file_id, facts.sizes[file_id], is_held, *_columns(reason))
        for directory, facts in sorted(_facts(history, live).items())
        for file_id, (is_held, reasons) in explain(facts).items()
        for reason in reasons or (None,)
    ]
    return {"files": spark.createDataFrame(rows, _FILES), "live": live.orderBy("directory", "file")}


def _columns(reason: Reason | None) -> tuple[object, ...]:
    if reason is None:
        return (None,) * 7
    return (
        reason.cause.value,
        reason.what,
        reason.count,
        reason.examples,
        reason.remedy,
        reason.files,
        reason.because,
    )


def _live_by_file(history: History) -> DataFrame:
    """Count live messages by file and destination; duplicates and superseded versions count in theirs."""
    keys = ("directory", "file", "destination_type", "destination")
    files = F.concat(F.array(file_of("location")), "superseded")
    in_order = Window.partitionBy(*keys).orderBy("added_at", "added_pos")
    example = F.when(F.col("rank") <= EXAMPLES_MAX, F.struct("rank", "message_id"))
    return (
        history.live.withColumn("file", F.explode(files))
        .withColumn("rank", F.row_number().over(in_order))
        .groupBy(*keys)
        .agg(
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.min("added_time").alias("oldest_time"),
            F.array_sort(F.collect_list(example)).alias("first"),
            F.array_distinct(F.flatten(F.collect_set("pending"))).alias("waiting_for"),
        )
        .withColumn("examples", F.col("first.message_id"))
        .drop("first")
    )


# ---------------------------------------------------------------- facts


def _facts(history: History, live: DataFrame) -> dict[str, RetentionFacts]:
    found: defaultdict[str, RetentionFacts] = defaultdict(RetentionFacts)
    _add_sizes(history, found)
    for row in live.withColumn("name", full_name()).orderBy("file", F.col("oldest_time").asc_nulls_first()).collect():
        reason = held_by_messages(row.name, row.messages, row.examples, row.waiting_for)
        found[row.directory].own[row.file].append(reason)
    _add_transactions(history, found)
    _add_acks(history, found)
    _add_subscriptions(history, found)
    _add_removed_queues(history, found)
    return found


def _add_sizes(history: History, found: Mapping[str, RetentionFacts]) -> None:
    is_copy = F.coalesce(F.max(F.col("record_type") == "rewritten_data_file"), F.lit(False))
    seen = history.records.groupBy("directory", "file").agg(F.sum("size").alias("bytes"), is_copy.alias("is_copy"))
    written: defaultdict[str, set[int]] = defaultdict(set)
    for row in seen.collect():
        found[row.directory].sizes[row.file] = row.bytes
        if not row.is_copy:
            written[row.directory].add(row.file)
    for directory, facts in found.items():
        if Path(directory).is_dir():  # Of another machine's directory a file without records stays unknown.
            facts.sizes |= {file_id: path.stat().st_size for file_id, path in data_files(Path(directory)).items()}
        facts.keep_from = lowest_writable(facts.sizes, facts.sizes.keys() - written[directory])


def _add_reference(facts: RetentionFacts, by: int, of: Iterable[int]) -> None:
    facts.references.setdefault(by, set()).update(each for each in of if each != by)


def _add_transactions(history: History, found: Mapping[str, RetentionFacts]) -> None:
    for row in history.unfinished.orderBy("first_position").collect():
        examples = [each.message_id for each in row.first]
        count, is_prepared = row.sent + row.acknowledged, row.outcome == PREPARED
        reason = held_by_transaction(row.transaction, count, examples, is_prepared=is_prepared)
        for file_id in row.files:
            found[row.directory].own[file_id].append(reason)
    pairs = F.array(
        F.struct(F.col("ended_in").alias("by"), F.col("file").alias("of")),
        F.struct(F.col("prepared_in").alias("by"), F.col("file").alias("of")),
        F.struct(F.col("ended_in").alias("by"), F.col("prepared_in").alias("of")),
    )
    ends = history.operations.where(F.col("transaction").isNotNull()).select("directory", F.inline(pairs)).distinct()
    for row in ends.where("by is not null and of is not null").collect():
        _add_reference(found[row.directory], row.by, [row.of])


def _add_acks(history: History, found: Mapping[str, RetentionFacts]) -> None:
    voided = history.lifetimes.select("directory", F.explode("voided").alias("pair")).distinct()
    for row in voided.collect():
        _add_reference(found[row.directory], row.pair[0], [row.pair[1]])
    by, of = file_of(F.col("pair")[0]), F.col("pair")[1].cast("int")
    first = F.min_by(F.struct("pos", "message_id"), "pos", EXAMPLES_MAX)
    counted = (
        history.lifetimes.select("directory", "message_id", F.explode("counted").alias("pair"))
        .select("directory", "message_id", by.alias("by"), of.alias("of"), F.col("pair")[0].alias("pos"))
        .groupBy("directory", "by", "of")
        .agg(F.count("*").alias("count"), first.alias("first"))
    )
    for row in counted.collect():
        found[row.directory].acks[row.by, row.of] = (row["count"], [each.message_id for each in row.first])


def _add_subscriptions(history: History, found: Mapping[str, RetentionFacts]) -> None:
    """Replay the destinations' own records, of which there are few: what subscriptions hold, and what ends them."""
    topics = history.live.where(F.col("destination_type") == "topic")
    pending = {
        (row.directory, row.destination, row.subscription): row
        for row in topics.select("directory", "destination", "location", F.explode("pending").alias("subscription"))
        .groupBy("directory", "destination", "subscription")
        .agg(F.count("*").alias("messages"), F.min("location").alias("oldest"))
        .collect()
    }
    firsts = {
        (row.directory, row.destination): 0 if row.is_rewritten else row.first
        for row in topics.groupBy("directory", "destination")
        .agg(
            F.min_by("location", F.struct("added_at", "added_pos")).alias("first"),
            F.max(F.size("superseded") > 0).alias("is_rewritten"),
        )
        .collect()
    }
    for row in history.destination_events.withColumn("name", full_name()).collect():
        facts = found[row.directory]
        for each in subscription_lifetimes([RecordEvent(*event) for event in row.around]):
            if each.ended is not None:
                _add_reference(facts, each.ended >> FILE_SHIFT, each.files)
                continue
            waiting = pending.get((row.directory, row.destination, each.key))
            first = firsts.get((row.directory, row.destination), 0)
            count, oldest = (waiting.messages, waiting.oldest) if waiting is not None else (0, 0)
            needs_all = count and not _is_settled(each.location, count, oldest, first)
            files = each.files if needs_all else {each.location >> FILE_SHIFT}
            for file_id in files:
                facts.own[file_id].append(held_by_subscription(each.key, row.name, count))


def _is_settled(latest: int, pending: int, oldest: int, first: int) -> bool:
    """Return True if all that is pending for a subscription is behind its latest record, as `cleanup` decides it.

    Args:
        latest: position of the record.
        pending: how many messages are pending.
        oldest: the lowest position of these.
        first: position of the topic's first message; 0 if a message of the topic has several records.
    """
    return first > latest or (first > 0 and pending <= PENDING_CHECKED_MAX and oldest > latest)


def _add_removed_queues(history: History, found: Mapping[str, RetentionFacts]) -> None:
    """Add that the removal of a queue voids the metadata records by which it is kept while it is empty."""
    is_kept = F.col("trace").startswith(DECLARED_PREFIX)
    is_removal = (F.col("record_type") == "remove_destination") & (F.col("destination_type") == "queue")
    records = history.records.where(is_kept | is_removal).select("directory", "position", "trace", "destination")
    kept: defaultdict[str, DeclaredQueues] = defaultdict(DeclaredQueues)
    for row in records.orderBy("position").collect():
        file_id = row.position >> FILE_SHIFT
        if row.trace is None:
            _add_reference(found[row.directory], file_id, kept[row.directory].forget(queue(row.destination)))
            continue
        for each in decode_declared(row.trace):
            kept[row.directory].record(each, file_id)


if __name__ == "__main__":
    run(journal_pins)
