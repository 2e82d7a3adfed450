"""The masters' terms and the gaps between them, from the metadata records that brokers write into the journal.

```text
pybroker 0.1.0 started 2026-11-20T10:00:00.000+00:00, epoch 7        a take-over begins data file 7
pybroker clean stop {...}                                            the term ended with a clean stop
LOADED Fri Nov 20 10:00:00 UTC 2026                                  an ActiveMQ started
```

A term ends with its clean stop. Without one it ends with the latest time of its records: the master was killed, or lost
the lock, some time after that. A gap lasts from there to the next start, so without a clean stop it is
the longest it can have been. Metadata records go with their data files: terms before the oldest file are not known.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pybroker.spark_jobs.cli import run
from pybroker.spark_jobs.history import History, Source, Tables, file_of, history_of

STARTED: Final = r"^pybroker (\S+) started (\S+?)(?:, epoch (\d+))?$"
LOADED: Final = r"^LOADED \S+ (\S+ \d+ \d\d:\d\d:\d\d) (\S+) (\d{4})$"
"""Java's way to write a time, in the broker's own zone."""
CLEAN_STOP: Final = "pybroker clean stop"

CLEAN: Final = "clean stop"
TAKEN_OVER: Final = "no clean stop"


def failovers(spark: SparkSession, source: Source | History) -> Tables:
    """Return `terms`, one per start of a master, and `gaps`, the times without one."""
    terms = _terms(history_of(spark, source))
    return {"terms": terms, "gaps": _gaps(terms)}


def _terms(history: History) -> DataFrame:
    starts = _starts(history)
    bounds = starts.groupBy("directory").agg(F.array_sort(F.collect_list("position")).alias("starts"))
    number = F.size(F.filter("starts", lambda start: start <= F.col("position")))
    met = (
        history.records.join(F.broadcast(bounds), "directory")
        .withColumn("number", number)
        .groupBy("directory", "number")
        .agg(
            F.max("time").alias("last_time"),
            F.count("*").alias("records"),
            F.count_if(F.col("record_type") == "add_message").alias("messages"),
            F.max(F.col("trace").startswith(CLEAN_STOP)).alias("is_clean"),
        )
    )
    in_order = Window.partitionBy("directory").orderBy("position")
    following = F.lead("position").over(in_order)
    ended = F.when(F.col("is_clean"), CLEAN).when(F.col("next").isNotNull(), TAKEN_OVER).otherwise("still there")
    return (
        starts.withColumn("number", F.row_number().over(in_order))
        .withColumn("next", following)
        .join(met, ["directory", "number"], "left")
        .select(
            "directory",
            "number",
            "broker",
            "version",
            "epoch",
            file_of("position").alias("file"),
            "started_time",
            F.greatest("started_time", "last_time").alias("last_time"),
            ended.alias("ended_by"),
            "records",
            "messages",
        )
        .orderBy("directory", "number")
    )


def _starts(history: History) -> DataFrame:
    trace = F.col("trace")
    is_ours = trace.rlike(STARTED)
    found = history.records.where(is_ours | trace.startswith("LOADED ")).select(
        "directory", "position", "trace", "time"
    )
    epoch = F.when(is_ours, F.regexp_extract("trace", STARTED, 3))
    return found.select(
        "directory",
        "position",
        F.when(is_ours, "pybroker").otherwise("ActiveMQ").alias("broker"),
        F.when(is_ours, F.regexp_extract("trace", STARTED, 1)).alias("version"),
        F.when(epoch != "", epoch.cast("int")).alias("epoch"),
        F.coalesce(F.when(is_ours, F.try_to_timestamp(F.regexp_extract("trace", STARTED, 2))), _loaded()).alias(
            "started_time"
        ),
    )


def _loaded() -> Column:
    """Read Java's time, where the name of its zone is unambiguous."""
    zone = F.regexp_extract("trace", LOADED, 2)
    parts = F.concat_ws(" ", F.regexp_extract("trace", LOADED, 1), F.regexp_extract("trace", LOADED, 3))
    known = F.try_to_timestamp(F.concat(parts, F.lit(" UTC")), F.lit("MMM d HH:mm:ss yyyy z"))
    return F.when(zone.isin("UTC", "GMT", "Z"), known)


def _gaps(terms: DataFrame) -> DataFrame:
    in_order = Window.partitionBy("directory").orderBy("number")
    seconds = (F.unix_millis("until_time") - F.unix_millis("since_time")) / 1000
    return (
        terms.withColumn("since_time", F.lag("last_time").over(in_order))
        .withColumn("after", F.lag("ended_by").over(in_order))
        .withColumnRenamed("started_time", "until_time")
        .where(F.col("since_time").isNotNull() & F.col("until_time").isNotNull())
        .select(
            "directory",
            F.col("number").alias("before_term"),
            "since_time",
            "until_time",
            F.greatest(seconds, F.lit(0.0)).alias("seconds"),
            "after",
        )
    )


if __name__ == "__main__":
    run(failovers)
