"""What a store holds now, by replaying its journal in Spark: the same messages a broker would recover.

`spark-submit` runs it: see `cli`. Messages of transactions that are open, rolled back or undecided are not there; those
whose acknowledgement is prepared are, and `hidden_from` tells from whom they are hidden until that is decided.

Messages come in the order in which the store numbers them. A queue that dispatches by priority orders its consumers'
messages anew, which no record tells.
"""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pybroker.spark_jobs.cli import run
from pybroker.spark_jobs.history import MESSAGE, History, Source, Tables, file_of, history
from pybroker.spark_jobs.lives import FILE_SHIFT

OFFSET_MASK = (1 << FILE_SHIFT) - 1


def live(spark: SparkSession, source: Source | History) -> Tables:
    """Return `messages`, `subscriptions` with what they have pending, and `transactions` without an outcome."""
    past = history(spark, source)
    messages = past.live.select(
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
        "subscriptions": past.subscriptions,
        "transactions": past.unfinished.orderBy("first_position"),
    }


if __name__ == "__main__":
    run(live)
