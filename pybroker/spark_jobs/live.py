"""The contents of a store, by replaying its journal in Spark: the same messages a broker would recover.

`spark-submit` runs it: see `cli`. Messages of transactions that are open, rolled back or undecided are not there.
Messages whose acknowledgement is prepared are, and `hidden_from` lists the consumers that do not get them until then.

Messages come in the order in which the store numbers them. A queue that dispatches by priority delivers them in
another order, which the journal does not record.
"""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pybroker.spark_jobs.cli import run
from pybroker.spark_jobs.history import MESSAGE, History, Source, Tables, file_of, history_of
from pybroker.spark_jobs.lifetimes import FILE_SHIFT

OFFSET_MASK = (1 << FILE_SHIFT) - 1


def live(spark: SparkSession, source: Source | History) -> Tables:
    """Return `messages`, `subscriptions` with what they have pending, and `transactions` without an outcome."""
    history = history_of(spark, source)
    messages = history.live.select(
        *MESSAGE,
        file_of("location").alias("file"),
        F.col("location").bitwiseAND(OFFSET_MASK).alias("offset"),
        F.col("location").alias("position"),
        "size",
        F.col("added_at").alias("order"),
        F.col("added_pos").alias("order_within"),
        F.col("added_time").alias("time"),
        "pending",
        "hidden_from",
    ).orderBy("directory", "destination_type", "destination", "added_at", "added_pos")
    return {
        "messages": messages,
        "subscriptions": history.subscriptions,
        "transactions": history.unfinished.orderBy("first_position"),
    }


if __name__ == "__main__":
    run(live)
