"""Pending messages, their age, and the consumers they wait for.

Ages are counted up to the journal's latest known time, so that an archived store reads like a live one. A topic's
messages wait for durable subscriptions, which the journal names. A queue's wait for any consumer: the journal has
the time of the last acknowledgement, and its consumer where the broker recorded that (ActiveMQ does, pybroker only in
XA transactions).
"""

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pybroker.spark_jobs.cli import run
from pybroker.spark_jobs.history import DESTINATION, MESSAGE, History, Source, Tables, history_of

OLDEST = 100
"""Messages that `oldest` names per destination."""


def backlog(spark: SparkSession, source: Source | History) -> Tables:
    """Return `destinations` and `subscriptions` with what they have pending, and the `oldest` messages."""
    history = history_of(spark, source)
    return {"destinations": _destinations(history), "subscriptions": history.subscriptions, "oldest": _oldest(history)}


def _destinations(history: History) -> DataFrame:
    pending = history.live.groupBy(*DESTINATION).agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.count_if(F.size("hidden_from") > 0).alias("hidden"),
        F.min("added_time").alias("oldest_time"),
        F.max("added_time").alias("newest_time"),
        F.min_by("message_id", "added_at").alias("oldest_id"),
        F.array_sort(F.array_distinct(F.flatten(F.collect_set("pending")))).alias("waiting_for"),
    )
    return (
        pending.join(_last_consumed(history), list(DESTINATION), "left")
        .crossJoin(F.broadcast(history.end))
        .withColumn("age_seconds", F.unix_seconds("end_time") - F.unix_seconds("oldest_time"))
        .drop("end_time")
        .orderBy(F.desc("messages"))
    )


def _last_consumed(history: History) -> DataFrame:
    return (
        history.effects.where(F.col("record_type") == "remove_message")
        .groupBy(*DESTINATION)
        .agg(
            F.max("at_time").alias("last_consumed_time"),
            F.max_by("consumer_id", F.when(F.col("consumer_id").isNotNull(), F.col("at"))).alias("last_consumer_id"),
        )
    )


def _oldest(history: History) -> DataFrame:
    in_order = Window.partitionBy(*DESTINATION).orderBy("added_at", "added_pos")
    return (
        history.live.withColumn("rank", F.row_number().over(in_order))
        .where(F.col("rank") <= OLDEST)
        .select(*MESSAGE, "rank", "added_time", "size", "pending")
        .orderBy(*DESTINATION, "rank")
    )


if __name__ == "__main__":
    run(backlog)
