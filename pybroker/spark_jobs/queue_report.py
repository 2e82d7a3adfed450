"""Throughput, depth over time, time in queue and sizes, per destination and producer.

A message counts as sent when its transaction commits, and as consumed when no consumer waits for it any more; on a
topic that is when the last durable subscription has it. What expired or was dead-lettered counts as that, and its copy
in a dead letter queue does not count as sent (see `letters`). Depth begins at 0 with the oldest data file: what
was pending before that, in files since deleted, is not known.

Acknowledgements carry no time in KahaDB. `clock` names their source: `mark`, from the broker's time marks, at most a
second off; `estimate`, from the last arrival before it, which is too early by however long nothing arrived.
"""

from math import ceil
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pybroker.spark_jobs.cli import run
from pybroker.spark_jobs.history import DESTINATION, MESSAGE, History, Source, Tables, history_of
from pybroker.spark_jobs.letters import CONSUMED, DEAD_LETTERED, EXPIRED, fates, letters

INTERVALS_MAX: Final = 240
"""Points of a curve: as many as a page can show."""
_INTERVALS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
"""Lengths of intervals in seconds; longer ones are whole days."""
PERCENTILES: Final = (0.5, 0.95, 0.99)
_ACCURACY: Final = 1000
"""The accuracy of percentiles: within a thousandth of the ranks."""


def queue_report(spark: SparkSession, source: Source | History, *, interval: int | None = None) -> Tables:
    """Return `throughput`, `depth`, `time_in_queue`, `sizes`, `producers` and `clock`.

    Args:
        spark: the session.
        source: a journal.
        interval: seconds that throughput and depth are counted in; by default so many that there are 240 at most.
    """
    history = history_of(spark, source)
    seconds = interval or _fitting_interval(history)
    return {
        "throughput": _throughput(history, seconds),
        "depth": _depth(history, seconds),
        "time_in_queue": _time_in_queue(history),
        "sizes": _sizes(history),
        "producers": _producers(history),
        "clock": _clock(history),
    }


def producer() -> Column:
    """Return the producer's id out of a message's: all but the sequence number."""
    return F.regexp_replace("message_id", ":[^:]*$", "")


def _fitting_interval(history: History) -> int:
    row = history.records.agg(F.min("time").alias("first"), F.max("time").alias("last")).first()
    if row is None or row["first"] is None:
        return 1
    span = (row["last"] - row["first"]).total_seconds()
    fitting = next((each for each in _INTERVALS if span / each <= INTERVALS_MAX), None)
    return fitting or 86_400 * ceil(span / 86_400 / INTERVALS_MAX)


def _sent(history: History) -> DataFrame:
    """Return the adds of messages that producers sent: not the copies that a broker puts into dead letter queues."""
    copies = letters(history).select(*MESSAGE, F.col("added_pos").alias("position"))
    adds = history.effects.where(F.col("record_type") == "add_message")
    return adds.join(copies, [*MESSAGE, "position"], "left_anti")


def _begin(time: str, seconds: int) -> Column:
    """Return the beginning of the interval that a time is in."""
    return F.timestamp_seconds(F.floor(F.unix_seconds(time) / seconds) * seconds)


def _throughput(history: History, seconds: int) -> DataFrame:
    sent = _sent(history).select(*DESTINATION, _begin("at_time", seconds).alias("time"), "size", F.lit(1).alias("sent"))
    consumed = (
        fates(history)
        .where(F.col("fate") == CONSUMED)
        .select(*DESTINATION, _begin("ended_time", seconds).alias("time"), F.lit(1).alias("consumed"))
    )
    return (
        sent.unionByName(consumed, allowMissingColumns=True)
        .where(F.col("time").isNotNull())
        .groupBy(*DESTINATION, "time")
        .agg(
            F.count("sent").alias("sent"),
            F.count("consumed").alias("consumed"),
            F.coalesce(F.sum("size"), F.lit(0)).alias("sent_bytes"),
            F.lit(seconds).alias("seconds"),
        )
        .orderBy(*DESTINATION, "time")
    )


def _depth(history: History, seconds: int) -> DataFrame:
    came = history.lifetimes.select(*DESTINATION, _begin("added_time", seconds).alias("time"), F.lit(1).alias("change"))
    went = history.lifetimes.where(F.col("ended_at").isNotNull()).select(
        *DESTINATION, _begin("ended_time", seconds).alias("time"), F.lit(-1).alias("change")
    )
    known = came.unionByName(went).where(F.col("time").isNotNull())
    changes = known.groupBy(*DESTINATION, "time").agg(F.sum("change").alias("change"))
    so_far = Window.partitionBy(*DESTINATION).orderBy("time").rowsBetween(Window.unboundedPreceding, 0)
    depth = F.sum("change").over(so_far).alias("depth")
    return changes.select(*DESTINATION, "time", depth).orderBy(*DESTINATION, "time")


def _time_in_queue(history: History) -> DataFrame:
    between = F.col("ended_ms") - F.col("added_ms")
    waited = F.when(between > 0, between).when(between.isNotNull(), 0)  # clocks of two brokers may differ
    is_consumed = F.coalesce(F.col("fate") == CONSUMED, F.lit(False))
    known = F.when(is_consumed, waited)
    percentiles = F.percentile_approx(known, list(PERCENTILES), _ACCURACY)
    return (
        fates(history)
        .groupBy(*DESTINATION)
        .agg(
            F.count_if(is_consumed).alias("consumed"),
            F.count_if(F.col("fate") == EXPIRED).alias("expired"),
            F.count_if(F.col("fate") == DEAD_LETTERED).alias("dead_lettered"),
            F.count_if(F.col("ended_at").isNull()).alias("waiting"),
            F.count_if(is_consumed & waited.isNull()).alias("untimed"),
            F.min(known).alias("min_ms"),
            percentiles.alias("percentiles"),
            F.max(known).alias("max_ms"),
        )
        .select(
            *DESTINATION,
            "consumed",
            "expired",
            "dead_lettered",
            "waiting",
            "untimed",
            "min_ms",
            *(F.col("percentiles")[index].alias(f"p{share * 100:g}_ms") for index, share in enumerate(PERCENTILES)),
            "max_ms",
        )
        .orderBy(F.desc("consumed"))
    )


def _sizes(history: History) -> DataFrame:
    """Count messages by the power of two below their record's size."""
    power = F.floor(F.log2(F.greatest("size", F.lit(1))))
    return (
        _sent(history)
        .groupBy(*DESTINATION, producer().alias("producer_id"), F.pow(F.lit(2), power).cast("long").alias("bytes_from"))
        .agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
        .orderBy(*DESTINATION, "bytes_from")
    )


def _producers(history: History) -> DataFrame:
    return (
        _sent(history)
        .groupBy(*DESTINATION, producer().alias("producer_id"))
        .agg(
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.min("at_time").alias("first_time"),
            F.max("at_time").alias("last_time"),
        )
        .orderBy(F.desc("messages"))
    )


def _clock(history: History) -> DataFrame:
    return (
        history.records.where(F.col("record_type") == "remove_message")
        .groupBy(F.coalesce("time_source", F.lit("unknown")).alias("time_source"))
        .agg(F.count("*").alias("acknowledgements"))
        .orderBy("time_source")
    )


if __name__ == "__main__":
    run(queue_report)
